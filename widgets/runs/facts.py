"""The facts of one run, and the lines of text that show them: fields, messages, and its statuses over time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from msgspec import Struct
from textual.content import Content

from app.engine.text import SafeText, safe_text
from app.engine.times import ago, clock_time, roughly_ago, span, stamp, start_text
from storage.records import STATUS_BY_NAME, ActionState, RunDetail, RunRow
from storage.records.results import LogTail
from widgets.kit.badges import ACTION_BADGES, STYLES, Badge, run_badge
from widgets.kit.cells import shorten


class SentMessage(Struct, frozen=True):
    """One message sent to the agent from this machine, and its outcome."""

    at: datetime
    actor: SafeText
    state: ActionState
    text: tuple[SafeText, ...]
    trouble: SafeText | None = None
    """Why the run is not confirmed."""


class Branch(Struct, frozen=True):
    """The runs on a run's branch."""

    total: int
    """The number of runs on the branch, counted up to 100."""
    rows: tuple[RunRow, ...] = ()
    """Newest first, the run itself among them."""


class RunView(Struct, frozen=True):
    """One run, as shown in a pane."""

    detail: RunDetail
    turns: tuple[SentMessage, ...] = ()
    """Oldest first."""
    stuck: bool = False
    continues: str | None = None
    """The run whose conversation this one continues, if that has another id."""
    branch: Branch = Branch(0)
    confirmed_for: timedelta = timedelta.max
    """How long a run counts as live after the service confirmed it."""
    retried: str | None = None
    """The run that retries this failure; None: it was not retried from here."""

    log: LogTail | None = None
    """The end of a failed run's log; None: it was not read."""

    def is_live(self, now: datetime) -> bool:
        return now - self.detail.last_seen_at <= self.confirmed_for


LABEL: Final = 13
"""Cells of a field's name, and of a status."""
QUIET: Final = STYLES["quiet"]
HEADING: Final = "$accent bold"
FIELD_LIMIT: Final = 400
READABLE: Final = 100
"""Cells of the longest line of prose: longer ones are hard to read."""
SPAN: Final = 8
"""Cells of a duration."""
BAR_LEAST: Final = 8
"""The fewest cells of a bar."""
BAR_MOST: Final = 64
UNOBSERVED: Final = Badge("·", "unknown", "quiet")
"""The time before the first observation."""
OTHER: Final = "▒"
"""The fill of a status that the spec does not name."""
RESTING: Final = "┈"
"""The fill of the time between a final status and the next turn."""

Line = Content
line: Final = Content.assemble
"""One line of parts; nothing in them is markup."""


def title(view: RunView, now: datetime, width: int) -> list[Line]:
    run = view.detail.run
    badge = run_badge(run.status, is_final=view.detail.is_final)
    when = ago(run.updated_at, now) if run.updated_at is not None else ""
    status = badge.text, f"{badge.style if view.is_live(now) else QUIET} bold"
    stuck = "  ! stuck" if view.stuck else "", STYLES["warn"]
    gap = " " * max(2, width - len(badge.text + stuck[0] + when))
    head = line(status, stuck, gap, (when, QUIET))
    return [head, line((shorten(safe_text(run.run_id), width, "middle"), "bold"))]


def subject(view: RunView, width: int) -> list[Line]:
    """The request, unless the conversation has it, and the result."""
    summary = view.detail.summary
    is_failed = view.detail.run.status == "failed"
    asked = "" if view.turns else safe_text(summary.asked, limit=FIELD_LIMIT)
    result = safe_text(summary.result, limit=FIELD_LIMIT)
    lines = _field("asked", asked, width) if asked else []
    if not result:
        return lines
    if is_failed:
        return lines + _field("reason", result, width, STYLES["bad"])
    return lines + _field("result" if view.detail.is_final else "now", result, width, "")


def log_tail(view: RunView, width: int, max_lines: int) -> list[Line]:
    """Up to this many last lines of a failed run's log; without a log, the reason."""
    tail = view.log
    style = STYLES["bad"]
    if view.detail.run.status != "failed":
        return []
    if tail is None or tail.missing:
        return [*heading("Log"), *wrap_text("Reading…" if tail is None else tail.missing, width, QUIET), line()]
    drawn = [part for text in tail.lines for part in wrap_text(text, width, style if text == tail.why else "")]
    return [*heading("Log", "its end; l opens it"), *drawn[-max_lines:], line()]


def fields(view: RunView, now: datetime, as_of: datetime, width: int, agent: str | None = None) -> list[Line]:
    """The run's fields; an active run is timed up to the last response. No `agent`: as far as the summary has it."""
    detail = view.detail
    run = view.detail.run
    took = None
    if (seconds := detail.took.until(as_of)) is not None:
        took = span(seconds)
        if detail.took.since:
            took = f"{took} so far" if as_of == now else f"at least {took}"
        turns = detail.summary.turns or detail.turns
        took += f", in {turns} turns" if turns > 1 else ""
    facts = (
        ("repository", run.repository.label),
        ("branch", run.branch_name or "(none given)"),
        ("agent", agent or detail.summary.agent),
        ("started", stamp(run.created_at) if run.created_at else "not readable"),
        ("updated", stamp(run.updated_at) if run.updated_at else "not readable"),
        ("took", took),
        ("seen", roughly_ago(detail.last_seen_at, now)),
        ("continues", view.continues),
        ("retried as", view.retried),
    )
    lines = [
        part for name, value in facts if value for part in _field(name, safe_text(value, limit=FIELD_LIMIT), width)
    ]
    doubts = {
        "lost": "The service no longer shows this run: this is its last known state.",
        "unconfirmed": "Missing from the last answer; looking it up. Its status may be old.",
    }
    stale = "" if view.is_live(now) else f"{last_confirmed(view, now)}: it may have changed since."
    doubt = doubts.get(detail.presence, stale)
    return lines + (wrap_text(doubt, width, STYLES["warn"]) if doubt else [])


def conversation(view: RunView, now: datetime, width: int) -> list[Line]:
    """The messages sent to the agent from this machine; the service does not return them."""
    return messages(view.turns, now, width) or wrap_text("No message was sent from this machine.", width, QUIET)


def branch(view: RunView, now: datetime, width: int, keys: str = "") -> list[Line]:
    """The runs on the same branch, newest first, under a title with their number and keys; nothing for one run."""
    if (total := view.branch.total) <= 1:
        return []
    plus = "" if total < 100 else "+"  # Further ones are not counted.
    lines = heading("On this branch", f"{total:,}{plus} runs{keys}")
    for row in view.branch.rows:
        badge = run_badge(row.status, is_final=row.is_final)
        is_current = row.run_id == view.detail.run.run_id
        when = start_text(row.created_at or row.first_seen_at, now)
        run_id = shorten(safe_text(row.run_id), max(8, width - LABEL - 2 - len(when) - 2), "middle")
        name = f"{shorten(badge.text, LABEL - 1):<{LABEL}}", badge.style
        mark = "▸ " if is_current else "  "
        lines.append(line((mark, "$accent"), name, (run_id, "bold" if is_current else ""), (f"  {when}", QUIET)))
    if (hidden := total - len(view.branch.rows)) > 0:
        lines.append(line((f"  and {hidden:,}{plus} more", QUIET)))
    return lines


def heading(text: str, note: str = "") -> list[Line]:
    """A section's title, with a blank line above it."""
    return [line(), line((text, HEADING), ("  ", ""), (note, QUIET))]


def wrap_text(text: str, width: int, style: str = "", indent: int = 0) -> list[Line]:
    """A text as indented lines of at most `width` cells; very long texts are cut."""
    pad = " " * indent
    lines = Content.styled(text, style).wrap(max(8, min(width - indent, READABLE))) if text else [Content()]
    return [Content.assemble(pad, part) for part in lines]


def _field(name: str, value: str, width: int, style: str = "") -> list[Line]:
    first, *rest = wrap_text(value, width - LABEL, style)
    pad = " " * LABEL
    return [Content.assemble((f"{name:<{LABEL}}", QUIET), first), *(Content.assemble(pad, part) for part in rest)]


def last_confirmed(view: RunView, now: datetime) -> str:
    return f"Last confirmed {roughly_ago(view.detail.last_seen_at, now)}"


def messages(sent: Sequence[SentMessage], now: datetime, width: int) -> list[Line]:
    """The messages with a blank line between them: each one's author, time, outcome and text."""
    lines: list[Line] = []
    for number, message in enumerate(sent, 1):
        badge = ACTION_BADGES[message.state]
        when = (f"  {clock_time(message.at, now)}  ", QUIET)
        lines += [line()] if lines else []
        lines.append(line((f"{number}  ", QUIET), (message.actor, "bold"), when, (badge.text, badge.style)))
        for text in message.text:
            lines += wrap_text(text, width, "", 3)
        lines += wrap_text(message.trouble, width, STYLES["bad"], 3) if message.trouble else []
    return lines


class Period(Struct, frozen=True):
    """A time spent in one status."""

    status: str | None
    """None: before the run was first observed."""
    start: datetime
    seconds: float | None
    """None: a final status, which takes no time."""
    is_ongoing: bool = False
    """Whether the period is not over: then `seconds` is as of now."""
    is_final: bool = False
    """Whether the status is final, at the end or between two turns."""

    @property
    def badge(self) -> Badge:
        if self.status is None:
            return UNOBSERVED
        return run_badge(self.status, is_final=self.is_final)


def periods(detail: RunDetail, now: datetime) -> tuple[Period, ...]:
    """The run's periods, oldest first."""
    moves = detail.transitions
    finals = detail.final_statuses
    created = detail.run.created_at
    status = detail.run.status
    start = created or detail.first_seen_at
    periods: list[Period] = []
    if moves:
        # A run first seen as queued was queued since its creation.
        status = moves[-1].new
        first = moves[0]
        start = created if created is not None and first.new == "queued" else first.at
        if created is not None and start > created:
            periods.append(Period(None, created, (start - created).total_seconds()))
    for move, following in pairwise(moves):
        seconds = max(0.0, (following.at - start).total_seconds())
        periods.append(Period(move.new, start, seconds, is_final=move.new in finals))
        start = following.at
    is_final = status in finals
    so_far_s = None if is_final else max(0.0, (now - start).total_seconds())
    return (*periods, Period(status, start, so_far_s, is_ongoing=not is_final, is_final=is_final))


def timeline(view: RunView, now: datetime, as_of: datetime, width: int) -> list[Content]:
    """The observed periods, drawn to scale."""
    seen = periods(view.detail, as_of)
    begin = seen[0].start
    took_s = max((period.start - begin).total_seconds() + (period.seconds or 0.0) for period in seen)
    whole_s = max(1.0, took_s)
    times = max(len(clock_time(period.start, now)) for period in seen) + 1
    room = width - LABEL - times - SPAN - 1
    bar = min(BAR_MOST, room) if room >= BAR_LEAST else 0
    lines = []
    for period in seen:
        # At least one cell, and never beyond the end.
        before = 0
        if bar:
            before = min(round(bar * (period.start - begin).total_seconds() / whole_s), bar - 1)
        cells = 0
        if bar:
            cells = min(max(1, round(bar * (period.seconds or 0.0) / whole_s)), max(1, bar - before))
        fact = STATUS_BY_NAME.get(period.status or "")
        if period.is_final:
            fill = RESTING
        elif fact:
            fill = fact.fill
        else:
            fill = OTHER if period.status else UNOBSERVED.glyph
        tip = "▸" if period.is_ongoing else ""
        drawn = "◆" if period.seconds is None else fill * cells + tip
        badge = period.badge
        status = f"{shorten(badge.text, LABEL - 1):<{LABEL}}", badge.style
        begun = f"{clock_time(period.start, now):<{times}}", QUIET
        took = f"{'' if period.seconds is None else span(period.seconds):>{SPAN - 1}} "
        lines.append(line(status, begun, took, (" " * before + drawn if cells else "", badge.style)))
    if len(seen) > 1:
        suffix = "so far" if seen[-1].is_ongoing else "in all"
        scale = f"└{'─' * max(0, bar - 2)}┘" if bar else ""
        whole = (f"{suffix:<{LABEL + times}}", QUIET), (f"{span(took_s):>{SPAN - 1}} ", "bold"), (scale, QUIET)
        lines.append(line(*whole))
    return lines


def timeline_in_brief(view: RunView, as_of: datetime) -> Content:
    """The timeline on one line: `queued 12s ▸ working 25s ▸ failed`, with the reason if it is known."""
    parts = []
    for period in periods(view.detail, as_of):
        space, took = ("", "") if period.seconds is None else (" ", span(period.seconds))
        parts.append(line((f"{period.badge.word}{space}", period.badge.style), took))
    result = ""
    if view.detail.summary.result:
        result = f": {safe_text(view.detail.summary.result)}"
    return Content.styled(" ▸ ", QUIET).join(parts) + result
