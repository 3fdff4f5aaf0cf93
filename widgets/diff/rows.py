"""The rows of a diff: a line of the patch each, or an old line beside its new one."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, Protocol

from storage.records.results import ChangedFile

ADDED: Final = ord("+")
REMOVED: Final = ord("-")
CONTEXT: Final = ord(" ")
HUNK: Final = ord("@")
HEADER: Final = ord("d")
"""A line outside of every hunk."""
NONE: Final = -1
"""Stands for a line that this side does not have."""


class FileLines(Protocol):
    """One file of a patch."""

    line: int
    """Of the patch, where it begins."""

    @property
    def path(self) -> str:
        """Its name; not safe text."""

    def changed(self) -> ChangedFile:
        """The patch's facts of it."""


class PatchLines(Protocol):
    """A patch, line by line: one thread reads on while another shows."""

    kinds: bytearray
    """By line: `@`, ` `, `+`, `-`, `\\` or `HEADER`."""
    is_complete: bool

    @property
    def files(self) -> Sequence[FileLines]:
        """Those that were read."""

    def read(self, lines: int | None = None) -> None:
        """Read on until so many lines are known."""

    def line(self, number: int, limit: int = ...) -> bytes:
        """A line that was read, cut."""

    def numbers(self, number: int) -> tuple[int | None, int | None]:
        """Its numbers in the old and in the new file."""


class NoPatch:
    """A patch without lines."""

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.is_complete = True
        self.files: tuple[FileLines, ...] = ()

    def read(self, lines: int | None = None) -> None:
        """There are none."""

    def line(self, number: int, limit: int = 0) -> bytes:
        """There is none."""
        raise IndexError(number, limit)

    def numbers(self, number: int) -> tuple[int | None, int | None]:
        """There are none."""
        raise IndexError(number)


@dataclass(slots=True)
class FileRows:
    """The rows of one file, in one of the two ways to show it."""

    left: "array[int]" = field(default_factory=lambda: array("i"))
    """By row, the number of a line of the patch."""
    right: "array[int]" = field(default_factory=lambda: array("i"))
    hunks: "array[int]" = field(default_factory=lambda: array("i"))
    """The rows on which hunks begin."""

    def add(self, left: int, right: int) -> None:
        """Add a row."""
        self.left.append(left)
        self.right.append(right)

    def hunk_of(self, row: int) -> range:
        """The rows of the hunk that holds a row; empty where there is none."""
        place = bisect_right(self.hunks, row) - 1
        if place < 0:
            return range(0)
        following = self.hunks[place + 1] if place + 1 < len(self.hunks) else len(self.left)
        return range(self.hunks[place], following)

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
            self._place(line, patch.kinds[line])
        self._next = len(patch.kinds)
        if patch.is_complete:
            self._flush()
            self.is_complete = True

    def _place(self, line: int, kind: int) -> None:
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
