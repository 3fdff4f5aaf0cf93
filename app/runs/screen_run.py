"""One run on the whole screen, and its conversation: its turns, the runs on the same branch, and a reply box."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget

from app.api.network import Network
from app.console.feeds import CoalescedTask
from app.console.session import FIX_TOAST_S, Session
from app.console.sheets import ChoiceSheet
from app.engine.events import ActionChanged, Event, FilesChangedElsewhere, RunsChanged
from app.engine.text import safe_text
from app.results.screen_changes import ChangesPart, artifact_sheet
from app.results.screen_log import LogPart
from app.results.screen_review import ReviewPart
from app.results.source import Results
from app.runs.screen_actions import RETRY, RUN_BINDINGS, RunActions, keys_for, using_engine
from app.runs.screen_loader import read_run
from app.runs.screen_subject import NO_TURNS, RunPart, RunSubject
from storage.records.results import Artifact, RunTurns
from widgets.forms.inputs import ParagraphInput
from widgets.frame import Tab
from widgets.kit import hidden
from widgets.kit.badges import STYLES
from widgets.kit.line_text import LinePane
from widgets.runs import facts
from widgets.runs.conversation import figures_line, turn_lines, with_sent_instructions
from widgets.runs.pane import RunBar, RunTitle

if TYPE_CHECKING:
    from app.engine.engine import Engine

PARTS: Final = tuple(
    Tab(title.lower(), key, title, title, title)
    for key, title in (("C", "Conversation"), ("r", "Review"), ("d", "Changes"), ("l", "Log"))
)


class ReplyBox(ParagraphInput):
    """The box for the next instructions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "screen.send_reply", "preview, then send", id="reply.send"),
        Binding("escape", "screen.leave_reply", "leave", id="reply.leave"),
    ]


class ConversationPart(RunPart):
    """The turns, and the facts and neighbours."""

    WIDE = 120
    body: LinePane

    DEFAULT_CSS = Path(__file__).with_name("conversation.tcss").read_text("utf-8")

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self.body = LinePane(self._lines, id="run-turns")
        self._beside = LinePane(self._about, id="run-beside")
        self.reply = ReplyBox(placeholder="Reply: what should it do next?  ctrl+s preview and send", compact=True)
        self.reply.display = not self.session.profile.read_only

    def compose(self) -> ComposeResult:
        with Horizontal(id="run-talk"):
            yield self.body
            yield self._beside
        yield self.reply

    def show(self) -> None:
        self.body.paint()
        self._beside.paint()

    def tick(self, now: datetime) -> None:
        del now
        self.show()

    def _lines(self, width: int) -> list[Content]:
        subject = self.subject
        view = self.subject.view
        if view is None:
            return [Content.styled(f"{safe_text(subject.run_id)} is not in the cache.", facts.QUIET)]
        now = self.session.run_now()
        as_of = self.session.vitals.as_of or now
        known = subject.turns
        lines = list[Content]()
        turns = with_sent_instructions(known.turns, view.turns)
        if turns:
            source = "from the service" if known.source == "service" else "from git"
            note = f"{source} · {safe_text(known.note)}" if known.note else source
            lines += facts.heading("Conversation", note) + turn_lines(turns, now, as_of, width)
            for posting in known.notable_postings:
                lines += facts.wrap_text(safe_text(str(posting)), width, facts.QUIET)
        if not turns or (view.turns and any(turn.instructions is None for turn in turns)):
            lines += facts.heading("Sent from this machine") + facts.conversation(view, now, width)
        if subject.turns_problem:
            lines += facts.wrap_text(safe_text(subject.turns_problem, limit=2_000), width, STYLES["quiet"])
        if self.has_class("-wide"):
            return lines[1:]
        return [*lines[1:], Content(), *self._about(width)]

    def _about(self, width: int) -> list[Content]:
        subject = self.subject
        view = self.subject.view
        if view is None:
            return []
        now = self.session.run_now()
        as_of = self.session.vitals.as_of or now
        lines = facts.heading("Timeline", "as observed, to scale")[1:] + facts.timeline(view, now, as_of, width)
        lines += [*facts.heading("Facts"), *facts.fields(view, now, as_of, width, subject.turns.agent), Content()]
        label = safe_text(view.detail.run.repository.label)
        lines += [Content.styled(label, facts.HEADING), figures_line(subject.figures)]
        return lines + facts.branch(view, now, width, " · ] older [ newer")


class RunScreen(RunActions):
    """One run: its conversation, review, changes and log."""

    TAB = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("C", "part('conversation')", "conversation", id="run.conversation"),
        hidden("O", "artifacts", "artifacts", tooltip="Save or read files that its agent left", id="run.artifacts"),
        hidden("shift+right", "beside_part(1)", "next part", id="run.next_part"),
        hidden("shift+left", "beside_part(-1)", "previous part", id="run.prev_part"),
        Binding("greater_than_sign", "turn(1)", "next turn", tooltip="Show the next turn", id="run.next_turn"),
        hidden("less_than_sign", "turn(-1)", "previous turn", id="run.prev_turn"),
        *RUN_BINDINGS,
        RETRY,
        Binding("escape,backspace", "back", "back", key_display="esc", tooltip="Back to the runs", id="run.back"),
        Binding("right_square_bracket", "beside(1)", "older", tooltip="Older run of the branch", id="run.older"),
        Binding("left_square_bracket", "beside(-1)", "newer", tooltip="Newer run of the branch", id="run.newer"),
    ]

    def __init__(self, session: Session, run_id: str, part: str) -> None:
        super().__init__(session)
        engine = session.open_engine
        results = Results(engine.settings, engine.extension, Network.of(engine.profile))
        self._subject = subject = RunSubject(session, run_id, results)
        self._title, self._bar = RunTitle(), RunBar(PARTS)
        self._reader = CoalescedTask(self._read, self.run_worker)
        self._turns_reader = CoalescedTask(self._read_turns, self.run_worker)
        self._turns_of: object = None
        """The run as of the last reading of its turns."""
        self._conversation, self._changes = ConversationPart(subject), ChangesPart(subject)
        self._parts: dict[str, RunPart] = {
            "conversation": self._conversation,
            "review": ReviewPart(subject),
            "changes": self._changes,
            "log": LogPart(subject),
        }
        self._current = part
        self._is_from_finding = False

    def compose_body(self) -> Iterable[Widget]:
        yield self._title
        yield self._bar
        for name, part in self._parts.items():
            part.display = name == self._current
            yield part

    def on_mount(self) -> None:
        self._part.body.focus()
        self._reader.ask()

    @property
    def focused_run_id(self) -> str | None:
        return self._subject.run_id

    @property
    def _is_active(self) -> bool:
        return (detail := self._subject.detail) is None or not detail.is_final

    @property
    def _part(self) -> RunPart:
        return self._parts[self._current]

    def engine_changed(self, event: Event) -> None:
        if isinstance(event, RunsChanged | ActionChanged | FilesChangedElsewhere):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        self._part.tick(now)

    # Keys

    @property
    def keys_now(self) -> "dict[str, str]":
        detail = self._subject.detail
        keys = {} if detail is None else keys_for(detail.run.status, detail.summary, is_final=detail.is_final)
        keys |= {"apply": ""} if self._current == "changes" else {}
        keys |= {"artifacts": ""} if self._artifacts else {}
        return {action: words for action, words in keys.items() if not action.startswith("part(")}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        name = str(parameters[0]) if parameters else ""
        if action in {"cancel_run", "follow_run"} and not self._is_active:
            return False
        if action == "turn":
            return self._subject.last_turn > 1
        if action == "artifacts":
            return bool(self._artifacts)
        if action == "beside":
            return self._subject.neighbour(int(name)) is not None
        return super().check_action(action, parameters)

    def action_continue_run(self) -> None:
        self.action_part("conversation")
        self._conversation.reply.focus()

    def action_beside_part(self, step: int) -> None:
        names = list(self._parts)
        self.action_part(names[(names.index(self._current) + step) % len(names)])

    def action_back(self) -> None:
        """Go back to the findings if one led here, otherwise to the screen that opened the run."""
        if self._is_from_finding:
            self.action_part("review")
        else:
            self.dismiss()

    def action_beside(self, step: int) -> None:
        if (run_id := self._subject.neighbour(step)) is not None:
            self._subject.run_id = run_id
            self._subject.turn = None
            self._subject.turns = NO_TURNS
            self._subject.turns_problem = ""
            self._reader.ask()

    def action_turn(self, step: int) -> None:
        # The whole run comes before the first turn.
        turn = min(max(0, (self._subject.turn or 0) + step), self._subject.last_turn) or None
        if turn != self._subject.turn:
            self._subject.turn = turn
            self._show_place()
            self._part.show()

    @property
    def _artifacts(self) -> "list[tuple[int, Artifact]]":
        """The artifacts of the selected turn, or of all turns, the newest first, each with its turn."""
        turns = [turn for turn in self._subject.turns.turns[::-1] if self._subject.turn in {None, turn.number}]
        return [(turn.number, artifact) for turn in turns for artifact in turn.artifacts]

    @work(exclusive=True, group="pick")
    async def action_artifacts(self) -> None:
        choices = [
            (Content(f"{safe_text(artifact.name)}  turn {turn}  {artifact.bytes:,} bytes"), (turn, artifact))
            for turn, artifact in self._artifacts
        ]
        if (chosen := await self.app.push_screen_wait(ChoiceSheet("Artifacts", choices))) is not None:
            sheet = artifact_sheet(self.app, self._subject.results, self._subject.run_id, *chosen)
            if outcome := await self.app.push_screen_wait(sheet):
                self.session.notify(outcome, timeout=FIX_TOAST_S)

    @on(ReviewPart.FindingChosen)
    def show_finding(self, message: ReviewPart.FindingChosen) -> None:
        self.action_part("changes")
        self._is_from_finding = True
        self._changes.go_to(message.finding.path, message.finding.line)

    @on(ChangesPart.NotFound)
    def return_to_finding(self, message: ChangesPart.NotFound) -> None:
        """Go back to the finding and explain there why it leads nowhere."""
        if self._current == "changes":
            self.action_part("review")
        self.session.notify(f"{message.path} is not among the changed files. {message.reason}")

    # Reply

    def action_leave_reply(self) -> None:
        self._conversation.body.focus()

    @using_engine("form")
    async def action_send_reply(self, engine: "Engine") -> None:
        from app.actions.screen_writes import ContinueRunForm

        text = self._conversation.reply.text
        detail = await engine.cache.detail(self._subject.run_id)
        if detail is None or not text.strip():
            self.session.notify("Nothing to send: type what it should do next.", severity="warning")
            return
        finals = await engine.cache.final_statuses()
        form = ContinueRunForm(engine, detail.run, final_statuses=finals, instructions=text)
        action = await self.app.push_screen_wait(form)
        self.form_closed(action)
        if form.is_waiting or (action is not None and action.state == "confirmed"):
            self._conversation.reply.clear()
            self.action_leave_reply()
            # The form notifies about a reply that waits until the run finishes.
            if not form.is_waiting:
                self.session.notify("Sent. The agent's progress appears here.")

    # Display

    def action_part(self, name: str) -> None:
        self._part.stop_reading()
        self._part.display = False
        self._current = name
        self._is_from_finding = False
        self._part.display = True
        self._part.show()
        self.refresh_bindings()
        self._part.body.focus()
        self._show_place()

    def _show_place(self) -> None:
        subject = self._subject
        self._title.run_id = subject.run_id
        self._title.view = subject.view
        self._bar.current = self._current
        self._bar.turn = subject.turn
        self._bar.turns = subject.last_turn

    async def _read(self) -> None:
        engine = self.session.engine
        subject = self._subject
        if engine is None:
            return
        stuck = subject.run_id in await engine.cache.stuck()
        subject.view = view = await read_run(engine, subject.run_id, stuck=stuck)
        label = subject.detail.run.repository.label if subject.detail is not None else ""
        if label and (subject.figures is None or subject.figures.repository != label):
            figures = await engine.cache.repository_figures(self.session.run_now() - timedelta(days=30))
            subject.figures = next((each for each in figures if each.repository == label), None)
        self._show_place()
        self.refresh_bindings()
        self._conversation.show()
        if self._current != "conversation":
            self._part.show()
        if view is not None and self._turns_of != (state := (view.detail.run, len(view.turns))):
            self._turns_of = state
            self._turns_reader.ask()

    async def _read_turns(self) -> None:
        subject = self._subject
        detail = self._subject.detail
        if detail is None:
            return
        turns = await subject.results.turns(detail)
        before = subject.last_turn
        if detail.run.run_id != subject.run_id:
            return
        subject.turns = turns if isinstance(turns, RunTurns) else NO_TURNS
        subject.turns_problem = "" if isinstance(turns, RunTurns) else turns.reason
        if self._is_active and any(turn.outcome for turn in subject.turns.turns[-1:]):
            self.session.poll_soon()  # The run's status comes with the list, which is polled later.
        self._show_place()
        self._conversation.show()
        self.refresh_bindings()
        if self._current == "log" and subject.last_turn != before:
            self._part.show()  # The last turn, and so its log, is known only now.
