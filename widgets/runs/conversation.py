"""A conversation with an agent: its turns from the service, or the messages sent from this machine."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.engine.text import plural, safe_block, safe_text
from app.engine.times import clock_time, span
from storage.records.insights import RepositoryFigures
from storage.records.results import RunTurns, Turn, Unavailable
from widgets.kit import SCROLL_KEYS, after_refresh
from widgets.kit.badges import STYLES, run_badge
from widgets.runs import facts
from widgets.runs.facts import QUIET, Line, SentMessage, line, wrap_text

INDENT: Final = 3
ENDED: Final = ("completed", "failed", "cancelled")
IDLE_FROM_S: Final = 60.0
"""A shorter time between two turns is not worth a line."""
ASKING: Final = "Asking the service for the conversation…"
ONLY_FROM_HERE: Final = "Only messages from this machine; others are unknown."
NONE_FROM_HERE: Final = "The conversation is unknown: nothing was sent from this machine."
UNWRAPPED: Final = 10_000
"""Cells: the view wraps the lines by itself."""


def with_sent_instructions(turns: Sequence[Turn], sent: Sequence[SentMessage]) -> tuple[Turn, ...]:
    """The turns with the instructions sent from here, if the counts match."""
    confirmed = [message for message in sent if message.state == "confirmed"]
    if len(confirmed) != len(turns):
        return tuple(turns)
    return tuple(
        replace(turn, instructions="\n".join(message.text), caller=turn.caller or message.actor)
        if turn.instructions is None
        else turn
        for turn, message in zip(turns, confirmed, strict=True)
    )


def turn_lines(turns: Sequence[Turn], now: datetime, as_of: datetime, width: int) -> list[Line]:
    """All turns, oldest first, with the idle time between them; an active one is timed up to `as_of`."""
    longest = max((_took_s(turn, as_of) or 0.0 for turn in turns), default=0.0)
    lines: list[Line] = []
    ended_at: datetime | None = None
    for turn in turns:
        if lines:
            idle_s = 0.0
            if turn.started_at and ended_at:
                idle_s = (turn.started_at - ended_at).total_seconds()
            lines.append(line((f"┈ idle {span(idle_s)}", QUIET)) if idle_s >= IDLE_FROM_S else line())
        lines += _turn(turn, now, as_of, longest, width)
        ended_at = turn.ended_at
    return lines


def figures_line(figures: RepositoryFigures | None) -> Line:
    """How runs on the repository usually end, and how long they take."""
    if figures is None or figures.success is None:
        return line((" No run has finished here recently.", QUIET))
    p50 = "" if figures.p50_s is None else f", p50 {span(figures.p50_s)}"
    return line((f"{figures.success:.0%}".replace("%", " %"), "bold"), (f" succeed{p50}", ""), ("  30 days", QUIET))


def _turn(turn: Turn, now: datetime, as_of: datetime, longest: float, width: int) -> list[Line]:
    badge = run_badge(turn.state, is_final=turn.state in ENDED)
    took = _took_s(turn, as_of)
    begun = clock_time(turn.started_at, now) if turn.started_at else ""
    caller = f"{safe_text(turn.caller, limit=40)}  " if turn.caller else "", "bold"
    parts = [(f"{turn.number}  ", QUIET), caller, (f"{begun}  ", QUIET), (badge.text, badge.style)]
    if took is not None:
        cells = max(1, round(24 * took / longest)) if longest else 1
        parts += [(f"  {span(took)} ", "bold"), ("━" * min(cells, max(1, width // 4)), badge.style)]
    lines = [line(*parts)]

    def add(text: str, style: str, indent: int = INDENT) -> None:
        for part in safe_block(text, lines=60):
            lines.extend(wrap_text(part, width, style, indent))

    if turn.instructions is None:
        add("Its instructions are unknown.", QUIET)
    else:
        add(turn.instructions, "")
    for message in turn.messages:
        state = "" if message.state == "delivered" else f" ({safe_text(message.state, limit=20)})"
        add(f"{safe_text(message.caller or 'a caller', limit=40)} said{state}: {message.text}", STYLES["warn"])
    if turn.reason:
        add(safe_text(turn.reason), STYLES["bad" if turn.state == "failed" else "quiet"])
    result = [] if turn.commit is None else [f"commit {safe_text(turn.commit[:10])}"]
    result += [plural(turn.files, "file")] if turn.files else []
    counts = [(f"  +{turn.additions:,}", STYLES["good"])] if turn.files and turn.additions is not None else []
    counts += [(f" -{turn.deletions:,}", STYLES["bad"])] if turn.files and turn.deletions is not None else []
    counts += [("  not pushed", STYLES["warn"])] if turn.is_unpushed else []
    counts += [(f"  from turn {turn.from_turn}", QUIET)] if turn.from_turn else []
    counts += [] if turn.usage is None else [(f"  {turn.usage}", QUIET)]
    if result or counts:
        lines.append(line(" " * INDENT, ("→ ", QUIET), (" · ".join(result), QUIET), *counts))
    if turn.summary:
        add(turn.summary, STYLES["plain"], INDENT + 2)
    if turn.artifacts:
        add(f"{plural(len(turn.artifacts), 'artifact')}: O lists them", QUIET)
    if turn.offer:
        add(f"It offers: {safe_text(turn.offer)}", STYLES["warn"])
    return lines


def _took_s(turn: Turn, as_of: datetime) -> float | None:
    if turn.started_at is None or (turn.ended_at is None and turn.state in ENDED):
        return None
    return max(0.0, ((turn.ended_at or as_of) - turn.started_at).total_seconds())


class Conversation(VerticalScroll):
    """The turns from the service, or the messages sent from this machine; the last one in view."""

    DEFAULT_CSS = Path(__file__).with_name("conversation.tcss").read_text("utf-8")
    BINDINGS: ClassVar[list[BindingType]] = [*SCROLL_KEYS]

    def __init__(self) -> None:
        super().__init__()
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._text

    def show(
        self, messages: Sequence[SentMessage], known: RunTurns | Unavailable, now: datetime, service_now: datetime
    ) -> None:
        """Show the turns, oldest first; if unknown, show this machine's messages and why others may be missing."""
        lines: list[Line] = []
        if isinstance(known, RunTurns) and known.turns:
            turns = with_sent_instructions(known.turns, messages)
            lines += turn_lines(turns, service_now, service_now, UNWRAPPED)
            messages = [message for message in messages if message.state != "confirmed"]
        lines += [line()] if lines and messages else []
        lines += facts.messages(messages, now, UNWRAPPED)
        if not isinstance(known, RunTurns) or not known.turns:
            reason = known.reason if isinstance(known, Unavailable) else ""
            source = ONLY_FROM_HERE if messages else NONE_FROM_HERE
            remark = reason if reason == ASKING else f"{source} {reason}"
            lines.append(Content.styled(safe_text(remark.strip()), QUIET))
        self._text.update(Content("\n").join(lines))

        def fit() -> None:
            # A text updated while its page is hidden keeps its old height.
            self._text.refresh(layout=True)
            self.scroll_end(animate=False)

        after_refresh(self, fit)
