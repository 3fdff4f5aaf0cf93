"""The conversation: its turns, the runs on the same branch, and a reply box."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message

from app.engine.text import safe_text
from app.runs.screen_subject import RunPart, RunSubject
from widgets.forms.inputs import ParagraphInput
from widgets.kit.badges import STYLES
from widgets.kit.line_text import LinePane
from widgets.runs import facts
from widgets.runs.conversation import figures_line, turn_lines, with_sent_instructions

WIDE: Final = 120
"""Columns needed for facts and neighbours next to the conversation."""


class ReplyBox(ParagraphInput):
    """The box for the next instructions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "preview, then send", id="reply.send"),
        Binding("escape", "leave", "leave", id="reply.leave"),
    ]

    @dataclass
    class Sent(Message):
        """The reply is ready for its preview."""

        text: str

    class Left(Message):
        """The box was left."""

    def action_send(self) -> None:
        """Post the reply."""
        self.post_message(self.Sent(self.text))

    def action_leave(self) -> None:
        """Leave the box; its text stays."""
        self.post_message(self.Left())


class ConversationPart(RunPart):
    """The turns, and the facts and neighbours."""

    body: LinePane

    DEFAULT_CSS = Path(__file__).with_name("conversation.tcss").read_text("utf-8")

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self.body = LinePane(self._lines, id="run-turns")
        self._beside = LinePane(self._about, id="run-beside")
        self.reply = ReplyBox(placeholder="Reply: what should it do next?  ctrl+s preview and send", compact=True)
        self.reply.display = not self.session.profile.read_only

    def compose(self) -> ComposeResult:
        """Compose the turns, facts and neighbours next to them, and the box below."""
        with Horizontal(id="run-talk"):
            yield self.body
            yield self._beside
        yield self.reply

    def show(self) -> None:
        """Show the turns."""
        self.paint()

    def paint(self) -> None:
        """Show the turns, and the facts and neighbours."""
        self.body.paint()
        self._beside.paint()

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        del now
        self.paint()

    def on_resize(self) -> None:
        """Put facts and neighbours next to the turns, or below them."""
        self.set_class(self.size.width >= WIDE, "-wide")
        self.paint()

    def _lines(self, width: int) -> list[Content]:
        subject, view = self.subject, self.subject.view
        if view is None:
            return [Content.styled(f"{safe_text(subject.run_id)} is not in the cache.", facts.QUIET)]
        now = self.session.run_now()
        as_of = self.session.vitals.as_of or now
        turns = () if subject.turns is None else with_sent_instructions(subject.turns.turns, view.turns)
        lines: list[Content] = []
        if turns:
            source = "from the service" if subject.turns and subject.turns.source == "service" else "from git"
            note = f"{source} · {safe_text(subject.turns.note)}" if subject.turns and subject.turns.note else source
            lines += facts.heading("Conversation", note) + turn_lines(turns, now, as_of, width)
            postings = subject.turns.notable_postings if subject.turns is not None else ()
            for each in postings:
                lines += facts.wrapped(safe_text(str(each)), width, facts.QUIET)
        if not turns or (view.turns and any(turn.instructions is None for turn in turns)):
            lines += facts.heading("Sent from this machine") + facts.conversation(view, now, width)
        if subject.turns_problem:
            lines += facts.wrapped(safe_text(subject.turns_problem, limit=2_000), width, STYLES["quiet"])
        return lines[1:] if self.has_class("-wide") else [*lines[1:], Content(), *self._about(width)]

    def _about(self, width: int) -> list[Content]:
        subject, view = self.subject, self.subject.view
        if view is None:
            return []
        if subject.turns is not None and subject.turns.agent:
            view = replace(view, agent=subject.turns.agent)
        now = self.session.run_now()
        as_of = self.session.vitals.as_of or now
        lines = facts.heading("Timeline", "as observed, to scale")[1:] + facts.timeline(view, now, as_of, width)
        lines += [*facts.heading("Facts"), *facts.fields(view, now, as_of, width), Content()]
        label = safe_text(view.detail.run.repository.label)
        lines += [Content.styled(label, facts.HEADING), figures_line(subject.figures)]
        if view.branch.total > 1:
            note = f"{facts.counted(view.branch.total)} runs · ] older [ newer"
            lines += facts.heading("On this branch", note)
            lines += facts.branch(view, now, width)
        return lines
