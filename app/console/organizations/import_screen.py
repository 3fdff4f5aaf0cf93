"""Many organizations from a file: seen before they are sent, sent one after the other, taken up again at any time."""

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
from app.actions.imports import Import, Imported, ImportFileError, read_rows
from app.api.requests import CreateOrganization
from app.config import data_folder
from app.console.base_screen import BaseScreen
from app.console.coalesced_task import CoalescedTask
from app.console.export_sheet import typed_path
from app.console.forms.action_form import SecondPress
from app.console.forms.drafts import Drafts
from app.console.forms.form_draft import FormDraft
from app.console.forms.form_screen import DRAFTS_FILE
from app.console.organizations.import_rows import ImportList, line, why_stopped
from app.console.session import CURE_S, Session
from app.events import ActionChanged, CacheChangedElsewhere, Event
from app.text import plural, safe_text
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
"""How many are sent at once, unless a number is typed."""
NO_FILE: Final = Notice(
    "○",
    "Name a CSV file above",
    (
        "Its first line: email and, if wanted, offer_code.",
        "You see what would be done before anything is sent.",
        "It may be stopped and taken up again: what was created",
        "is passed over, and no one is invited twice.",
    ),
    "plain",
)


class OrganizationImportScreen(BaseScreen):
    """An import: the file, its rows, and what became of each."""

    TAB = "organizations"
    CSS = """
    OrganizationImportScreen.-tall ImportBar { padding-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # Before the field's own, which has no hint below that could be clicked.
        Binding("enter", "read", "read the file", key_display="enter", priority=True, id="import.read"),
        Binding("ctrl+s", "go", "create them", key_display="^s", priority=True, id="import.go"),
        Binding("X", "stop", "stop", tooltip="After the row that is on its way", id="import.stop"),
        Binding("v", "resolve", "resolve", tooltip="Say what became of an unknown outcome", id="import.resolve"),
        Binding("n", "file", "file", tooltip="Another file", id="import.file"),
        Binding("escape", "back", "back", key_display="esc", priority=True, id="import.back"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._bar, self._table = ImportBar(MOST), ImportTable(engine.clock())
        self._list = ImportList()
        self._read_text = ""
        """The file's name as it stood when the file was read last."""
        self._followed = ""
        """The row that the cursor was taken to; it goes on from there only, not from where a person put it."""
        self._is_asked = False
        """Whether ctrl+s, pressed once more, sends."""
        self._second_press = SecondPress()
        self._is_sending = False
        self._is_stopping = False
        self._stopped_by: Imported | None = None
        """The row that ended the last sending, while that is to be said; None: nothing did."""
        self._paused = ""
        """Why the last sending ended before its last row, where no row ended it."""
        drafts = Drafts(data_folder(engine.settings, engine.profile) / DRAFTS_FILE)
        warn = partial(session.notify, severity="warning", timeout=CURE_S)
        fresh = {"path": "", "most": str(MOST)}
        self._form_draft = FormDraft(drafts, "organization.import", fresh, engine.clock, warn)
        self._planner = CoalescedTask(self._plan, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """What is above the rows, and the rows."""
        yield self._bar
        yield self._table

    def on_mount(self) -> None:
        """Take up the import that was begun before."""
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
        """An action changed: reads the rows again."""
        if isinstance(event, ActionChanged | CacheChangedElsewhere) and not self._is_sending:
            self._planner.ask()

    def tick(self, now: datetime) -> None:
        """Move the ages."""
        self._table.tick(now)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are shown as such."""
        if action == "go":
            can = bool(self._list.to_send) and not self._is_sending and not self._engine.actions.read_only
            return True if can else None
        if action == "read":
            return self._can_read
        if action == "stop":
            return self._is_sending
        if action == "file":
            return not self._is_sending
        if action == "resolve":
            return True if self._unknown is not None and not self._is_sending else None
        return super().check_action(action, parameters)

    # What its keys do

    async def action_read(self) -> None:
        """Read the file that is named."""
        # By way of the field, whose last change must have arrived before what is said of the file.
        await self._bar.file.query_one(Input).action_submit()

    def action_go(self) -> None:
        """Say what would be done; pressed once more, do it."""
        if self._most is None:
            self._bar.most.take_focus()
            return
        if not self._is_asked:
            self._is_asked = True
            self._ask()
            self._table.focus()
            self._second_press.forget()
            after_refresh(self, self._second_press.painted)
            return
        if not self._second_press.is_meant():
            self.session.notify("Look at it first; ^s again creates them.", severity="warning")
            return
        self._is_asked, self._is_sending, self._is_stopping, self._paused = False, True, False, ""
        self.refresh_bindings()
        self.run_worker(self._send, group="import")

    def action_stop(self) -> None:
        """Send nothing after the row that is on its way."""
        self._is_stopping = True

    def action_file(self) -> None:
        """The keys go to the file's name."""
        self._bar.file.take_focus()

    def action_resolve(self) -> None:
        """Let a person say what became of the row under the cursor; of the first unknown one, from elsewhere."""
        from app.console.forms import ResolveForm

        if self._unknown is not None:
            self.app.push_screen(ResolveForm(self._engine, self._unknown), lambda _: self._planner.ask())

    def action_back(self) -> None:
        """One step back: out of the question, or to the organizations; never out of what is on its way."""
        if self._is_sending:
            self.session.notify("A row is on its way: X stops after it.", severity="warning")
        elif self._is_asked:
            self._is_asked = False
            self._say(*self._what_now())
        else:
            self.dismiss()

    # What it hears from its widgets

    @on(Input.Submitted)
    async def _entered(self) -> None:
        await self._open()

    @on(FormField.Changed)
    def _typed(self, message: FormField.Changed) -> None:
        if self._is_asked:
            self._is_asked = False
            self._say(*self._what_now())
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

    # How it does that

    @property
    def _unknown(self) -> Action | None:
        item = self._table.item if self.is_mounted else None
        if item is not None and item.unknown is not None:
            return item.unknown
        return next((line.unknown for line in self._list.shown if line.unknown is not None), None)

    @property
    def _can_read(self) -> bool:
        """Whether a file is named that was not read, or that the keys go to: then it may have changed."""
        if not self.is_mounted or self._is_sending:
            return False
        text = self._bar.file.value.strip()
        return bool(text) and (text != self._read_text or self._bar.file.has_focus_within)

    @property
    def _most(self) -> int | None:
        """How many may be sent at once; None: what was typed is no such number."""
        text = self._bar.most.value.strip()
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    async def _open(self) -> None:
        """Read the file and show how its rows stand."""
        text = self._bar.file.value.strip()
        if not text or self._is_sending:
            return
        self._read_text, self._stopped_by, self._paused = text, None, ""
        try:
            self._list.load(await asyncio.to_thread(lambda: read_rows(typed_path(text))))
        except ImportFileError as error:
            self._list.load(())
            self._bar.file.complain(safe_text(str(error)))
        else:
            await self._form_draft.flush()
            self._table.focus()
        await self._plan()

    async def _plan(self) -> None:
        if self._is_sending:
            return
        self._list.stand(await self._engine.ledger.organizations())
        self._show()
        if self._is_asked:
            self._ask()
        else:
            self._say(*self._what_now())
        self.refresh_bindings()

    def _show(self) -> None:
        self._table.show(self._list.shown)
        self._bar.show_counts(counts(self._list.shown))

    def _what_now(self) -> tuple[str, Tone]:
        if not self._list.shown:
            return "", "quiet"
        if self._stopped_by is not None and self._is_still_so(self._stopped_by):
            return why_stopped(self._stopped_by), "warn"
        if self._engine.actions.read_only:
            return "Read-only: nothing can be sent from here.", "warn"
        if self._paused:
            return self._paused, "warn"
        count = len(self._list.to_send)
        return (f"^s creates {_organizations(count)}." if count else "Nothing is left to create."), "quiet"

    def _is_still_so(self, stopped_by: Imported) -> bool:
        here = next((each for each in self._list.shown if each.line == stopped_by.row.line), None)
        return stopped_by.outcome != "unknown" or (here is not None and here.unknown is not None)

    def _ask(self) -> None:
        most, count = self._most or MOST, len(self._list.to_send)
        first = f"{most:,} of {_organizations(count)}" if most < count else _organizations(count)
        people = "1 person" if min(most, count) == 1 else f"{min(most, count):,} people"
        self._say(f"^s again creates {first} and invites {people}; esc cancels.", "warn")

    async def _send(self) -> None:
        rows, most = self._list.to_send, self._most or MOST
        work = Import(self._engine.ledger, self._submit, most=most)
        self._bar.disabled = True
        try:
            for row in rows:
                if self._is_stopping or work.is_spent or work.stopped_by is not None:
                    break
                self._list.begin(row)
                self._follow(row.line)
                self._bar.show_progress(work.sent, min(most, len(rows)), safe_text(row.email))
                self._list.put(line(await work.take(row)))
                self._show()
        except (ActionRefusedError, StorageError) as error:
            await self._ended(work)
            self._say(str(error), "bad")
        else:
            await self._ended(work)

    def _follow(self, number: int) -> None:
        """Show the row on its way; the cursor goes along, unless a person took it elsewhere."""
        here = self._table.item
        goes_along = not self._followed or (here is not None and str(here.line) == self._followed)
        self._show()
        if goes_along:
            self._followed = str(number)
            self._table.seek(self._followed)

    async def _ended(self, work: Import) -> None:
        self._is_sending = self._bar.disabled = False
        self._followed, self._stopped_by = "", work.stopped_by
        left = len(self._list.to_send)
        if work.stopped_by is None and left and self._is_stopping:
            self._paused = f"Stopped. ^s goes on with {_organizations(left)}."
        elif work.stopped_by is None and left and work.is_spent:
            self._paused = f"{work.sent:,} were sent, as many as may be at once. ^s goes on with the next."
        await self._plan()
        if not self._list.to_send and work.stopped_by is None:
            await self._form_draft.done()
        self._is_stopping = False

    async def _submit(self, request: CreateOrganization, key: str) -> Action:
        try:
            return await self._engine.actions.submit(request, key=key)
        except AlreadyAskedError as asked:
            return asked.existing  # Another import of the same row was first.

    def _say(self, text: str, tone: Tone) -> None:
        self._bar.say(safe_text(text), tone)


def _organizations(count: int) -> str:
    return plural(count, "organization")
