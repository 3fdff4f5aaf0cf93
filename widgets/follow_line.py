"""One followed run on one line: what it does, for how long, and how that compares with its repository's runs."""

from datetime import datetime
from typing import Final

from textual.content import Content

from app.text import safe_text
from storage.records.following import PinnedRun, RunDurations
from widgets.badges import STYLES, Tone, run_badge
from widgets.cells import fit, shorten
from widgets.times import ago, span

NARROW: Final = 100
"""Below this width words give way to glyphs."""
SCALE: Final = 1.25
"""How far the bar reaches, as a multiple of the 95th percentile."""
_BAR: Final = {True: 12, False: 28}
_QUIET: Final = STYLES["quiet"]

Part = tuple[str, str]


def follow_line(pinned: PinnedRun, now: datetime, as_of: datetime, width: int) -> Content:
    """The line, at most `width` cells.

    Args:
        pinned: The run.
        now: The time.
        as_of: Up to when the service has answered; what goes on is counted up to then.
        width: Cells.
    """
    narrow = width < NARROW
    row = pinned.row
    if row is None:
        return _cut(
            [("? ", STYLES["warn"]), (safe_text(pinned.run_id, limit=60), ""), ("  not held here any more", _QUIET)],
            width,
        )
    badge = run_badge(row.status)
    tone: Tone = "warn" if pinned.is_stuck else badge.tone
    word = f"{badge.word} !" if pinned.is_stuck else badge.word
    head = f"{badge.glyph} " if narrow else f"{badge.glyph} {word:<11} "
    repository = fit(safe_text(row.repository, limit=120), 16 if narrow else 22, "middle")
    branch = fit(safe_text(row.branch_name, limit=200), 12 if narrow else 26)
    parts: list[Part] = [(head, f"{STYLES[tone]} bold"), (repository, ""), ("  ", ""), (branch, _QUIET), ("  ", "")]
    return _cut([*parts, *_times(pinned, now, as_of, narrow=narrow)], width)


def took_s(pinned: PinnedRun, as_of: datetime) -> float:
    """Seconds of the run's current or last turn, as far as anybody saw."""
    row = pinned.row
    if row is None or pinned.active_since is None:
        return 0.0
    end = row.updated_at if row.is_final else as_of
    return max(0.0, ((end or as_of) - pinned.active_since).total_seconds())


def bar(seconds: float, durations: RunDurations, cells: int) -> str:
    """The time so far against the repository's own: `┊` at the median, `│` at the 95th percentile."""
    scale_s = max(durations.p95_s * SCALE, 1.0)

    def at(value_s: float) -> int:
        return min(cells - 1, int(value_s / scale_s * cells))

    filled = at(seconds) if seconds < scale_s else cells - 1
    line = ["━" if index < filled else "·" for index in range(cells)]
    line[at(durations.median_s)] = "┊"
    line[at(durations.p95_s)] = "│"
    line[filled] = "▸" if seconds >= scale_s else "╸"
    return "".join(line)


def _times(pinned: PinnedRun, now: datetime, as_of: datetime, *, narrow: bool) -> list[Part]:
    row, durations = pinned.row, pinned.durations
    if row is None:
        return []
    seconds = took_s(pinned, as_of)
    if row.presence == "lost":
        return [("no longer shown by the service", STYLES["warn"])]
    if row.is_final:
        when = f"  {ago(row.updated_at, now)}" if row.updated_at is not None else ""
        return [(f"took {span(seconds)}", "bold"), *_usual(durations, narrow=narrow), (when, _QUIET)]
    late = durations is not None and seconds > durations.p95_s
    so_far = span(seconds) if as_of == now else f"≥{span(seconds)}"
    parts: list[Part] = [(f"{so_far:>7} ", f"{STYLES['warn']} bold" if late else "bold")]
    if durations is not None:
        parts.append((bar(seconds, durations, _BAR[narrow]), STYLES["warn" if late else "busy"]))
    return [*parts, *_usual(durations, narrow=narrow)]


def _usual(durations: RunDurations | None, *, narrow: bool) -> list[Part]:
    if durations is None:
        return [("  first one here to end", _QUIET)]
    median, p95 = span(durations.median_s), span(durations.p95_s)
    return [(f" ~{median} ≤{p95}" if narrow else f"  usually {median}, 95% within {p95}", _QUIET)]


def _cut(parts: list[Part], width: int) -> Content:
    whole = Content.assemble(*parts)
    if whole.cell_length <= width:
        return whole
    cut: list[Part] = []
    room = width
    for text, style in parts:
        piece = Content(text)
        if piece.cell_length >= room:
            cut.append((shorten(text, room) if piece.cell_length > room else text, style))
            break
        cut.append((text, style))
        room -= piece.cell_length
    return Content.assemble(*cut)
