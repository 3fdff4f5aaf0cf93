"""A diff of any size, file by file: one column of lines, or the old file next to the new one."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import zip_longest
from typing import ClassVar, Final, Literal

from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from app.engine.text import safe_text
from app.results.diff import HEADER, HUNK, Patch
from storage.records.results import ChangedFile
from widgets.kit import hidden, keyless
from widgets.kit.cells import beside, join_parts, shorten
from widgets.kit.text_view import MAX_LINE, TAB, TextPiece, TextView, overlay, safe_line

ColourSpan = tuple[int, int, str]
"""The beginning and the end of a span, in characters, and its tone."""
Colours = Sequence[Sequence[ColourSpan]]
"""The coloured spans of each line of a file."""
Spans = tuple[tuple[int, int], ...]
"""Parts of a line: the beginning and the end of each, in characters."""
MAX_BYTES: Final = 300_000
"""A larger file is not coloured."""
MAX_CHARACTERS: Final = 2_000
"""A file with a longer line is not coloured: lexers take seconds for one."""
MAX_WORDS: Final = 300
LEAST_ALIKE: Final = 0.35
"""The similarity from which two lines are compared word by word."""
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")
ADDED: Final = ord("+")
REMOVED: Final = ord("-")
CONTEXT: Final = ord(" ")
NONE: Final = -1
"""Stands for a line that this side does not have."""
LINE_BACKGROUNDS: Final = {ADDED: "added", REMOVED: "removed"}
SIGNED: Final = {ADDED, REMOVED, CONTEXT}
"""The kinds of lines whose first character is a sign, not content."""
COUNTS: Final = 24
"""Cells left for the counts behind a file's name."""
LEAST_NAME: Final = 10
SPLIT_FROM: Final = 160
"""Columns of the screen from which old and new are side by side."""
NUMBER: Final = 5
ACTIONS: Final = frozenset({"file", "hunk", "fold", "fold_all", "split"})
"""The actions that need at least one file."""
HEADING: Final = -1
Side = Literal[0, 1]
OLD: Final = 0
NEW: Final = 1
"""The indexes of the two sides in a pair."""


def colours(blob: bytes, name: str) -> Colours:
    """The syntax of a file with this name; empty if it is not known or would take too long. Runs in a thread."""
    if len(blob) > MAX_BYTES or any(len(line) > MAX_CHARACTERS for line in blob.split(b"\n")):
        return ()
    from pygments.lexers import get_lexer_for_filename
    from pygments.token import Comment, Keyword, Name, Number, Operator, String
    from pygments.util import ClassNotFound

    tones = {
        Comment: "comment",
        Keyword: "keyword",
        Operator.Word: "keyword",
        String: "string",
        Number: "number",
        Name.Function: "function",
        Name.Class: "function",
        Name.Decorator: "function",
        Name.Tag: "keyword",
    }

    try:
        lexer = get_lexer_for_filename(name.rsplit("/", 1)[-1], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return ()
    lines: list[list[ColourSpan]] = [[]]
    column = 0
    # One character for each, so that the columns stay those of the file.
    text = blob.decode("utf-8", "replace").replace("\r", " ").replace("\ufeff", " ")
    for token, words in lexer.get_tokens(text):
        tone = next((tone for kind, tone in tones.items() if token in kind), "")
        for number, part in enumerate(words.split("\n")):
            if number:
                lines.append([])
                column = 0
            if tone and part:
                lines[-1].append((column, column + len(part), tone))
            column += len(part)
    return lines


@lru_cache(maxsize=512)
def changed_words(old: str, new: str) -> tuple[Spans, Spans]:
    """The spans in which an old and a new line differ; none if the lines have too little in common."""
    before = _WORDS.findall(old)
    after = _WORDS.findall(new)
    if max(len(before), len(after)) > MAX_WORDS:
        return (), ()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < LEAST_ALIKE:
        return (), ()
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return _spans(before, [edit[1:3] for edit in edits]), _spans(after, [edit[3:5] for edit in edits])


def _spans(words: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Spans:
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    return tuple((ends[begin], ends[end]) for begin, end in ranges if begin < end)


@dataclass(slots=True)
class FileRows:
    """The rows of one file, in one of the two layouts."""

    left: "array[int]" = field(default_factory=lambda: array("i"))
    """The number of the old line in the patch for each row, or `NONE`."""
    right: "array[int]" = field(default_factory=lambda: array("i"))
    """The same of the new line; unified, both are the row's one line."""
    hunks: "array[int]" = field(default_factory=lambda: array("i"))

    def add(self, left: int, right: int) -> None:
        self.left.append(left)
        self.right.append(right)

    def row_of(self, line: int) -> int | None:
        return next((row for row in range(len(self.left)) if line in {self.left[row], self.right[row]}), None)


class DiffRows(Struct, eq=False):
    """All rows, found in steps: the first screen does not wait for the last line."""

    patch: Patch
    unified: list[FileRows] = []
    split: list[FileRows] = []
    is_complete: bool = False
    _next: int = 0
    """The first line of the patch that has no row yet."""
    _removed: list[int] = []
    _added: list[int] = []

    def extend(self, lines: int) -> None:
        """Find the rows of this many further lines."""
        patch = self.patch
        patch.read(self._next + lines)
        for line in range(self._next, len(patch.kinds)):
            kind = patch.kinds[line]
            files = patch.files
            if len(self.unified) < len(files) and files[len(self.unified)].line == line:
                self._flush()
                self.unified.append(FileRows())
                self.split.append(FileRows())
            if kind == HEADER or not self.unified:
                continue
            unified = self.unified[-1]
            split = self.split[-1]
            if kind in {REMOVED, ADDED}:
                (self._removed if kind == REMOVED else self._added).append(line)
            else:
                self._flush()
                if kind == HUNK:
                    unified.hunks.append(len(unified.left))
                    split.hunks.append(len(split.left))
                split.add(line, line)
            unified.add(line, line)
        self._next = len(patch.kinds)
        if patch.is_complete:
            self._flush()
            self.is_complete = True

    def _flush(self) -> None:
        for left, right in zip_longest(self._removed, self._added, fillvalue=NONE):
            self.split[-1].add(left, right)
        self._removed.clear()
        self._added.clear()


class DiffView(TextView):
    """Draws a patch file by file; a file can be folded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_curly_bracket", "file(1)", "next file", id="diff.next_file"),
        hidden("left_curly_bracket", "file(-1)", "previous file", id="diff.prev_file"),
        Binding("right_parenthesis", "hunk(1)", "next hunk", id="diff.next_hunk"),
        hidden("left_parenthesis", "hunk(-1)", "previous hunk", id="diff.prev_hunk"),
        hidden("z", "fold", "fold", tooltip="Fold the file under the cursor", id="diff.fold"),
        keyless("fold_all", "fold all", tooltip="Fold or unfold all files", id="diff.fold_all"),
        hidden("vertical_line", "split", "side by side", id="diff.split"),
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
        self._rows = DiffRows(Patch(b""))
        self._facts: dict[str, ChangedFile] = {}
        """The files by name, as far as their facts are known already."""
        self._colours: dict[int, tuple[Colours, Colours]] = {}
        """The syntax colours of each file's old and new text."""
        self._about: Sequence[str] = ()
        self._starts: list[int] = []
        """The line of each file's name, by file."""
        self._folded: set[int] = set()
        self._split: bool | None = None
        """Whether old and new are side by side. None: the width decides."""
        self._is_whole_file = False
        self.is_split = False
        """Whether old and new are side by side: as the rows were laid out last."""
        self._asked: set[int] = set()
        self._entered = NONE

    def show(
        self, rows: DiffRows, files: Sequence[ChangedFile], about: Sequence[str], *, is_whole_file: bool = False
    ) -> None:
        """Show a patch and the facts of its files; `about` names its origin, what matters most first.

        A whole file, none of whose lines changed, is not shown twice side by side.
        """
        self._is_whole_file = is_whole_file
        self._rows = rows
        self._about = about
        self._facts = {file.path: file for file in files}
        self._colours = {}
        self._folded = set()
        self._asked = set()
        self._entered = NONE
        self.cursor = self._x = 0
        self.scroll_rows_to(0)
        self.grew()
        self.cursor_moved()

    def grew(self) -> None:
        """Take further rows of the patch into the view."""
        is_split = self.screen.size.width >= SPLIT_FROM if self._split is None else self._split
        self.is_split = is_split and not self._is_whole_file
        starts, at = [], 0
        for number, file in enumerate(self._files):
            starts.append(at)
            at += 1 if number in self._folded else 1 + len(file.left)
        self._starts = starts
        self.resize_to(at)
        self.rows_came_into_view()

    def colour(self, file: int, old: Colours, new: Colours) -> None:
        self._colours[file] = old, new
        self.refresh()

    def go_to_file(self, file: int) -> None:
        if file < len(self._starts):
            self.scroll_rows_to(self._starts[file])
            self.put_cursor(self._starts[file])

    def go_to_line(self, path: str, line: int | None) -> bool:
        """Put the cursor on this line of the new file, or on the nearest one; return whether the file is there."""
        files = self._rows.patch.files
        file = next((number for number in range(len(self._starts)) if files[number].path == path), None)
        if file is None:
            return False
        if file in self._folded:
            self._folded.discard(file)
            self.grew()
        self.go_to_file(file)
        lines = ((row, at) for row, at in enumerate(self._files[file].right) if at != NONE)
        numbers = ((row, self._rows.patch.numbers(at)[NEW]) for row, at in lines)
        nearest = min(((abs(there - line), row) for row, there in numbers if line and there), default=None)
        if nearest is not None:
            self.put_cursor(self._starts[file] + 1 + nearest[1])
            self.scroll_rows_to(self.cursor - self.page // 3)
        return True

    @property
    def count(self) -> int:
        """The number of files, as far as they were read."""
        return len(self._starts)

    @property
    def file(self) -> int | None:
        return self._file_and_row(self.cursor)[0] if self._starts else None

    def changed_file(self, file: int) -> ChangedFile:
        """The facts of a file so far."""
        patched = self._rows.patch.files[file]
        return self._facts.get(patched.path) or patched.changed_file()

    def hunk_text(self) -> str:
        """The hunk under the cursor, or the first one of its file, as safe lines; "" without one."""
        if not self._starts:
            return ""
        file, row = self._file_and_row(self.cursor)
        line = max(self._files[file].left[row], self._files[file].right[row]) if row != HEADING else NONE
        hunks = self._rows.patch.files[file].hunks
        hunk = next((candidate for candidate in hunks if line == NONE or candidate.line <= line < candidate.end), None)
        if hunk is None:
            return ""
        return "\n".join(safe_line(self._raw(at)) for at in range(hunk.line, hunk.end))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ACTIONS:
            return bool(self._starts)
        return super().check_action(action, parameters)

    def action_file(self, step: int) -> None:
        if self._starts:
            self.go_to_file(min(max(0, self._file_and_row(self.cursor)[0] + step), len(self._starts) - 1))

    def action_hunk(self, step: int) -> None:
        files = range(len(self._starts)) if step > 0 else range(len(self._starts) - 1, -1, -1)
        for file in files:
            hunks = self._files[file].hunks if file not in self._folded else ()
            for row in hunks if step > 0 else reversed(hunks):
                at = self._starts[file] + 1 + row
                if (at - self.cursor) * step > 0:
                    self.put_cursor(at)
                    return

    def action_fold(self) -> None:
        self._fold(self._folded ^ {self._file_and_row(self.cursor)[0]})

    def action_fold_all(self) -> None:
        every = set(range(len(self._starts)))
        self._fold(set() if self._folded == every else every)

    def _fold(self, files: set[int]) -> None:
        file = self._file_and_row(self.cursor)[0]
        self._folded = files
        self.grew()
        self.put_cursor(self._starts[file])

    def action_split(self) -> None:
        self._lay_out(not self.is_split)

    def _lay_out(self, split: bool | None) -> None:
        """Lay out the rows with the cursor on its line; None: the width decides."""
        before = self.is_split
        self._split = split
        file, row = self._file_and_row(self.cursor)
        line = max(self._files[file].left[row], self._files[file].right[row]) if row != HEADING else NONE
        self.grew()
        if self.is_split != before:
            place = self._files[file].row_of(line) if line != NONE else None
            self.put_cursor(self._starts[file] + 1 + (HEADING if place is None else place))

    def row_clicked(self, event: events.Click) -> None:
        if self._file_and_row(self.cursor)[1] == HEADING and event.x < NUMBER:
            self.action_fold()

    def on_resize(self) -> None:
        if self._starts:
            self._lay_out(self._split)
        else:
            self.grew()

    def cursor_moved(self) -> None:
        file = self.file
        if file is not None and file != self._entered:
            self._entered = file
            self.post_message(self.FileEntered(file))
        self.repaint_header()

    def rows_came_into_view(self) -> None:
        if self._starts:
            visible = self.visible_rows
            first, last = (self._file_and_row(row)[0] for row in (visible.start, max(visible.start, visible.stop - 1)))
            for file in range(first, last + 1):
                if file not in self._asked and file not in self._folded:
                    self._asked.add(file)
                    self.post_message(self.ColoursRequested(file))
        self.repaint_header()

    def head(self) -> Sequence[TextPiece]:
        width = self.scrollable_content_region.width
        if not self._starts:
            return (TextPiece(f" {join_parts(self._about, width - 1)}", "quiet"),)
        file = self._file_and_row(self.scroll_offset.y)[0]
        count = f" {file + 1:,}/{max(len(self._facts), len(self._starts)):,}  "
        path, about = beside(safe_line(self._rows.patch.files[file].path), self._about, width - len(count) - 3)
        return (TextPiece(count, "quiet"), TextPiece(path, "accent"), TextPiece(f"   {about}", "quiet"))

    def draw(self, index: int, width: int, ground: str) -> Strip:
        """A file's name, a line, or an old line next to its new one."""
        file, row = self._file_and_row(index)
        if row == HEADING:
            return self.strip(self._heading(file, width), width, ground or "file")
        rows = self._files[file]
        kinds = self._rows.patch.kinds
        left = rows.left[row]
        right = rows.right[row]
        if self.is_split and (left != right or kinds[left] == CONTEXT):
            is_pair = NONE not in {left, right} and left != right
            words = changed_words(self._raw(left)[1:], self._raw(right)[1:]) if is_pair else ((), ())
            half = (width - 1) // 2
            old = self._half(file, left, OLD, words[0], half, ground)
            new = self._half(file, right, NEW, words[1], width - half - 1, ground)
            return Strip.join([old, self.strip([TextPiece("│", "quiet")], 1, ground), new])
        if kinds[left] not in SIGNED:
            hunk = TextPiece(" " * (2 * NUMBER + 3)), TextPiece(safe_line(self._raw(left)), "accent")
            return self.strip(hunk, width, ground or "code")
        before, after = self._rows.patch.numbers(left)
        return self._line(file, left, f"{before or '':>{NUMBER}} {after or '':>{NUMBER}} ", (), width, ground)

    def texts(self, row: int) -> Iterator[bytes]:
        """The lines on show in a row, without their signs."""
        file, at = self._file_and_row(row)
        lines = set() if at == HEADING else {self._files[file].left[at], self._files[file].right[at]} - {NONE}
        return (self._rows.patch.line(line, MAX_LINE)[1:] for line in lines)

    @property
    def _files(self) -> list[FileRows]:
        return self._rows.split if self.is_split else self._rows.unified

    def _file_and_row(self, index: int) -> tuple[int, int]:
        file = max(0, bisect_right(self._starts, index) - 1)
        return file, index - self._starts[file] - 1

    def _half(self, file: int, line: int, side: Side, words: Spans, width: int, ground: str) -> Strip:
        if line == NONE:
            return self.strip((), width, ground or "code")
        number = self._rows.patch.numbers(line)[side]
        return self._line(file, line, f"{number or '':>{NUMBER}} ", words, width, ground)

    def _line(self, file: int, line: int, numbers: str, words: Spans, width: int, ground: str) -> Strip:
        kind = self._rows.patch.kinds[line]
        room = len(numbers) + 1
        background = ground or LINE_BACKGROUNDS.get(kind, "")
        gutter = self.strip([TextPiece(numbers, "quiet"), TextPiece(chr(kind))], room, background)
        text = self.lit(self._pieces(file, line, words))
        return Strip.join([gutter, self.pan(text, max(1, width - room), background)])

    def _heading(self, file: int, width: int) -> list[TextPiece]:
        facts = self.changed_file(file)
        notes = [f"from {safe_text(facts.old_path)}"] if facts.old_path else []
        notes += [facts.kind] if facts.kind not in {"modified", "mode"} else []
        notes += ["binary"] if facts.is_binary else []
        if facts.old_mode and facts.new_mode and facts.old_mode != facts.new_mode:
            notes.append(f"mode {safe_text(facts.old_mode)} → {safe_text(facts.new_mode)}")
        counts = [] if facts.additions is None else [TextPiece(f"  +{facts.additions:,}", "good")]
        counts += [] if facts.deletions is None else [TextPiece(f" -{facts.deletions:,}", "bad")]
        name = shorten(safe_line(facts.path), max(LEAST_NAME, width - COUNTS), "middle")
        fold = "▸ " if file in self._folded else "▾ "
        note = f"  {' · '.join(notes)}"
        return [TextPiece(fold, "quiet"), TextPiece(name), *counts, TextPiece(note, "quiet")]

    def _pieces(self, file: int, line: int, words: Spans) -> Sequence[TextPiece]:
        """A line without its sign, with the changed words marked."""
        raw = self._raw(line)[1:]
        text = safe_line(raw)
        kind = self._rows.patch.kinds[line]
        wider = len(TAB) - 1
        if len(text) != len(raw) + wider * raw.count("\t"):
            return [TextPiece(text)]  # Characters were removed, so the columns of the spans are unknown.

        def shift_column(column: int) -> int:
            return column + wider * raw.count("\t", 0, column)

        pieces, done = [], 0
        side = OLD if kind == REMOVED else NEW
        colours = self._colours[file][side] if file in self._colours else ()
        number = self._rows.patch.numbers(line)[side]
        coloured = colours[number - 1] if number and number <= len(colours) else ()
        for begin, end, tone in coloured:
            pieces += [
                TextPiece(text[done : shift_column(begin)]),
                TextPiece(text[shift_column(begin) : shift_column(end)], tone),
            ]
            done = shift_column(end)
        pieces.append(TextPiece(text[done:]))
        if words:
            spans = [(shift_column(begin), shift_column(end)) for begin, end in words]
            pieces = overlay(pieces, spans, f"{LINE_BACKGROUNDS[kind]}-word")
        return pieces

    def _raw(self, line: int) -> str:
        return self._rows.patch.line(line, MAX_LINE + 2).decode("utf-8", "replace")
