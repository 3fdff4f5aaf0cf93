"""The changes of a run or of one turn: the files and their diffs."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from app.console.run.subject import SearchedPart, hidden, showing_failure, unavailable
from app.console.run.takeover import apply_sheet, checkout_sheet, show_in_program
from app.console.session import CURE_S
from app.results.diff import Patch
from app.results.git import GitError
from app.text import SafeText, plural, safe_text
from storage.records.results import Change, ChangedFile, Unavailable
from widgets.cells import fit
from widgets.diff.colours import Colours, colours
from widgets.diff.rows import DiffRows
from widgets.diff.view import DiffView
from widgets.line_table import LineColumn, LineTable, TableLine
from widgets.text_search import TextSearch

if TYPE_CHECKING:
    from app.console.run.subject import RunSubject, RunVersion
    from storage.records import RunDetail

FIRST: Final = 500
"""Lines of the patch read before the first frame."""
STEP: Final = 20_000
WIDE: Final = 100
"""Columns needed for the files beside the diff."""
BAR: Final = 5
"""Cells for a file's added lines, and as many for its removed ones."""


class FileItem:
    """A changed file as a line of the list."""

    def __init__(self, file: ChangedFile, number: int, most: int) -> None:
        """Prepare; `most` is the largest number of lines that a file gained or lost."""
        count = count_width(most)
        self.number = number
        self.key = str(number)
        added, removed = file.additions or 0, file.deletions or 0
        bars = (min(BAR, -(-BAR * lines // max(1, most))) for lines in (added, removed))
        plus, minus = ("▇" * cells for cells in bars)
        counts = ("bin", "") if file.is_binary else (f"+{added:,}", f"-{removed:,}")
        self._cells: TableLine = (
            (safe_text(file.path, limit=1_000), "plain"),
            (SafeText(f"{counts[0]:>{count}}"), "good"),
            (SafeText(f"{counts[1]:>{count}}"), "bad"),
            (SafeText(f"{plus:>{BAR}}"), "good"),
            (SafeText(fit(minus, BAR)), "bad"),
        )

    def cells(self, now: datetime) -> TableLine:
        """Return the name, the counts and the bar."""
        del now
        return self._cells


def count_width(most: int) -> int:
    """Cells of a number of lines with its sign."""
    return max(3, len(f"+{most:,}"))


class ChangesPart(SearchedPart):
    """The files, and the diff."""

    DEFAULT_CSS = """
    ChangesPart { layout: vertical; }
    ChangesPart > LineTable { height: auto; max-height: 6; border-bottom: solid $panel; }
    ChangesPart.-wide { layout: horizontal; }
    ChangesPart.-wide > LineTable {
        width: 40%; min-width: 48; max-width: 80; height: 1fr; max-height: 100%; border: none;
        border-right: solid $panel;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("A", "apply", "apply", tooltip="The change to a local checkout", id="run.apply"),
        Binding("B", "check_out", "check out", tooltip="The branch, in a new folder", id="run.check_out"),
        hidden("right_curly_bracket", "step_file(1)", "next file", key_display="}", id="run.next_file"),
        hidden("left_curly_bracket", "step_file(-1)", "previous file", key_display="{", id="run.prev_file"),
        hidden("ctrl+e", "open_file(False)", "editor", tooltip="A copy of the file in $EDITOR", id="run.editor"),
        hidden("L", "open_file(True)", "pager", tooltip="A copy of the file in $PAGER", id="run.pager"),
        hidden("H", "copy_hunk", "copy hunk", tooltip="The one under the cursor", id="run.copy_hunk"),
    ]

    @dataclass
    class NotFound(Message):
        """A finding's file is not among the changed ones."""

        path: str

    def __init__(self, subject: "RunSubject") -> None:
        super().__init__(subject)
        self._files: LineTable[FileItem] = LineTable(self.session.clock(), self._columns)
        self.view = DiffView()
        self.search = TextSearch(self.view, self.start)
        self._shown: RunVersion | None = None
        self._most = 0
        """The most lines that a file gained or lost."""
        self._change: Change | None = None
        self._is_whole = False
        """Whether all lines of the shown change were read."""
        self._lexing = asyncio.Lock()
        self._target: tuple[str, int | None] | None = None
        """The file and line for the cursor once the diff is read."""

    @property
    def body(self) -> DiffView:
        """The widget to focus: the diff."""
        return self.view

    def compose(self) -> ComposeResult:
        """Compose the files, and the diff below a search."""
        yield self._files
        yield self.search

    def on_resize(self) -> None:
        """Put the files beside the diff, or above it."""
        self.set_class(self.size.width >= WIDE, "-wide")

    @property
    def change(self) -> Change | None:
        """The change on show."""
        return self._change

    @property
    def has_text(self) -> bool:
        """Whether a change is shown."""
        return self._change is not None and bool(self._change.files)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what has nothing to act on."""
        detail = self.subject.detail
        if action == "check_out":
            return detail is not None and self.subject.results.repositories.is_configured(detail.run.repository)
        if action == "open_file":
            return self.has_text and self._has_contents
        if action in {"apply", "step_file", "copy_hunk"}:
            return self.has_text
        return super().check_action(action, parameters)

    @property
    def _has_contents(self) -> bool:
        """Whether the files themselves can be read, not only their changes."""
        return self._change is not None and any(file.new_blob or file.old_blob for file in self._change.files)

    def action_step_file(self, step: int) -> None:
        """Go to the next or the previous file."""
        self.view.action_file(step)

    def show(self) -> None:
        """Read the change, unless the one on show is current."""
        # A change that is shown in part so far is read to its end without another start.
        if self.subject.version != self._shown:
            self.start(self._read, exclusive=True, group="change")
        else:
            self._settle()

    def go_to(self, path: str, line: int | None) -> None:
        """Put the cursor on a line of a file, once it is read; report it if the change has no such file."""
        self._target = path, line
        self.show()

    async def _read(self) -> None:
        subject, detail, wanted = self.subject, self.subject.detail, self.subject.version
        if detail is None:
            return
        if not wanted.is_same_turn(self._shown):
            self._clear()
            self.view.say(unavailable("Reading the changes…", "The first time, its repository is fetched."))
        with showing_failure(self.view.say):
            change = await self.subject.results.change(detail, subject.turn)
        self._clear()
        self._shown = wanted
        if isinstance(change, Unavailable):
            self._is_whole = True
            self.view.say(unavailable("The changes are not available.", change.reason))
            self._settle()
            return
        self._change = change
        await self._show(change)

    def _clear(self) -> None:
        self._change, self._shown, self._is_whole = None, None, False
        self._files.display = False
        self.view.show(DiffRows(Patch(b"")), (), ())
        self.refresh_bindings()

    async def _show(self, change: Change) -> None:
        self._most = most = max((max(file.additions or 0, file.deletions or 0) for file in change.files), default=0)
        self._files.show([FileItem(file, number, most) for number, file in enumerate(change.files)])
        self._files.display = bool(change.files)
        rows = DiffRows(Patch(change.patch))
        rows.extend(FIRST)
        self.view.show(rows, change.files, self._about(change))
        detail, turn = self.subject.detail, self.subject.turn
        may_change = detail is not None and not detail.is_final and turn in {None, self.subject.last_turn}
        self.view.say(unavailable(f"Nothing was changed{' so far' if may_change else ''}.", change.note))
        self.refresh_bindings()
        self._settle()
        while not rows.is_complete:
            await asyncio.to_thread(rows.extend, STEP)
            self.view.grew()
            self._settle()
        self._is_whole = True
        self._settle()

    def _columns(self, width: int) -> tuple[LineColumn, ...]:
        count = count_width(self._most)
        name = LineColumn("file", 0, max(8, width - 2 * (count + 1) - 2 * BAR - 2), cut="middle")
        counts = (LineColumn(f"{sign:>{count}}", part, count) for part, sign in enumerate("+-", 1))
        return name, *counts, LineColumn("", 3, BAR, gap=0), LineColumn("", 4, BAR)

    def _about(self, change: Change) -> tuple[str, ...]:
        """The facts about the change, the most important first."""
        added = sum(file.additions or 0 for file in change.files)
        removed = sum(file.deletions or 0 for file in change.files)
        whole = "whole run" if self.subject.turn is None else f"turn {self.subject.turn}"
        base = f"since {safe_text(change.base_name)}" if change.base_name else ""
        ends = f"{(change.base or '')[:10]}…{(change.head or '')[:10]}" if change.head else ""
        source = "from git" if change.source == "git" else "from the service"
        return base, source, f"+{added:,} -{removed:,}", safe_text(change.note), whole, safe_text(ends)

    def _settle(self) -> None:
        """Put the cursor where a finding leads; give up once everything was read."""
        if self._target is None:
            return
        if self._change is not None and self.view.go_to_line(*self._target):
            self._target = None
        elif self._is_whole:
            if self._change is not None:
                self.post_message(self.NotFound(self._target[0]))
            self._target = None

    def action_copy_hunk(self) -> None:
        """Copy the hunk under the cursor."""
        if text := self.view.hunk_text():
            self.session.copy_as_is(text, f"Copied the hunk: {plural(len(text.splitlines()), 'line')}")

    def action_open_file(self, in_pager: bool) -> None:
        """Open a copy of the file in a program."""
        if (file := self.view.file) is not None:
            self.start(partial(self._open_file, self.view.changed(file), in_pager), exclusive=True, group="open file")

    async def _open_file(self, file: ChangedFile, in_pager: bool) -> None:
        detail, blob = self.subject.detail, file.new_blob or file.old_blob
        if detail is None or blob is None:
            self.session.notify("The file itself needs its repository: name it under [repositories].")
            return
        text = await self.subject.results.blob(detail, blob)
        if isinstance(text, Unavailable):
            self.session.notify(text.reason, severity="warning")
        elif problem := show_in_program(self.app, text, file.path, in_pager=in_pager):
            self.session.notify(problem, severity="warning")

    def action_apply(self) -> None:
        """Offer to apply the change to a checkout."""
        self.start(self._offer, exclusive=True, group="pick")

    async def _offer(self) -> None:
        if (detail := self.subject.detail) is None or self._change is None:
            self.session.notify("There is no change to apply yet.")
            return
        try:
            sheet = await apply_sheet(self.subject.results, detail, self._change)
        except GitError as error:
            self.session.notify(str(error), severity="error")
        else:
            self.app.push_screen(sheet, self._taken_over)

    def action_check_out(self) -> None:
        """Offer to check the branch out."""
        if (detail := self.subject.detail) is not None:
            self.app.push_screen(checkout_sheet(self.subject.results, detail), self._taken_over)

    def _taken_over(self, said: str | None) -> None:
        if said is not None:
            self.session.notify(said, timeout=CURE_S)

    @on(DiffView.FileEntered)
    def _file_entered(self, message: DiffView.FileEntered) -> None:
        # Another change may be shown by now.
        if self._change is None or message.file != self.view.file:
            return
        path = self.view.changed(message.file).path
        paths = [file.path for file in self._change.files]
        if path in paths:
            self._files.seek(str(paths.index(path)))

    @on(LineTable.Highlighted)
    @on(LineTable.Chosen)
    def _file_picked(self, message: LineTable.Highlighted | LineTable.Chosen) -> None:
        item = self._files.item
        if item is None or self._change is None or not self._files.has_focus:
            return
        self.view.go_to_line(self._change.files[item.number].path, None)
        if isinstance(message, LineTable.Chosen):
            self.view.focus()

    @on(DiffView.ColoursRequested)
    def _colours_requested(self, message: DiffView.ColoursRequested) -> None:
        self.start(partial(self._colour, message.file, self._shown), group="colours")

    async def _colour(self, file: int, shown: "RunVersion | None") -> None:
        detail = self.subject.detail
        async with self._lexing:
            # Another change may be shown by now, with fewer files.
            is_gone = shown != self._shown or file >= self.view.count
            if detail is None or is_gone or (facts := self.view.changed(file)).is_binary:
                return
            sides = (facts.old_blob, facts.old_path or facts.path), (facts.new_blob, facts.path)
            old, new = [await self._side(detail, blob, path) for blob, path in sides]
            if shown == self._shown:
                self.view.colour(file, old, new)

    async def _side(self, detail: "RunDetail", blob: str | None, path: str) -> Colours:
        """The highlighted lines of one side of a file; none if its text is not available."""
        if blob is None:
            return ()
        text = await self.subject.results.blob(detail, blob)
        return () if isinstance(text, Unavailable) else await asyncio.to_thread(colours, text, path)
