"""Organizations from a file: shown before they are sent, sent one after the other, resumed at any time."""

import asyncio
import csv
from collections.abc import Iterable, Sequence
from functools import partial
from io import StringIO
from typing import ClassVar, Final, Literal, cast

from msgspec.structs import replace
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from app.actions.batch import BatchSender
from app.actions.drafts import FormDraft
from app.actions.refusals import ActionRefusedError
from app.actions.screen_resolve import ResolveForm
from app.console.base import TABS_CSS, BaseScreen
from app.console.feeds import CoalescedTask
from app.console.session import FIX_TOAST_S, Session, mark_of
from app.console.sheets import ConfirmSheet, PickerScreen, SheetNote, typed_path
from app.engine.events import ActionChanged, Event, FilesChangedElsewhere
from app.engine.text import plural, safe_text
from app.organizations.imports import ImportFileError, ImportRow, change_row, plan_rows, read_rows
from storage.errors import StorageError
from storage.records import Action
from widgets.forms.dialog import reason
from widgets.forms.field import FormField
from widgets.forms.inputs import LineInput
from widgets.frame import Notice
from widgets.kit.badges import Tone
from widgets.kit.line_table import LineTable
from widgets.organizations import IMPORT_COLUMNS, ImportBar, ImportLine, ImportRowState

Phase = Literal["idle", "sending", "stopping"]
"""`stopping`: the row on its way is the last."""
AT_ONCE: Final = 50
"""How many are sent before asking again."""
NO_FILE: Final = Notice(
    "○",
    "Name a CSV file above",
    (
        "Its first line: email and, optionally, offer_code.",
        "You see every request before anything is sent.",
        "You can stop and continue later: an organization that exists",
        "is skipped, and no one is invited twice.",
    ),
    "plain",
)


class OrganizationImportScreen(BaseScreen):
    """An import: the file, its rows, and their outcomes."""

    TAB = "organizations"
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority over the field's own keys, which have no hint in the footer to click.
        Binding("enter", "read", "read the file", priority=True, id="import.read"),
        Binding("ctrl+s", "go", "create them", priority=True, id="import.go"),
        Binding("X", "stop", "stop", tooltip="Stop after the current row", id="import.stop"),
        Binding("E", "edit", "fix the line", tooltip="Change a line that is wrong, or remove it", id="import.edit"),
        Binding("v", "resolve", "resolve", tooltip="Record the result of an unknown outcome", id="import.resolve"),
        Binding("n", "file", "new file", tooltip="Another file", id="import.file"),
        Binding("escape", "back", "back", priority=True, id="import.back"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._engine = session.open_engine
        self._bar, self._table = ImportBar(), LineTable[ImportLine](session.clock(), IMPORT_COLUMNS)
        self.aging = (self._table,)
        self._rows: dict[int, ImportRow] = {}
        """The key is the line in the file."""
        self._file = ""
        """The file's name at the last read."""
        self._phase: Phase = "idle"
        self._paused = ""
        """Why the last sending stopped early; empty if it did not."""
        self._unresolved = 0
        """The line whose unknown outcome stopped the import; 0: none."""
        self._past = ""
        """The error code of unknown outcomes that the user chose to continue after."""
        warn = partial(session.notify, severity="warning", timeout=FIX_TOAST_S)
        self._form_draft = FormDraft(self._engine, "organization.import", {"path": ""}, warn)
        self._planner = CoalescedTask(self._plan, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        yield self._bar
        yield self._table

    @on(events.Mount)
    @work
    async def resume_draft(self) -> None:
        self._table.notice = NO_FILE
        self._bar.file.take_focus()
        if (draft := await self._form_draft.restore()) is not None:
            self._bar.file.fill(draft.values.get("path", ""))
            self._open()

    def engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | FilesChangedElsewhere) and not self._is_under_way:
            self._planner.ask()

    @property
    def _is_under_way(self) -> bool:
        return self._phase in {"sending", "stopping"}

    @property
    def _to_send(self) -> list[ImportRow]:
        return [row for row in self._rows.values() if line(row).state == "to_create"]

    @property
    def _unknown(self) -> Action | None:
        """The unknown outcome under the cursor; from elsewhere, the first one."""
        lines = (self._table.item, *map(line, self._rows.values()))
        return next((item.unknown for item in lines if item is not None and item.unknown is not None), None)

    @property
    def _to_fix(self) -> ImportRow | None:
        """The row under the cursor, if it is wrong or was rejected; from elsewhere, the first one that is wrong."""
        item = self._table.item
        if item is not None and item.line in self._rows and item.state in {"invalid", "twice", "rejected"}:
            return self._rows[item.line]
        return next((row for row in self._rows.values() if row.problems), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "edit":
            return self._to_fix is not None and not self._is_under_way
        if action in {"go", "resolve"}:
            is_right = not any(row.problems for row in self._rows.values())
            can_go = bool(self._to_send) and not self._engine.actions.read_only and is_right
            can = can_go if action == "go" else self._unknown is not None
            return True if can and not self._is_under_way else None
        if action == "read":
            # The file was not read yet, or may change while its field has the focus.
            text = ""
            if self.is_mounted and not self._is_under_way:
                text = self._bar.file.value.strip()
            return bool(text) and (text != self._file or self._bar.file.has_focus_within)
        if action in {"stop", "file"}:
            return self._is_under_way == (action == "stop")
        return super().check_action(action, parameters)

    async def action_read(self) -> None:
        # Through the field, whose last change must arrive before the result of reading.
        await self._bar.file.query_one(Input).action_submit()

    @work
    async def action_go(self) -> None:
        count = len(self._to_send)
        some = plural(count, "organization")
        if count > AT_ONCE:
            some = f"{AT_ONCE} of {some}"
        people = "1 person" if count == 1 else f"{min(AT_ONCE, count)} people"
        facts = [Content(f"Creates {some} and invites {people}.")]
        sheet = ConfirmSheet("Create organizations", facts, verb="Create them", leaving="Create none")
        sheet.mark = mark_of(self.session)
        if await self.app.push_screen_wait(sheet) is None or self._is_under_way:
            return
        if self._paused and self._unresolved:
            # This confirmation covers all further rows that fail in the same way.
            self._past = self._rows[self._unresolved].result.unknown_code
        self._phase, self._paused = "sending", ""
        self._table.focus()
        self.refresh_bindings()
        self.run_worker(self._send, group="import")

    def action_stop(self) -> None:
        if self._is_under_way:
            self._phase = "stopping"

    def action_file(self) -> None:
        self._bar.file.take_focus()

    @work
    async def action_edit(self) -> None:
        if (row := self._to_fix) is not None:
            self._table.seek(str(row.line))
            entry = line(row)
            problem = entry.problem or (reason(entry.action.error) if entry.action and entry.action.error else "")
            rows = await self.app.push_screen_wait(LineSheet(tuple(self._rows.values()), row, problem))
            if rows is not None:
                self._rows = {row.line: row for row in rows}
                self._planner.ask()

    def action_resolve(self) -> None:
        if self._unknown is not None:
            self.app.push_screen(ResolveForm(self._engine, self._unknown), lambda _: self._planner.ask())

    def action_back(self) -> None:
        if self._is_under_way:
            self.session.notify("A row is being sent: press X to stop after it.", severity="warning")
        else:
            self.dismiss()

    @on(FormField.Changed)
    def take_path(self) -> None:
        self._form_draft.set_values({"path": self._bar.file.value})
        self._bar.file.complain(None)
        self.refresh_bindings()

    @on(LineTable.Highlighted)
    def update_keys(self) -> None:
        self.refresh_bindings()

    @on(LineTable.Chosen)
    def open_row(self) -> None:
        if self._table.item is not None and self._table.item.unknown is not None:
            self.action_resolve()
        elif self._table.item is not None and self.check_action("edit", ()):
            self.action_edit()

    @on(Input.Submitted)
    @work
    async def _open(self) -> None:
        """Read the file and show its rows; remarks about earlier rows are void."""
        text = self._bar.file.value.strip()
        if not text or self._is_under_way:
            return
        self._file = text
        self._phase = "idle"
        self._paused = ""
        self._rows = {}
        self._past = ""
        try:
            rows = await asyncio.to_thread(lambda: read_rows(typed_path(text)))
        except ImportFileError as error:
            self._bar.file.complain(str(error))
        else:
            self._rows = {row.line: row for row in rows}
            await self._form_draft.flush()
            self._table.focus()
        await self._plan()

    async def _plan(self) -> None:
        """Give each row its state by the ledger; a row created or rejected here stays so until its action changes."""
        if self._is_under_way:
            return
        for row in plan_rows(self._rows.values(), await self._engine.ledger.organizations()):
            before = self._rows[row.line]
            if before.result.action != row.result.action or line(before).state not in {"created", "rejected"}:
                self._rows[row.line] = row
        self._show()
        self._bar.say(*self._remark())
        self.refresh_bindings()

    def _show(self, sending: int = 0) -> None:
        lines = tuple(line(row, is_sending=row.line == sending) for row in self._rows.values())
        self._table.show(lines)
        self._bar.show_counts(lines)

    async def _send(self) -> None:
        sender = BatchSender(self._engine.actions.submit, past=self._past)
        to_send = self._to_send
        refused = ""
        self._bar.disabled = True
        try:
            for row in to_send:
                if self._phase != "sending" or not sender.may_send or sender.sent == AT_ONCE:
                    break
                self._show(row.line)
                self._bar.show_progress(sender.sent, min(AT_ONCE, len(to_send)), row.name)
                sent = self._rows[row.line] = replace(row, result=await sender.send(row.request, row.key))
                self._show()
                if not sender.may_send:
                    self._paused = _why_stopped(sent)
                    self._unresolved = row.line if sent.outcome == "unknown" else 0
        except (ActionRefusedError, StorageError) as error:
            refused = str(error)
        finally:
            left = 0 if self._paused else len(self._to_send)
            if left and self._phase == "stopping":
                self._paused = f"Stopped. Press ^s to continue with {plural(left, 'organization')}."
            elif left and sender.sent == AT_ONCE:
                self._paused = f"{sender.sent:,} were sent, the most at a time. Press ^s to continue."
            self._phase, self._bar.disabled = "idle", False
        await self._plan()
        if refused:
            self._bar.say(refused, "bad")
        elif not self._to_send and not self._paused:
            await self._form_draft.delete()

    def _remark(self) -> tuple[str, Tone]:
        """Why the last sending stopped, or the key's effect."""
        count = len(self._to_send)
        if not self._rows:
            return "", "quiet"
        if self._engine.actions.read_only:
            return "Read-only: nothing can be sent from here.", "warn"
        if wrong := sum(bool(row.problems) for row in self._rows.values()):
            lines = "1 line is" if wrong == 1 else f"{wrong:,} lines are"
            return f"{lines} wrong: press E to fix it here. Nothing is sent before that.", "warn"
        if self._paused and (not self._unresolved or line(self._rows[self._unresolved]).unknown is not None):
            return self._paused, "warn"
        if count:
            return f"Press ^s to create {plural(count, 'organization')}.", "quiet"
        left = "" if self._unknown is None else " Press v to resolve an unknown outcome."
        return f"Nothing is left to create.{left}", "quiet"


class LineSheet(PickerScreen[tuple[ImportRow, ...]]):
    """One line of the file; closes with all rows once the line can be sent. The file stays as it is."""

    HINT = "enter check and keep · an empty line is left out"

    def __init__(self, rows: Sequence[ImportRow], row: ImportRow, problem: str) -> None:
        super().__init__()
        self.TITLE_TEXT = f"Line {row.line}: email,offer_code"
        self._rows, self._row, self._problem = rows, row, problem

    def compose_choice(self) -> Iterable[Widget]:
        written = StringIO()
        cells = [self._row.name, *filter(None, [self._row.request.offer_code])]
        csv.writer(written, lineterminator="").writerow(cells)
        yield LineInput(written.getvalue(), compact=True, select_on_focus=False)
        note = SheetNote()
        note.say(self._problem, "bad")
        yield note

    @on(Input.Submitted)
    def change_line(self) -> None:
        try:
            rows = change_row(self._rows, self._row.line, self.query_one(LineInput).value)
        except ImportFileError as error:
            self.report_failure(str(error))
            return
        if problems := [problem for row in rows if row.line == self._row.line for problem in row.problems]:
            self.report_failure(" ".join(problem.message for problem in problems))
        else:
            self.dismiss(rows)


def line(row: ImportRow, *, is_sending: bool = False) -> ImportLine:
    action, outcome = row.result.action, row.result.outcome
    state = cast("ImportRowState", row.outcome)
    if is_sending:
        state = "sending"
    elif row.problems:
        state = "twice" if row.is_twice else "invalid"
    elif outcome == "blocked" and action is not None and action.state == "unknown":
        state = "unknown"
    elif outcome in {"not_tried", "not_sent"} or (outcome == "rejected" and row.result.stops_batch):
        # A row refused for a reason other than its own can be sent again.
        state = "to_create"
    problem = row.result.problem or " ".join(problem.message for problem in row.problems)
    email = safe_text(row.name, limit=254)
    offer = safe_text(row.request.offer_code or "", limit=100)
    return ImportLine(row.line, email, offer, state, safe_text(problem if outcome != "blocked" else ""), action)


def _why_stopped(row: ImportRow) -> str:
    action = row.result.action
    kind = action.error.kind if action is not None and action.error is not None else ""
    if row.outcome == "unknown":
        then = "^s sends all the others" if row.result.unknown_code else "^s continues"
        return f"Line {row.line}'s outcome is unknown: v resolves it, {then}."
    if kind == "rate_limited":
        return "The organization's rate limit is spent (429): wait, then press ^s to continue."
    if kind in {"not_authorized", "forbidden", "not_found"}:
        return f"Refused, as every other row would be: {row.result.reason} Nothing more was sent."
    return f"Line {row.line} could not be sent: {row.result.reason} Press ^s to continue."
