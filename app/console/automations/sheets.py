"""Sheets of the Automations tab: the preview of an action, and the pending approvals."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.automations.assembly import Preview
from app.automations.bot import LEASE, process_of
from app.console.automations.loaders import RulesFile, read_automations
from app.console.forms.second_press import SecondPress
from app.console.session import Session
from app.console.sheets import Sheet, clicked
from app.text import SafeText, safe_block, safe_text
from widgets.after_refresh import after_refresh
from widgets.automations.approvals import Approval, ApprovalCard
from widgets.automations.formatting import request_of
from widgets.forms.pages import RequestPreview

BOX = """
    {name} {{ align: center middle; background: $background 60%; }}
    {name} > Vertical {{
        width: 92; max-width: 96%; height: auto; max-height: 96%; padding: 0 1;
        border: round $warning; border-title-color: $warning; border-subtitle-color: $foreground 70%;
        background: $surface;
    }}
    {name} .keys {{ height: 1; margin-bottom: 1; }}
"""


class PreviewSheet(Sheet[bool]):
    """Shows the exact effect; enter closes without doing anything, so that nothing is done by habit."""

    LEAVE = "answer(False)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,ctrl+enter", "answer(True)", "do it", key_display="^s", id="confirm.yes"),
        Binding("escape,n,q,enter", "answer(False)", "leave it", key_display="esc", id="confirm.no"),
    ]
    CSS = (
        BOX.format(name="PreviewSheet") + "PreviewSheet RequestPreview { height: auto; max-height: 100%; padding: 0; }"
    )

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
            does = clicked(Content.assemble(("^s", "$accent bold"), f" {self._verb}"), "screen.answer(True)")
            leaves = clicked(Content.assemble(("esc", "$accent bold"), " or enter leaves it"), "screen.answer(False)")
            keys = Static(Content("    ").join((does, leaves)), classes="keys", markup=False)
            # Without link colours, which would be the same for the key and its effect.
            keys.auto_links = False
            yield keys
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
    """The pending approvals as cards; each answer is confirmed over the request."""

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
        Binding("j,down", "step(1)", "next", show=False, id="approvals.next"),
        Binding("k,up", "step(-1)", "previous", show=False, id="approvals.previous"),
        Binding("escape,q", "dismiss(None)", "close", key_display="esc", id="approvals.close"),
    ]
    CSS = (
        BOX.format(name="ApprovalsSheet")
        + "ApprovalsSheet VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1;"
        " scrollbar-background: $surface; scrollbar-color: $panel; }"
    )

    def __init__(self, session: Session, file: RulesFile, first: int | None) -> None:
        """Prepare; the decision `first` is shown first."""
        super().__init__()
        self._session = session
        self._file = file
        self._first = first

    def compose(self) -> ComposeResult:
        """Compose one card for each approval."""
        with Vertical() as box:
            box.border_title, box.border_subtitle = "Waiting for approval", "esc closes"
            yield VerticalScroll(can_focus=False)

    async def on_mount(self) -> None:
        """Read the approvals, and again after each change."""
        self._session.engine_changed.subscribe(self, lambda _: self.run_worker(self._read(), exclusive=True))
        self.set_interval(1.0, self._tick)
        await self._read()

    def action_step(self, step: int) -> None:
        """Go to the next card."""
        self.focus_next(ApprovalCard) if step > 0 else self.focus_previous(ApprovalCard)

    def action_answer(self, is_approved: bool) -> None:
        """Ask to confirm approving or rejecting the card in focus."""
        card = self.focused if isinstance(self.focused, ApprovalCard) else next(iter(self.query(ApprovalCard)), None)
        if card is not None:
            self._ask(ApprovalCard.Answered(card.approval, is_approved))

    @on(ApprovalCard.Answered)
    def _ask(self, message: ApprovalCard.Answered) -> None:
        approval, is_approved = message.approval, message.is_approved

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self.run_worker(self._answer(approval, is_approved=is_approved))

        name = safe_text(approval.decision.rule, limit=60)
        verb, then = ("approves it", "The bot sends this, byte for byte, at its next look, within seconds.")
        if not is_approved:
            verb, then = "rejects it", "This is never sent."
        title = safe_text(f"{'Approve' if is_approved else 'Reject'}: {name}")
        path, body = request_of(approval.decision)
        preview = Preview("POST", path, "\n".join(body)) if path else Preview("", approval.sentence, "")
        self.app.push_screen(PreviewSheet(title, verb, preview, then), answered)

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

    async def _waiting(self) -> list[Approval]:
        engine, settings = await self._session.opened(), self._file.settings
        found = await read_automations(engine.usable_state(), settings, engine.profile.name, engine.clock())
        views = {view.key: (view, rule) for view, rule in zip(found.views, found.rules, strict=True)}
        known = [(each, *views[each.rule]) for each in found.waiting if each.rule in views]
        return [Approval(each, view.sentence, rule.approval_expires) for each, view, rule in known]

    async def _read(self) -> None:
        waiting = await self._session.guard(self._waiting)
        if waiting is None:
            return
        cards = list(self.query(ApprovalCard))
        if [card.approval for card in cards] == list(waiting):
            return
        if not waiting:
            self.dismiss(None)
            return
        held = self.focused.approval.decision.decision_id if isinstance(self.focused, ApprovalCard) else self._first
        now, page = self._session.clock(), self.query_one(VerticalScroll)
        await page.remove_children()
        cards = [ApprovalCard(each, now) for each in waiting]
        await page.mount_all(cards)
        next((card for card in cards if card.approval.decision.decision_id == held), cards[0]).focus()

    def _tick(self) -> None:
        for card in self.query(ApprovalCard):
            card.tick(self._session.clock())
