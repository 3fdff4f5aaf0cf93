"""Sheets of the Automations tab: the preview of an action, and the pending approvals, one at a time."""

from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.automations.assembly import Preview
from app.automations.bot import LEASE, process_of
from app.console.automations.loaders import Approval, RulesFile, read_approvals
from app.console.forms.second_press import SecondPress
from app.console.session import Session
from app.console.sheets import Sheet, clicked
from app.text import SafeText, safe_block, safe_text
from app.times import ago
from widgets.after_refresh import after_refresh
from widgets.automations.formatting import request_of, set_off_by, until
from widgets.badges import STYLES
from widgets.forms.pages import RequestPreview

BOX = """
    {name} {{ align: center middle; background: $background 60%; }}
    {name} > Vertical {{
        width: 92; max-width: 96%; height: auto; max-height: 96%; padding: 0 1;
        border: round $warning; border-title-color: $warning; border-subtitle-color: $foreground 70%;
        background: $surface;
    }}
    {name} .keys {{ height: 1; margin-bottom: 1; }}
    {name} RequestPreview {{ height: auto; max-height: 100%; padding: 0; }}
"""


def _keys(*keys: tuple[str, str, str]) -> Static:
    """A line of keys that can be clicked: each key, its words, and its action."""
    parts = [clicked(Content.assemble((key, "$accent bold"), f" {words}"), action) for key, words, action in keys]
    line = Static(Content("    ").join(parts), classes="keys", markup=False)
    # Without link colours, which would be the same for the key and its effect.
    line.auto_links = False
    return line


class PreviewSheet(Sheet[bool]):
    """Shows the exact effect; enter closes without doing anything, so that nothing is done by habit."""

    LEAVE = "answer(False)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,ctrl+enter", "answer(True)", "do it", key_display="^s", id="confirm.yes"),
        Binding("escape,n,q,enter", "answer(False)", "leave it", key_display="esc", id="confirm.no"),
    ]
    CSS = BOX.format(name="PreviewSheet")

    def __init__(self, title: SafeText, verb: str, preview: Preview, consequence: str) -> None:
        """Prepare; `verb` names what the key does."""
        super().__init__()
        self._title = title
        self._verb = verb
        self._preview = preview
        self._consequence = consequence
        self._second_press = SecondPress()

    def compose(self) -> ComposeResult:
        """Compose the keys, always in view, above the request, which may be long."""
        with Vertical() as box:
            box.border_title = Content(self._title)
            yield _keys(
                ("^s", self._verb, "screen.answer(True)"), ("esc", "or enter leaves it", "screen.answer(False)")
            )
            yield RequestPreview()

    def on_mount(self) -> None:
        """Show the request and focus it: it may be long."""
        preview, page = self._preview, self.query_one(RequestPreview)
        page.show(preview.verb, safe_text(preview.target), safe_block(preview.body), Content(self._consequence))
        page.focus()
        after_refresh(self, self._second_press.painted)

    def action_answer(self, answer: bool) -> None:
        """Accept the answer, once the request was seen."""
        if answer and not self._second_press.press():
            self.query_one(Vertical).border_subtitle = f"Look at it first; ^s again {self._verb}"
        else:
            self.dismiss(answer)


class ApprovalsSheet(Sheet[None]):
    """One pending approval after the other, each with its exact request; an answer counts once that was seen."""

    LEAVE = "dismiss(None)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s",
            "answer(True)",
            "approve",
            key_display="^s",
            tooltip="The bot sends it as it is shown",
            id="approvals.approve",
        ),
        Binding("X", "answer(False)", "reject", tooltip="It is never sent", id="approvals.reject"),
        Binding("right,n", "step(1)", "next", show=False, id="approvals.next"),
        Binding("left,p", "step(-1)", "previous", show=False, id="approvals.previous"),
        Binding("escape,q", "dismiss(None)", "close", key_display="esc", id="approvals.close"),
    ]
    CSS = BOX.format(name="ApprovalsSheet") + "ApprovalsSheet #approval { height: auto; margin-bottom: 1; }"

    def __init__(self, session: Session, file: RulesFile, first: int | None) -> None:
        """Prepare; the decision `first` is shown first."""
        super().__init__()
        self._session = session
        self._file = file
        self._number = first
        """The decision on show."""
        self._waiting: tuple[Approval, ...] = ()
        self._second_press = SecondPress()

    def compose(self) -> ComposeResult:
        """Compose the heading and the keys, always in view, above the request, which may be long."""
        with Vertical():
            yield Static(id="approval", markup=False)
            yield _keys(
                ("^s", "approve", "screen.answer(True)"),
                ("X", "reject", "screen.answer(False)"),
                ("← →", "another", "screen.step(1)"),
                ("esc", "close", "screen.dismiss(None)"),
            )
            yield RequestPreview()

    async def on_mount(self) -> None:
        """Read the approvals, and again after each change."""
        self.query_one(RequestPreview).focus()
        self._session.engine_changed.subscribe(self, lambda _: self.run_worker(self._read(), exclusive=True))
        self.set_interval(1.0, self._tick)
        await self._read()

    @property
    def _index(self) -> int:
        numbers = [each.decision.decision_id for each in self._waiting]
        return numbers.index(self._number) if self._number in numbers else 0

    def action_step(self, step: int) -> None:
        """Show the next approval."""
        if self._waiting:
            self._show((self._index + step) % len(self._waiting))

    def action_answer(self, is_approved: bool) -> None:
        """Approve or reject, once the request was seen."""
        if not self._waiting:
            return
        if not self._second_press.press():
            again = "^s again approves it" if is_approved else "X again rejects it"
            self.query_one(Vertical).border_subtitle = f"Look at it first; {again}"
            return
        self.run_worker(self._answer(self._waiting[self._index], is_approved=is_approved))

    async def _answer(self, approval: Approval, *, is_approved: bool) -> None:
        await self._session.guard(self._settle, approval, is_approved=is_approved)
        await self._read()

    async def _settle(self, approval: Approval, *, is_approved: bool) -> None:
        engine, number = await self._session.opened(), approval.decision.decision_id
        state, login = engine.usable_state(), engine.actions.actor.rpartition(":")[2]
        name = safe_text(approval.decision.rule, limit=60)
        if is_approved:
            done = await state.take(number, "waiting", "approved", f"approved by {login}")
            bot = process_of(await state.lease_owner(LEASE, engine.clock()))
            start = f"It is sent as soon as a bot is running: {self._file.settings.command_line} watch"
            said = f"Approved: {name}. {start if bot is None else 'The bot sends it.'}"
        else:
            done = await state.reject(number, f"rejected by {login}", engine.clock())
            said = f"Rejected: {name}."
        self._session.notify(said if done else f"{name} no longer waits: its journal says what became of it.")

    async def _read(self) -> None:
        engine = await self._session.opened()
        waiting = await self._session.guard(read_approvals, engine, self._file.settings)
        if waiting is None or waiting == self._waiting:
            return
        self._waiting = waiting
        if waiting:
            self._show(self._index)
        else:
            self.dismiss(None)

    def _show(self, index: int) -> None:
        approval, box, page = self._waiting[index], self.query_one(Vertical), self.query_one(RequestPreview)
        path, body = request_of(approval.decision)
        self._number = approval.decision.decision_id
        box.border_title = f"Waiting for approval, {index + 1} of {len(self._waiting)}"
        box.border_subtitle = ""
        self.query_one("#approval", Static).update(_heading(approval, self._session.clock()))
        if path:
            page.show("POST", path, body, Content("The bot sends this, byte for byte, within seconds of its approval."))
        else:
            page.show("", approval.sentence, (), Content("The bot does this within seconds of its approval."))
        self._second_press.forget()
        after_refresh(self, self._second_press.painted)

    def _tick(self) -> None:
        if self._waiting:
            heading = _heading(self._waiting[self._index], self._session.clock())
            self.query_one("#approval", Static).update(heading)


def _heading(approval: Approval, now: datetime) -> Content:
    """The rule, since and until when it waits, and its cause."""
    decision = approval.decision
    end = decision.decided_at + approval.expires
    asked, expires = ago(decision.decided_at, now), until(end, now) if end > now else "now"
    return Content.assemble(
        (f"! {safe_text(decision.rule, limit=100)}", f"{STYLES['warn']} bold"),
        (f"\nasked {asked}, expires {expires}; set off by ", STYLES["quiet"]),
        set_off_by(decision, now),
    )
