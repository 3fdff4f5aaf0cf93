"""A diff of any size: one column of lines, or the old file beside the new one."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from re import Pattern
from typing import ClassVar, Final, Literal

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from storage.records.results import ChangedFile
from widgets.cells import beside, joined
from widgets.diff.colours import Colours, Spans
from widgets.diff.rows import CONTEXT, GROUNDS, NONE, SIGNED, DiffLines, DiffRows, FileRows, NoPatch
from widgets.text_view import LONGEST, TextPiece, TextView, safe_line

SPLIT_FROM: Final = 160
"""Columns of the screen from which old and new stand side by side."""
NUMBER: Final = 5
"""Cells of a line's number."""
ACTS: Final = frozenset({"file", "hunk", "fold", "fold_all", "split"})
"""The actions that need at least one file."""
HEADING: Final = -1
"""The row of a file's name."""
Side = Literal[0, 1]
OLD: Final = 0
NEW: Final = 1
"""The indexes of the two sides in a pair."""


class DiffView(TextView):
    """Draws a patch file by file; a file can be folded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_curly_bracket", "file(1)", "next file", key_display="}", id="diff.next_file"),
        Binding("left_curly_bracket", "file(-1)", "previous file", show=False, key_display="{", id="diff.prev_file"),
        Binding("right_parenthesis", "hunk(1)", "next hunk", key_display=")", id="diff.next_hunk"),
        Binding("left_parenthesis", "hunk(-1)", "previous hunk", show=False, key_display="(", id="diff.prev_hunk"),
        Binding("z", "fold", "fold", show=False, tooltip="The file under the cursor", id="diff.fold"),
        Binding("Z", "fold_all", "fold all", show=False, tooltip="All files, or none", id="diff.fold_all"),
        Binding("vertical_line", "split", "side by side", show=False, key_display="|", id="diff.split"),
    ]

    @dataclass
    class FileEntered(Message):
        """The cursor is in another file."""

        file: int

    @dataclass
    class ColoursRequested(Message):
        """A file is shown whose syntax is not known yet."""

        file: int

    def __init__(self) -> None:
        super().__init__()
        self._rows = DiffRows(NoPatch())
        self._lines = DiffLines(NoPatch(), ())
        self._about: Sequence[str] = ()
        self._starts: list[int] = []
        """By file, the line of its name."""
        self._folded: set[int] = set()
        self._split: bool | None = None
        """Whether old and new are side by side. None: the width decides."""
        self._asked: set[int] = set()
        self._entered = NONE

    # Input

    def show(self, rows: DiffRows, files: Sequence[ChangedFile], about: Sequence[str]) -> None:
        """Show a patch and the facts of its files; `about` names its origin, what matters most first."""
        self._rows, self._about = rows, about
        self._lines = DiffLines(rows.patch, files)
        self._folded, self._asked, self._entered = set(), set(), NONE
        self._cursor = self._x = 0
        self.scroll_rows_to(0)
        self.grew()
        self.cursor_moved()

    def grew(self) -> None:
        """Take further rows of the patch into the view."""
        starts, at = [], 0
        for number, file in enumerate(self._files):
            starts.append(at)
            at += 1 if number in self._folded else 1 + len(file.left)
        self._starts = starts
        self.resize_to(at)
        self.rows_came_into_view()

    def colour(self, file: int, old: Colours, new: Colours) -> None:
        """Show a file's syntax."""
        self._lines.colours[file] = old, new
        self.refresh()

    def go_to_file(self, file: int) -> None:
        """Put the cursor on a file's name, at the top."""
        if file < len(self._starts):
            self.scroll_rows_to(self._starts[file])
            self.put_cursor(self._starts[file])

    def go_to_line(self, path: str, line: int | None) -> bool:
        """Put the cursor on this line of the new file, or on the nearest one; return whether the file is there."""
        file = next((number for number in range(len(self._starts)) if self._lines.path(number) == path), None)
        if file is None:
            return False
        self._unfold(file)
        self.go_to_file(file)
        numbers = ((row, self._number(file, row)) for row in range(len(self._files[file].right)))
        nearest = min(((abs(there - line), row) for row, there in numbers if line and there), default=None)
        if nearest is not None:
            self.put_cursor(self._starts[file] + 1 + nearest[1])
            self.scroll_rows_to(self._cursor - self.page // 3)
        return True

    # State

    @property
    def is_split(self) -> bool:
        """Whether old and new stand side by side."""
        return self.screen.size.width >= SPLIT_FROM if self._split is None else self._split

    @property
    def count(self) -> int:
        """The number of files, as far as they were read."""
        return len(self._starts)

    @property
    def file(self) -> int | None:
        """The file under the cursor."""
        return self._file_and_row(self._cursor)[0] if self._starts else None

    @property
    def line(self) -> int | None:
        """The number of the line under the cursor in the new file, or None."""
        if not self._starts:
            return None
        file, row = self._file_and_row(self._cursor)
        return self._number(file, row) if row != HEADING else None

    def changed(self, file: int) -> ChangedFile:
        """The facts of a file so far."""
        return self._lines.changed(file)

    def hunk_text(self) -> str:
        """The hunk under the cursor, or its facts, as safe lines; "" without one."""
        if not self._starts:
            return ""
        file, row = self._file_and_row(self._cursor)
        rows = self._rows.unified[file]
        line = max(self._files[file].left[row], self._files[file].right[row]) if row != HEADING else NONE
        hunk = rows.hunk_of(rows.row_of(line) or 0)
        return "\n".join(self._lines.text(rows.left[at]) for at in hunk)

    # Its keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable keys without effect."""
        return bool(self._starts) if action in ACTS else super().check_action(action, parameters)

    def action_file(self, step: int) -> None:
        """Go to the next or previous file."""
        if self._starts:
            self.go_to_file(min(max(0, self._file_and_row(self._cursor)[0] + step), len(self._starts) - 1))

    def action_hunk(self, step: int) -> None:
        """Go to the next or previous hunk, of another file if need be."""
        files = range(len(self._starts)) if step > 0 else range(len(self._starts) - 1, -1, -1)
        for file in files:
            hunks = self._files[file].hunks if file not in self._folded else ()
            for row in hunks if step > 0 else reversed(hunks):
                at = self._starts[file] + 1 + row
                if (at - self._cursor) * step > 0:
                    self.put_cursor(at)
                    return

    def action_fold(self) -> None:
        """Fold the file under the cursor, or unfold it."""
        if self._starts:
            file = self._file_and_row(self._cursor)[0]
            self._folded ^= {file}
            self.grew()
            self.put_cursor(self._starts[file])

    def action_fold_all(self) -> None:
        """Fold all files; unfold them where all are folded."""
        if self._starts:
            file, every = self._file_and_row(self._cursor)[0], set(range(len(self._starts)))
            self._folded = set() if self._folded == every else every
            self.grew()
            self.put_cursor(self._starts[file])

    def action_split(self) -> None:
        """Show old and new side by side, or one below the other."""
        if not self._starts:
            return
        file, row = self._file_and_row(self._cursor)
        line = max(self._files[file].left[row], self._files[file].right[row]) if row != HEADING else NONE
        self._split = not self.is_split
        self.grew()
        found = self._files[file].row_of(line) if line != NONE else None
        self.put_cursor(self._starts[file] + 1 + (HEADING if found is None else found))

    def line_clicked(self, event: events.Click) -> None:
        """Fold a file after a click on its name."""
        if self._file_and_row(self._cursor)[1] == HEADING and event.x < NUMBER:
            self.action_fold()

    # Drawing

    def on_resize(self) -> None:
        """Choose the layout for the new width."""
        self.grew()

    def cursor_moved(self) -> None:
        """Announce that another file was entered."""
        file = self.file
        if file is not None and file != self._entered:
            self._entered = file
            self.post_message(self.FileEntered(file))
        self.repaint_header()

    def rows_came_into_view(self) -> None:
        """Ask for the colours of the files in view."""
        if self._starts:
            shown = self.visible_rows
            first, last = (self._file_and_row(row)[0] for row in (shown.start, max(shown.start, shown.stop - 1)))
            for file in range(first, last + 1):
                if file not in self._asked and file not in self._folded:
                    self._asked.add(file)
                    self.post_message(self.ColoursRequested(file))
        self.repaint_header()

    def head(self) -> Sequence[TextPiece]:
        """The file, and the commits between which it changed."""
        width = self.scrollable_content_region.width
        if not self._starts:
            return (TextPiece(f" {joined(self._about, width - 1)}", "quiet"),)
        file = self._file_and_row(self.scroll_offset.y)[0]
        count = f" {file + 1:,}/{max(self._lines.count, len(self._starts)):,}  "
        path, about = beside(safe_line(self._lines.path(file)), self._about, width - len(count) - 3)
        return (TextPiece(count, "quiet"), TextPiece(path, "accent"), TextPiece(f"   {about}", "quiet"))

    def draw(self, index: int, width: int, ground: str) -> Strip:
        """A file's name, a line, or an old line beside its new one."""
        file, row = self._file_and_row(index)
        if row == HEADING:
            heading = self._lines.heading(file, width, is_folded=file in self._folded)
            return self.strip(heading, width, ground or "file")
        rows = self._files[file]
        left, right = rows.left[row], rows.right[row]
        if self.is_split and (left != right or self._lines.kind(left) == CONTEXT):
            return self._pair(file, (left, right), width, ground)
        return self._unified(file, left, width, ground)

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next line that matches; in a folded file, the line of its name."""
        if step > 0 and begin and self._is_folded(begin - 1):
            begin -= 1  # Its content follows its name.
        for index in range(begin, self.total) if step > 0 else range(min(begin, self.total) - 1, -1, -1):
            file, row = self._file_and_row(index)
            if row != HEADING and self._matches(pattern, file, row):
                return index
            if self._is_folded(index) and self._match_in(pattern, file, step) is not None:
                return index
        return None

    def show_match(self, index: int, pattern: Pattern[bytes], step: int) -> None:
        """Unfold the file of a match first."""
        if self._is_folded(index):
            file = self._file_and_row(index)[0]
            self._unfold(file)
            index = self._starts[file] + 1 + (self._match_in(pattern, file, step) or 0)
        self.put_cursor(index)

    def _is_folded(self, index: int) -> bool:
        file, row = self._file_and_row(index)
        return row == HEADING and file in self._folded

    def _match_in(self, pattern: Pattern[bytes], file: int, step: int) -> int | None:
        rows = range(len(self._files[file].left))[::step]
        return next((row for row in rows if self._matches(pattern, file, row)), None)

    def _matches(self, pattern: Pattern[bytes], file: int, row: int) -> bool:
        lines = {self._files[file].left[row], self._files[file].right[row]} - {NONE}
        return any(pattern.search(self._rows.patch.line(line, LONGEST), 1) for line in lines)

    @property
    def _files(self) -> list[FileRows]:
        return self._rows.split if self.is_split else self._rows.unified

    def _file_and_row(self, index: int) -> tuple[int, int]:
        """The file that a line of the view belongs to, and the row of that file."""
        file = max(0, bisect_right(self._starts, index) - 1)
        return file, index - self._starts[file] - 1

    def _number(self, file: int, row: int) -> int | None:
        line = self._files[file].right[row]
        return None if line == NONE else self._rows.patch.numbers(line)[1]

    def _unfold(self, file: int) -> None:
        if file in self._folded:
            self._folded.discard(file)
            self.grew()

    def _unified(self, file: int, line: int, width: int, ground: str) -> Strip:
        kind, room = self._lines.kind(line), 2 * NUMBER + 3
        if kind not in SIGNED:
            words = [TextPiece(" " * room), TextPiece(self._lines.text(line), "accent")]
            return self.strip(words, width, ground or "code")
        old, new = self._rows.patch.numbers(line)
        here = ground or GROUNDS.get(kind, "")
        gutter = [TextPiece(f"{old or '':>{NUMBER}} {new or '':>{NUMBER}} ", "quiet"), TextPiece(chr(kind))]
        text = self.lit(self._lines.pieces(file, line))
        return Strip.join([self.strip(gutter, room, here), self.strip(text, max(1, width - room), here, self._x)])

    def _pair(self, file: int, lines: tuple[int, int], width: int, ground: str) -> Strip:
        words = self._lines.changed_words(*lines)
        half = (width - 1) // 2
        return Strip.join(
            [
                self._half(file, lines[0], OLD, words[0], half, ground),
                self.strip([TextPiece("│", "quiet")], 1, ground),
                self._half(file, lines[1], NEW, words[1], width - half - 1, ground),
            ]
        )

    def _half(self, file: int, line: int, side: Side, words: Spans, width: int, ground: str) -> Strip:
        if line == NONE:
            return self.strip((), width, ground or "code")
        kind, room = self._lines.kind(line), NUMBER + 2
        here = ground or GROUNDS.get(kind, "")
        gutter = [TextPiece(f"{self._rows.patch.numbers(line)[side] or '':>{NUMBER}} ", "quiet"), TextPiece(chr(kind))]
        text = self.lit(self._lines.pieces(file, line, words))
        return Strip.join([self.strip(gutter, room, here), self.strip(text, max(1, width - room), here, self._x)])
