"""The sheets of the Automations tab: a preview, pending approvals and a replay."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.automations.bot import working_process
from app.automations.replay import SHOWN, WORDS, Replayed, replay
from app.automations.rule import Rule
from app.automations.screen_data import Approval, RulesFile, read_approvals
from app.console.feeds import CoalescedTask
from app.console.session import Session, mark_of
from app.console.sheets import Sheet, key_line, key_words
from app.engine.engine import Engine
from app.engine.files import author_of
from app.engine.text import SafeText, safe_text
from app.engine.times import ago, stamp
from storage.records.decision import AnswerWord, Decision
from widgets.automations import OUTCOMES, journal_lines, request_of
from widgets.forms.dialog import RequestPreview
from widgets.kit import SecondPress, after_refresh, hidden
from widgets.kit.badges import STYLES
from widgets.kit.choice_lists import LeadList, LeadRow
from widgets.kit.line_text import LinePane

JOURNAL: Final = 100


class ApprovalsSheet(Sheet[None]):
    """The pending approvals, oldest first. An answer applies to the marked ones, or to the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "answer('approved')", "approve", tooltip="Let the bot send it as shown", id="approvals.approve"
        ),
        Binding("ctrl+k", "answer('rejected')", "reject", tooltip="Reject it: it is never sent", id="approvals.reject"),
        Binding("space", "mark", "mark", tooltip="Mark several to answer at once", id="approvals.mark"),
        hidden("asterisk", "mark_all", "mark all", id="approvals.mark_all"),
        Binding("enter", "request", "request", tooltip="Show the exact request, or the list", id="approvals.request"),
        Binding("escape,q", "leave", "close", key_display="esc", id="approvals.close"),
    ]

    def __init__(self, session: Session, file: RulesFile, rule: str = "") -> None:
        super().__init__()
        self._session = session
        self._file = file
        self._list = LeadList(id="approvals")
        self._rule = rule
        """The rule whose requests are to be marked; it is empty once they are."""
        self._waiting: dict[str, Approval] = {}
        self._marked: set[str] = set()
        self._answer: tuple[dict[str, Approval], AnswerWord] | None = None
        self._answered: SafeText | None = None
        """The result of the last answer, shown above the list: a toast would cover the remaining requests."""
        self._is_swapped = False
        """Whether another process has changed the requests that a key would answer, since the last key."""
        self._reading = CoalescedTask(self._read, self.run_worker)
        self._second_press = SecondPress()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(id="answered", markup=False)
            yield key_line()
            yield self._list
            yield RequestPreview()

    async def on_mount(self) -> None:
        self._list.focus()
        self._session.engine_changed.subscribe(self, lambda _: self._reading.ask())
        self.set_interval(1.0, lambda: self._list.show(self._rows))
        await self._read()
        after_refresh(self, self._second_press.start_pause)

    @property
    def _chosen(self) -> dict[str, Approval]:
        """The marked approvals; without marks, the one under the cursor."""
        keys = {"" if self._list.row is None else self._list.row.key}
        return {key: approval for key, approval in self._waiting.items() if key in (self._marked or keys)}

    def action_answer(self, word: AnswerWord) -> None:
        """Approve or reject once the list has been on screen for a moment."""
        is_meant = self._second_press.press() and not self._is_swapped
        self._is_swapped = False
        if not is_meant:
            again = "^s again to approve" if word == "approved" else "^k again to reject"
            self.query_one(Vertical).border_subtitle = f"Check it, then press {again}"
        elif self._chosen:
            self._answer = self._chosen, word
            self._reading.ask()

    def action_mark(self) -> None:
        if (row := self._list.row) is not None:
            self._marked ^= {row.key}
            self._show()
            if row.key != next(reversed(self._waiting)):
                self._list.action_cursor_down()

    def action_mark_all(self) -> None:
        self._marked = set() if self._waiting.keys() <= self._marked else set(self._waiting)
        self._show()

    @on(LeadList.OptionSelected)
    def action_request(self) -> None:
        is_open = not self.query_one(Vertical).has_class("-open")
        self.query_one(Vertical).set_class(is_open, "-open")
        (self.query_one(RequestPreview) if is_open else self._list).focus()

    def action_leave(self) -> None:
        if self.query_one(Vertical).has_class("-open"):
            self.action_request()
        else:
            self.dismiss(None)

    async def _record(self, approvals: Iterable[Approval], word: AnswerWord) -> SafeText:
        engine = await self._session.opened()
        state = engine.usable_state()
        author = author_of("console")
        done = list[Approval]()
        late = list[Approval]()

        def name_of(some: list[Approval]) -> str:
            if len(some) == 1:
                return safe_text(some[0].decision.rule, limit=60)
            return f"{len(some)} requests"

        for approval in approvals:
            is_in_time = await state.answer(approval.decision.decision_id, word, author)
            (done if is_in_time else late).append(approval)
        sentences = [f"No longer waiting: {name_of(late)}; see the journal."] if late else []
        if done:
            sentences.append(f"{word.capitalize()}: {name_of(done)}.")
        if done and word == "approved":
            bot = await working_process(state, engine.clock())
            start = f"It is sent as soon as a bot is running: {self._file.settings.command_line} watch"
            sentences.append(start if bot is None else "The bot sends it.")
        return safe_text(" ".join(sentences))

    async def _explain_end(self, decision: Decision) -> SafeText:
        engine = await self._session.opened()
        now = await engine.usable_state().decision(decision.decision_id) or decision
        end = "no longer waiting" if now.outcome == "expired" else "answered elsewhere"
        return safe_text(f"{decision.rule}: {end}: {now.reason or now.outcome}.")

    async def _read(self) -> None:
        engine = await self._session.opened()
        chosen = self._chosen
        answered = dict[str, Approval]()
        if self._answer is not None:
            (answered, word), self._answer = self._answer, None
            self._answered = await self._session.guard(self._record, answered.values(), word)
        waiting = await self._session.guard(read_approvals, engine, self._file.settings)
        if waiting is None or waiting == self._waiting:
            return
        changed = {key for key, approval in chosen.items() if waiting.get(key) != approval and key not in answered}
        if gone := [chosen[key] for key in chosen if key in changed and key not in waiting]:
            self._answered = await self._session.guard(self._explain_end, gone[0].decision)
        self._waiting = waiting
        self._marked &= waiting.keys()
        if own := [key for key, approval in waiting.items() if approval.decision.rule == self._rule]:
            self._list.seek(own[0])
            self._marked = {*own} if len(own) > 1 else set()
            self._rule = ""
        if not waiting:
            if self._answered:
                self._session.notify(self._answered)
            self.dismiss(None)
            return
        self._show()
        self._is_swapped = bool(changed) and any(chosen.get(key) != approval for key, approval in self._chosen.items())

    @on(LeadList.OptionHighlighted)
    def _show(self) -> None:
        self._list.show(self._rows)
        box = self.query_one(Vertical)
        row = self._list.row
        several = len(self._marked)
        marked = f", {several} marked" if several else ""
        mark_of(self._session).entitle(box, f"Waiting for approval: {len(self._waiting)}{marked}")
        box.border_subtitle = ""
        number = f" {several}" if several else ""
        self.query_one(".keys", Static).update(
            key_words(
                ("^s", f"approve{number}", "screen.answer('approved')"),
                ("^k", f"reject{number}", "screen.answer('rejected')"),
                ("space", "mark", "screen.mark"),
                ("enter", "request", "screen.request"),
                ("esc", "close", "screen.leave"),
            )
        )
        answered = self.query_one("#answered", Static)
        answered.display = bool(self._answered)
        answered.update(f"{self._answered}\n")
        if here := self._waiting.get("" if row is None else row.key):
            path, body = request_of(here.decision)
            sends = "The bot sends this, byte for byte" if path else "The bot does this"
            since = ago(here.decision.decided_at, self._session.clock())
            consequence = Content(f"Asked {since}. {sends}, within seconds of its approval.")
            self.query_one(RequestPreview).show("POST" if path else "", path or here.words, body, consequence)

    def _rows(self, width: int) -> list[LeadRow]:
        now = self._session.clock()
        return [
            LeadRow(approval.lines(now, width, is_marked=key in self._marked), key, leads=True)
            for key, approval in self._waiting.items()
        ]


HISTORY: Final = timedelta(days=30)
BEAT_S: Final = 0.2
BAR: Final = 30


class _StoppedError(Exception):
    """Stops a replay whose sheet was closed."""


class ReplaySheet(Sheet[None]):
    """Shows the progress of a replay, then how often and when the rule would have acted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "close", key_display="esc", id="replay.close")
    ]

    def __init__(self, engine: Engine, rule: Rule) -> None:
        super().__init__()
        # Replay a disabled rule as if it were enabled, so that it can be tried first.
        self._rule = replace(rule, is_on=True)
        self._engine = engine
        self._now = engine.clock()
        self._reached = self._now - HISTORY
        self._is_done = False
        self._count: Sequence[Content] = ()
        self._newest: tuple[Decision, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(
                f"What {safe_text(self._rule.name, limit=80)} would have done in {HISTORY.days} days"
            )
            box.border_subtitle = "esc close"
            yield LinePane(lambda width: [*self._count, *journal_lines(self._newest, self._now, width)])

    def on_mount(self) -> None:
        self.query_one(LinePane).focus()
        self.set_interval(BEAT_S, self.beat)
        self.beat()
        self.run_worker(self._replay())

    def on_unmount(self) -> None:
        """Stop the replay at its next moment."""
        self._is_done = True

    def beat(self) -> None:
        if not self._is_done:
            share = (self._reached - self._now + HISTORY) / HISTORY
            bar = f"{'▰' * int(share * BAR):▱<{BAR}}"
            self._show(Content.assemble((bar, STYLES["busy"]), f" {share:.0%}  esc stop"))

    async def _replay(self) -> None:
        since = self._now - HISTORY

        def note_progress(moment: datetime) -> None:
            if self._is_done:
                raise _StoppedError
            self._reached = moment

        def work() -> Replayed:
            return asyncio.run(replay(self._engine, (self._rule,), since, self._now, note_progress))[self._rule.name]

        try:
            # On a separate thread and event loop: a long history must not delay keys.
            result = await asyncio.to_thread(work)
        except _StoppedError:
            return
        completeness = ""
        if result.held_since is None:
            completeness = "\nThe cached history of that time may be incomplete: there may have been more."
        elif result.held_since > since:
            completeness = f"\nThe history is complete since {stamp(result.held_since)}."
        self._is_done, self._newest = True, result.newest
        counts = Content("Nothing would have triggered it.")
        if total := sum(result.counts.values()):
            parts = [
                Content.styled(f"{badge.glyph} {count:,} {WORDS.get(outcome, badge.word)}", badge.style)
                for outcome, badge in OUTCOMES.items()
                if (count := result.counts.get(outcome))
            ]
            times = "once" if total == 1 else f"{total:,} times"
            newest = f"\nThe newest {SHOWN} of them:" if total > SHOWN else ""
            counts = Content.assemble((f"Triggered {times}: ", "bold"), Content("   ").join(parts), newest)
        self._show(Content.assemble(counts, (completeness, STYLES["quiet"]), "\n"))

    def _show(self, content: Content) -> None:
        self._count = content.split(allow_blank=True)
        self.query_one(LinePane).paint()
