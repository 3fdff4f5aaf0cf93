"""A patch as it is drawn: its lines in rows, old and new one below the other or side by side, and their pieces."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, Protocol

from app.text import safe_text
from storage.records.results import ChangedFile
from widgets.cells import shorten
from widgets.diff.colours import Colours, ColourSpan, Spans, changed_words
from widgets.text_view import LONGEST, TAB, TextPiece, overlay, safe_line

ADDED: Final = ord("+")
REMOVED: Final = ord("-")
CONTEXT: Final = ord(" ")
HUNK: Final = ord("@")
HEADER: Final = ord("d")
"""A line outside of every hunk."""
NONE: Final = -1
"""Stands for a line that this side does not have."""
GROUNDS: Final = {ADDED: "added", REMOVED: "removed"}
SIGNED: Final = {ADDED, REMOVED, CONTEXT}
"""The kinds of lines whose first character is a sign, not content."""
COUNTS: Final = 24
"""Cells left for the counts behind a file's name."""
LEAST_NAME: Final = 10


class FileLines(Protocol):
    """One file of a patch."""

    line: int
    """The line of the patch where the file begins."""

    @property
    def path(self) -> str:
        """Its name; not safe text."""

    def changed(self) -> ChangedFile:
        """The facts that the patch states about the file."""


class PatchLines(Protocol):
    """A patch, line by line: one thread may read on while another draws."""

    kinds: bytearray
    """By line: `@`, ` `, `+`, `-`, `\\` or `HEADER`."""
    is_complete: bool

    @property
    def files(self) -> Sequence[FileLines]:
        """The files that were read so far."""

    def read(self, lines: int | None = None) -> None:
        """Read on until so many lines are known."""

    def line(self, number: int, limit: int = ...) -> bytes:
        """A line that was read, cut to `limit` bytes."""

    def numbers(self, number: int) -> tuple[int | None, int | None]:
        """A line's numbers in the old and in the new file; None: it is not in that file."""


class NoPatch:
    """A patch without lines."""

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.is_complete = True
        self.files: tuple[FileLines, ...] = ()

    def read(self, lines: int | None = None) -> None:
        """Read nothing: there are no lines."""

    def line(self, number: int, limit: int = 0) -> bytes:
        """Raise IndexError: there are no lines."""
        raise IndexError(number, limit)

    def numbers(self, number: int) -> tuple[int | None, int | None]:
        """Raise IndexError: there are no lines."""
        raise IndexError(number)


@dataclass(slots=True)
class FileRows:
    """The rows of one file, in one of the two ways to show it."""

    left: "array[int]" = field(default_factory=lambda: array("i"))
    """For each row, the number of the old line in the patch, or `NONE`."""
    right: "array[int]" = field(default_factory=lambda: array("i"))
    """The same of the new line; unified, both are the row's one line."""
    hunks: "array[int]" = field(default_factory=lambda: array("i"))
    """The rows on which hunks begin."""

    def add(self, left: int, right: int) -> None:
        """Add a row."""
        self.left.append(left)
        self.right.append(right)

    def hunk_of(self, row: int) -> range:
        """The rows of the hunk that holds a row; empty where there is none."""
        index = bisect_right(self.hunks, row) - 1
        if index < 0:
            return range(0)
        end = self.hunks[index + 1] if index + 1 < len(self.hunks) else len(self.left)
        return range(self.hunks[index], end)

    def row_of(self, line: int) -> int | None:
        """The row that shows a line of the patch."""
        return next((row for row in range(len(self.left)) if line in {self.left[row], self.right[row]}), None)


class DiffRows:
    """All rows, found in steps: the first screen does not wait for the last line."""

    def __init__(self, patch: PatchLines) -> None:
        self.patch = patch
        self.unified: list[FileRows] = []
        self.split: list[FileRows] = []
        self.is_complete = False
        self._next = 0
        """The first line of the patch that has no row yet."""
        self._removed: list[int] = []
        self._added: list[int] = []

    def extend(self, lines: int) -> None:
        """Find the rows of this many further lines."""
        patch = self.patch
        patch.read(self._next + lines)
        for line in range(self._next, len(patch.kinds)):
            self._add(line, patch.kinds[line])
        self._next = len(patch.kinds)
        if patch.is_complete:
            self._flush()
            self.is_complete = True

    def _add(self, line: int, kind: int) -> None:
        files = self.patch.files
        if len(self.unified) < len(files) and files[len(self.unified)].line == line:
            self._flush()
            self.unified.append(FileRows())
            self.split.append(FileRows())
        if kind == HEADER or not self.unified:
            return
        unified, split = self.unified[-1], self.split[-1]
        if kind in {REMOVED, ADDED}:
            (self._removed if kind == REMOVED else self._added).append(line)
        else:
            self._flush()
            if kind == HUNK:
                unified.hunks.append(len(unified.left))
                split.hunks.append(len(split.left))
            split.add(line, line)
        unified.add(line, line)

    def _flush(self) -> None:
        """Put the removed lines beside the added ones."""
        for left, right in zip_longest(self._removed, self._added, fillvalue=NONE):
            self.split[-1].add(left, right)
        self._removed.clear()
        self._added.clear()


class DiffLines:
    """One patch, and what is known of its files."""

    def __init__(self, patch: PatchLines, files: Sequence[ChangedFile]) -> None:
        self._patch = patch
        self._facts = {file.path: file for file in files}
        self.colours: dict[int, tuple[Colours, Colours]] = {}
        """The syntax colours of each file's old and new text."""

    @property
    def count(self) -> int:
        """The number of files, as far as it is known."""
        return len(self._facts)

    def path(self, file: int) -> str:
        """A file's name; not safe text."""
        return self._patch.files[file].path

    def changed(self, file: int) -> ChangedFile:
        """The facts of a file so far."""
        return self._facts.get(self.path(file)) or self._patch.files[file].changed()

    def kind(self, line: int) -> int:
        """The first byte of a line."""
        kind = self._patch.kinds[line]
        return CONTEXT if kind == ord("\n") else kind

    def text(self, line: int) -> str:
        """A whole line."""
        return safe_line(self._raw(line))

    def heading(self, file: int, width: int, *, is_folded: bool) -> list[TextPiece]:
        """A file's name, its counts, and whether it was renamed, added or deleted."""
        facts = self.changed(file)
        notes = [f"from {safe_text(facts.old_path)}"] if facts.old_path else []
        notes += [facts.kind] if facts.kind not in {"modified", "mode"} else []
        notes += ["binary"] if facts.is_binary else []
        if facts.old_mode and facts.new_mode and facts.old_mode != facts.new_mode:
            notes.append(f"mode {safe_text(facts.old_mode)} → {safe_text(facts.new_mode)}")
        counts = [] if facts.additions is None else [TextPiece(f"  +{facts.additions:,}", "good")]
        counts += [] if facts.deletions is None else [TextPiece(f" -{facts.deletions:,}", "bad")]
        name = shorten(safe_line(facts.path), max(LEAST_NAME, width - COUNTS), "middle")
        return [
            TextPiece("▸ " if is_folded else "▾ ", "quiet"),
            TextPiece(name),
            *counts,
            TextPiece(f"  {' · '.join(notes)}", "quiet"),
        ]

    def changed_words(self, left: int, right: int) -> tuple[Spans, Spans]:
        """The words that differ between an old line and the one beside it."""
        if NONE in {left, right} or left == right:
            return (), ()
        return changed_words(self._raw(left)[1:], self._raw(right)[1:])

    def pieces(self, file: int, line: int, words: Spans = ()) -> Sequence[TextPiece]:
        """A line without its sign, with these changed words."""
        raw = self._raw(line)[1:]
        text, kind = safe_line(raw), self.kind(line)
        wider = len(TAB) - 1
        if len(text) != len(raw) + wider * raw.count("\t"):
            return [TextPiece(text)]  # Characters were left out: the columns of the spans are not known.

        def shifted(column: int) -> int:
            return column + wider * raw.count("\t", 0, column)

        pieces, done = [], 0
        for begin, end, tone in self._spans(file, line, kind):
            pieces += [TextPiece(text[done : shifted(begin)]), TextPiece(text[shifted(begin) : shifted(end)], tone)]
            done = shifted(end)
        pieces.append(TextPiece(text[done:]))
        if words:
            spans = [(shifted(begin), shifted(end)) for begin, end in words]
            pieces = overlay(pieces, spans, f"{GROUNDS[kind]}-word")
        return pieces

    def _raw(self, line: int) -> str:
        return self._patch.line(line, LONGEST + 2).decode("utf-8", "replace")

    def _spans(self, file: int, line: int, kind: int) -> Sequence[ColourSpan]:
        sides = self.colours.get(file)
        if sides is None:
            return ()
        side = 0 if kind == REMOVED else 1
        number = self._patch.numbers(line)[side]
        return sides[side][number - 1] if number and number <= len(sides[side]) else ()
