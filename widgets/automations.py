"""A rule and its decisions in words: as a row of the table, and as facts next to it."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from app.engine.text import SafeText, safe_block, safe_text
from app.engine.times import ago, clock_time, span, stamp
from storage.records.decision import Decision, Outcome
from widgets.forms.dialog import colour_line
from widgets.forms.facts import FactPane
from widgets.forms.inputs import ParagraphInput
from widgets.kit.badges import STYLES, Badge
from widgets.kit.cells import Column, fit
from widgets.kit.cursor_view import HEADER
from widgets.kit.line_table import LineTable, TableLine, TonedText
from widgets.kit.line_text import ClickableLine, clickable

STRIP: Final = 10
NOTHING: Final = safe_text("—")
Mode = Literal["on", "paused", "off"]
MODES: Final[dict[Mode, Badge]] = {
    "on": Badge("▸", "on", "good"),
    "paused": Badge("‖", "paused", "warn"),
    "off": Badge("-", "off", "quiet"),
}
OUTCOMES: Final[dict[Outcome, Badge]] = {
    "done": Badge("●", "done", "good"),
    "failed": Badge("✗", "failed", "bad"),
    "unknown": Badge("?", "unknown", "warn"),
    "interrupted": Badge("?", "interrupted", "warn"),
    "skipped": Badge("○", "skipped", "quiet"),
    "limited": Badge("○", "limited", "quiet"),
    "history": Badge("○", "history", "quiet"),
    "expired": Badge("⊘", "expired", "quiet"),
    "waiting": Badge("!", "waiting", "warn"),
    "approved": Badge("◌", "approved", "busy"),
    "queued": Badge("◌", "queued", "wait"),
    "acting": Badge("◌", "acting", "busy"),
}
"""`●` acted, `○` did not act, `!` waits for approval, `◌` in progress."""
_NO_RESULT: Final[TonedText] = (safe_text(" "), "quiet")


class RuleView(Struct, frozen=True):
    """One rule and its state."""

    key: str
    mode: Mode
    sentence: SafeText
    limits: SafeText
    paused: SafeText
    upcoming: tuple[datetime, ...] = ()
    """The rule's next times; empty if it waits for an event."""
    journal: tuple[Decision, ...] = ()
    """The decisions in the strip, newest first."""
    waiting: int = 0
    warnings: tuple[SafeText, ...] = ()
    on_run: str = ""
    """The past tense of its action on the triggering run, such as `continued`; empty: it does not act on that run."""
    since: datetime | None = None
    """When the current version of the rule was first seen."""

    def did(self, decision: Decision) -> str:
        """A decision's effect on the run in one word; vague if the rule has been edited since."""
        if decision.result_id != decision.run_id:
            return "made"
        is_same = self.since is not None and decision.decided_at >= self.since
        return (is_same and self.on_run) or "acted on"

    def cells(self, now: datetime) -> TableLine:
        badge = MODES[self.mode]
        upcoming = None
        if self.mode == "on":
            upcoming = next((at for at in self.upcoming if at > now), None)
        coming = NOTHING if upcoming is None else safe_text(until(upcoming, now))
        badges = [OUTCOMES[decision.outcome] for decision in reversed(self.journal[:STRIP])]
        strip = [*[_NO_RESULT] * STRIP, *((safe_text(result.glyph), result.tone) for result in badges)][-STRIP:]
        state: TonedText = (safe_text(badge.text), badge.tone)
        return state, (safe_text(self.key, limit=100), "plain"), (self.sentence, "quiet"), (coming, "plain"), *strip

    def facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        badge = MODES[self.mode]
        off = "; press E and set enabled = true"
        reason = {"on": "", "paused": f" {self.paused}; press P to resume", "off": off}[self.mode]
        yield "automation", (safe_text(self.key, limit=100), "plain")
        yield "state", (safe_text(f"{badge.text}{reason}"), badge.tone)
        if self.waiting:
            yield "approval", (safe_text(f"! {self.waiting} to approve or reject: press V"), "warn")
        yield "does", (self.sentence, "plain")
        yield "limits", (self.limits, "quiet")
        for line in self.warnings:
            yield "warning", (safe_text(f"▲ {line}", limit=600), "warn")
        times = [at for at in self.upcoming if at > now] if self.mode == "on" else []
        for index, at in enumerate(times):
            text = f"{stamp(at)}{f', {until(at, now)}' if index == 0 else ''}"
            yield "" if index else "next", (safe_text(text), "plain")

    def below_facts(self, _now: datetime) -> Content:
        """Empty: the pane loads the journal itself."""
        return Content()


def until(at: datetime, now: datetime) -> str:
    """The time left: `in 4m`, `in 5h12m`, `in 2d03h`."""
    seconds = (at - now).total_seconds()
    if seconds < 0 or seconds >= 60:
        return f"in {span(seconds)}"
    return "in a moment"


def journal_lines(
    journal: tuple[Decision, ...], now: datetime, width: int, did: Callable[[Decision], str] = lambda _: "made"
) -> list[Content]:
    """The decisions, each with its cause on one line and the reason on the next."""
    lines: list[Content] = []
    for decision in journal:
        badge = OUTCOMES[decision.outcome]
        head = (f"{badge.text:<13} ", badge.style), (f"{ago(decision.decided_at, now):<9} ", STYLES["quiet"])
        lines.append(Content.assemble(*head, fit(set_off_by(decision, now), max(8, width - 24)).rstrip()))
        result = ""
        if decision.result_id:
            result = f"{did(decision)} {safe_text(decision.result_id)}"
        answer = decision.answer
        answered = ""
        if answer is not None:
            answered = safe_text(f"{answer.text}, {clock_time(answer.at, now)}")
        reason = "" if answer is not None and decision.reason == answer.text else safe_text(decision.reason, limit=400)
        if why := "; ".join(filter(None, (result, answered, reason))):
            lines.append(Content.styled(f"{'':<14}{why}", STYLES["quiet"]))
    return lines


def set_off_by(decision: Decision, now: datetime) -> SafeText:
    occurrence = decision.occurrence
    at = "" if occurrence.facts.keys() - {"key"} else f", {clock_time(occurrence.at, now)}"
    return safe_text(f"{occurrence.cause}{at}", limit=200)


def runs_of(journal: tuple[Decision, ...]) -> dict[str, Decision]:
    """The runs that decisions created or were triggered by, each with its newest decision, newest first."""
    runs: dict[str, Decision] = {}
    for decision in journal:
        for run_id in (decision.result_id, decision.run_id):
            if run_id:
                runs.setdefault(run_id, decision)
    return runs


def request_of(decision: Decision) -> tuple[SafeText, tuple[SafeText, ...]]:
    if decision.request_json is None:
        return safe_text(""), ()
    request = json.loads(decision.request_json)
    body = json.dumps(request.get("body"), indent=2, ensure_ascii=False)
    return safe_text(str(request.get("path", ""))), safe_block(body, limit=100_000)


class Mistake(Struct, frozen=True):
    """A problem in the text."""

    location: SafeText
    """Line and key; empty: the problem is in no single line."""
    message: SafeText
    fix: SafeText


class RuleEditor(Widget):
    """The text next to its meaning."""

    DEFAULT_CSS = Path(__file__).with_name("automations.tcss").read_text("utf-8")

    def __init__(self) -> None:
        super().__init__()
        self.input = ParagraphInput(show_line_numbers=True, tab_behavior="focus", soft_wrap=True)

    def compose(self) -> ComposeResult:
        yield self.input
        with VerticalScroll(can_focus=False):
            yield Static(markup=False)

    def fill(self, text: str) -> None:
        """Replace the text, with undo, and move the cursor to the first missing value."""
        self.input.replace(text, (0, 0), self.input.document.end)
        lines = enumerate(text.splitlines())
        self.input.move_cursor(next(((row, line.index('""') + 1) for row, line in lines if '""' in line), (0, 0)))

    def show(self, result: RuleView | Mistake, now: datetime) -> None:
        quiet = STYLES["quiet"]
        if isinstance(result, Mistake):
            heading = Content.styled(f"✗ {result.location or 'not a valid rule'}", f"{STYLES['bad']} bold")
            lines = [heading, Content(result.message), Content.styled(result.fix, quiet)]
        else:
            off = " Disabled: enabled = false." if result.mode == "off" else ""
            lines = [Content.assemble(("✓ ", STYLES["good"]), result.sentence, (off, STYLES["warn"]))]
            lines.append(Content.styled(result.limits, quiet))
            lines += [Content.styled(f"▲ {line}", STYLES["warn"]) for line in result.warnings]
            for index, at in enumerate(result.upcoming):
                lines.append(Content.assemble(("     " if index else "next ", quiet), f"{stamp(at)}  {until(at, now)}"))
        self.query_one(Static).update(Content("\n").join(lines))


COLUMNS: Final = (
    Column("state", 8),
    Column("automation", 12, grows=3, most=30),
    Column("does", 8, grows=2),
    Column("next", 10),
    *(Column(letter, 1, gap=0) for letter in f"{'results':>{STRIP}}"),
)


class RuleTable(LineTable[RuleView]):
    """A row for each rule."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line per rule if there is room; the pane gets the rest."""
        del container, viewport, width
        return HEADER + self.total


class RulePane(FactPane[RuleView], can_focus=True):
    """One rule: its facts, its journal and its TOML."""

    def __init__(self) -> None:
        super().__init__()
        self._journal: tuple[Decision, ...] = ()
        self._written: tuple[SafeText, ...] = ()
        self._now: datetime | None = None

    def show_more(self, journal: tuple[Decision, ...], written: tuple[SafeText, ...], now: datetime) -> None:
        """Show the rule's journal and its TOML; empty: unknown."""
        self._journal = journal
        self._written = written
        self.tick(now)

    def on_resize(self) -> None:
        if self._now is not None:
            self.tick(self._now)

    def below_facts(self, item: RuleView, now: datetime) -> Content:
        self._now = now
        journal = journal_lines(self._journal, now, self.scrollable_content_region.width - 4, item.did)
        nothing = Content.styled("Nothing has triggered it yet.", STYLES["quiet"])
        parts = [Content.styled("Journal", "$accent bold"), *(journal or [nothing])]
        if self._written:
            parts += [Content(), Content.styled("Definition", "$accent bold"), *map(colour_line, self._written)]
        return Content("\n").join(parts)


class Status(Struct, frozen=True):
    """The content of the line above the table."""

    bot: Badge
    hint: SafeText
    """The bot's process or, without a bot, how to start one."""
    waiting: int = 0


class StatusLine(ClickableLine):
    """Whether a bot is at work, and how many requests wait for approval."""

    status: reactive[Status | None] = reactive(None)
    """None if a bot would have nothing to do."""

    def parts(self) -> Iterator[Content]:
        if (status := self.status) is None:
            return
        yield Content(" ")
        if status.waiting:
            word = "waits" if status.waiting == 1 else "wait"
            waits = (f"! {status.waiting:,} {word} for approval  ", f"{STYLES['warn']} bold"), ("V", "$accent bold")
            yield clickable(Content.assemble(*waits), "screen.approvals")
            yield Content("   ")
        yield Content.assemble((status.bot.text, status.bot.style), (f" {status.hint}", STYLES["quiet"]))
