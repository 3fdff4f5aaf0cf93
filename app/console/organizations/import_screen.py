"""Organizations from a file: shown before they are sent, sent one after the other, resumed at any time."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from app.actions import ActionRefusedError, AlreadyAskedError
from app.actions.import_file import ImportFileError, read_rows
from app.actions.imports import Import
from app.api.requests import CreateOrganization
from app.console.base.screen import BaseScreen
from app.console.forms.drafts import Drafts, FormDraft
from app.console.organizations.import_state import Sending, line
from app.console.session import CURE_S, Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.sheets.export import typed_path
from app.events import ActionChanged, CacheChangedElsewhere, Event
from app.text import safe_text
from storage.errors import StorageError
from storage.records import Action
from widgets.after_refresh import after_refresh
from widgets.badges import Tone
from widgets.forms.field import FormField
from widgets.frame.notice import Notice
from widgets.line_table import LineTable
from widgets.organizations.imports import ImportBar, ImportTable, counts

if TYPE_CHECKING:
    from app.engine import Engine

MOST: Final = 50
"""The number sent at once, unless another is typed."""
NO_FILE: Final = Notice(
    "○",
    "Name a CSV file above",
    (
        "Its first line: email and, optionally, offer_code.",
        "You see what would be done before anything is sent.",
        "It may be stopped and taken up again: what was created",
        "is passed over, and no one is invited twice.",
    ),
    "plain",
)


class OrganizationImportScreen(BaseScreen):
    """An import: the file, its rows, and their outcomes."""

    TAB = "organizations"
    CSS = """
    OrganizationImportScreen.-tall ImportBar { padding-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority over the field's own keys, which have no hint in the footer to click.
        Binding("enter", "read", "read the file", key_display="enter", priority=True, id="import.read"),
        Binding("ctrl+s", "go", "create them", key_display="^s", priority=True, id="import.go"),
        Binding("X", "stop", "stop", tooltip="After the row that is on its way", id="import.stop"),
        Binding("v", "resolve", "resolve", tooltip="Record the result of an unknown outcome", id="import.resolve"),
        Binding("n", "file", "file", tooltip="Another file", id="import.file"),
        Binding("escape", "back", "back", key_display="esc", priority=True, id="import.back"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._bar, self._table = ImportBar(MOST), ImportTable(engine.clock())
        self._sending = Sending()
        warn = partial(session.notify, severity="warning", timeout=CURE_S)
        fresh = {"path": "", "most": str(MOST)}
        self._form_draft = FormDraft(Drafts.of(engine), "organization.import", fresh, engine.clock, warn)
        self._planner = CoalescedTask(self._plan, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """Compose the fields and the rows."""
        yield self._bar
        yield self._table

    def on_mount(self) -> None:
        """Resume the import that was begun before."""
        self._table.say(NO_FILE)
        self._bar.file.take_focus()
        self.run_worker(self._take_up)

    async def _take_up(self) -> None:
        draft = await self._form_draft.restore()
        if draft is not None:
            self._bar.file.fill(draft.values.get("path", ""))
            self._bar.most.fill(draft.values.get("most", str(MOST)))
            await self._open()

    def engine_changed(self, event: Event) -> None:
        """Read the rows again after an action changed."""
        if isinstance(event, ActionChanged | CacheChangedElsewhere) and not self._sending.is_under_way:
            self._planner.ask()

    def tick(self, now: datetime) -> None:
        """Move the ages."""
        self._table.tick(now)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim or hide the keys that have nothing to do now."""
        is_under_way = self._sending.is_under_way
        if action == "go":
            can = bool(self._sending.rows.to_send) and not is_under_way and not self._engine.actions.read_only
            return True if can else None
        if action == "read":
            return self._can_read
        if action == "stop":
            return is_under_way
        if action == "file":
            return not is_under_way
        if action == "resolve":
            return True if self._unknown is not None and not is_under_way else None
        return super().check_action(action, parameters)

    # Its keys

    async def action_read(self) -> None:
        """Read the named file."""
        # Through the field, whose last change must arrive before the result of reading.
        await self._bar.file.query_one(Input).action_submit()

    def action_go(self) -> None:
        """Describe what would be sent; pressed once more, send it."""
        if self._most is None:
            self._bar.most.take_focus()
            return
        sending = self._sending
        if not sending.is_asked:
            sending.ask()
            self._say_remark()
            self._table.focus()
            after_refresh(self, sending.second_press.painted)
        elif not sending.second_press.press():
            self.session.notify("Look at it first; ^s again creates them.", severity="warning")
        else:
            sending.begin()
            self.refresh_bindings()
            self.run_worker(self._send, group="import")

    def action_stop(self) -> None:
        """Stop after the row being sent."""
        self._sending.stop()

    def action_file(self) -> None:
        """Focus the file's name."""
        self._bar.file.take_focus()

    def action_resolve(self) -> None:
        """Open the form that resolves the row under the cursor; from elsewhere, the first unknown one."""
        from app.console.forms import ResolveForm

        if self._unknown is not None:
            self.app.push_screen(ResolveForm(self._engine, self._unknown), lambda _: self._planner.ask())

    def action_back(self) -> None:
        """Go back one step: from the question, or to the organizations; not while rows are sent."""
        if self._sending.is_under_way:
            self.session.notify("A row is on its way: X stops after it.", severity="warning")
        elif self._sending.cancel():
            self._say_remark()
        else:
            self.dismiss()

    # Its widgets' messages

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.run_worker(self._open)

    @on(FormField.Changed)
    def _typed(self, message: FormField.Changed) -> None:
        if self._sending.cancel():
            self._say_remark()
        self._form_draft.typed({"path": self._bar.file.value, "most": self._bar.most.value})
        if message.field == "most":
            wrong = self._most is None
            self._bar.most.complain(safe_text("A whole number, from 1.") if wrong else None)
        else:
            self._bar.file.complain(None)
        self.refresh_bindings()

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self.refresh_bindings()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        if self._table.item is not None and self._table.item.unknown is not None:
            self.action_resolve()

    # Internals

    @property
    def _unknown(self) -> Action | None:
        item = self._table.item if self.is_mounted else None
        if item is not None and item.unknown is not None:
            return item.unknown
        return next((line.unknown for line in self._sending.rows.shown if line.unknown is not None), None)

    @property
    def _can_read(self) -> bool:
        """Whether a file is named that was not read, or that has the focus: it may have changed."""
        if not self.is_mounted or self._sending.is_under_way:
            return False
        text = self._bar.file.value.strip()
        return bool(text) and (text != self._sending.file or self._bar.file.has_focus_within)

    @property
    def _most(self) -> int | None:
        """The number to send at once; None: the text is not a valid number."""
        text = self._bar.most.value.strip()
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    async def _open(self) -> None:
        """Read the file and show its rows."""
        text = self._bar.file.value.strip()
        if not text or self._sending.is_under_way:
            return
        self._sending.read(text)
        try:
            self._sending.rows.load(await asyncio.to_thread(lambda: read_rows(typed_path(text))))
        except ImportFileError as error:
            self._sending.rows.load(())
            self._bar.file.complain(safe_text(str(error)))
        else:
            await self._form_draft.flush()
            self._table.focus()
        await self._plan()

    async def _plan(self) -> None:
        if self._sending.is_under_way:
            return
        self._sending.rows.update(await self._engine.ledger.organizations())
        self._show()
        self._say_remark()
        self.refresh_bindings()

    def _show(self) -> None:
        shown = self._sending.rows.shown
        self._table.show(shown)
        self._bar.show_counts(counts(shown))

    def _say_remark(self) -> None:
        self._say(*self._sending.remark(self._most or MOST, read_only=self._engine.actions.read_only))

    async def _send(self) -> None:
        work = Import(self._engine.ledger, self._submit, most=self._most or MOST)
        total = min(self._most or MOST, len(self._sending.rows.to_send))
        refused = ""
        self._bar.disabled = True
        try:
            for row in self._sending.pending(work):
                self._follow(row.line)
                self._bar.show_progress(work.sent, total, safe_text(row.email))
                self._sending.rows.put(line(await work.take(row)))
                self._show()
        except (ActionRefusedError, StorageError) as error:
            refused = str(error)
        finally:
            self._sending.end(work)
            self._bar.disabled = False
        await self._plan()
        if refused:
            self._say(refused, "bad")
        elif self._sending.is_complete:
            await self._form_draft.done()

    def _follow(self, number: int) -> None:
        """Show the row being sent; the cursor follows, unless the user moved it elsewhere."""
        here = self._table.item
        goes_along = self._sending.move_cursor(number, here=None if here is None else here.line)
        self._show()
        if goes_along:
            self._table.seek(str(number))

    async def _submit(self, request: CreateOrganization, key: str) -> Action:
        try:
            return await self._engine.actions.submit(request, key=key)
        except AlreadyAskedError as asked:
            return asked.existing  # Another import sent the same row first.

    def _say(self, text: str, tone: Tone) -> None:
        self._bar.say(safe_text(text), tone)
