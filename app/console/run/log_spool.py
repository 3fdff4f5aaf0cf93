"""A stretch of a log on disk; its lines are found by counting, and not held in memory."""

import os
import re
import tempfile
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from re import Pattern
from typing import IO, Final

from storage.errors import DiskFailedError
from storage.records.results import LogChunk

BLOCK: Final = 256 * 1024
"""Bytes whose line ends are counted together."""
LONGEST: Final = 16 * 1024
"""Bytes read of a line."""
_END: Final = re.compile(b"\n")
MOST_COUNTED: Final = 16
"""Blocks whose line ends are kept."""


@dataclass(slots=True)
class LogBlock:
    """A piece of the file."""

    offset: int
    size: int
    ends: int
    """How many lines end in it."""


class LogSpool:
    """One contiguous stretch of a log."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        """None: nothing was written yet."""
        self._blocks: list[LogBlock] = []
        self._before: list[int] = [0]
        """The number of lines that end before each block."""
        self._ends: OrderedDict[int, list[int]] = OrderedDict()
        """Line ends by the block's offset."""
        self._is_open = False
        """Whether the last line is incomplete."""
        self._is_closed = False
        self._lock = threading.Lock()
        """Guards the line ends, which a search reads in a thread."""

    def close(self) -> None:
        """Delete the file."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    @property
    def begin(self) -> int:
        """The offset of the first byte held."""
        return self._blocks[0].offset if self._blocks else 0

    @property
    def end(self) -> int:
        """The offset after the last byte held."""
        return self._blocks[-1].offset + self._blocks[-1].size if self._blocks else 0

    @property
    def count(self) -> int:
        """The number of lines held; the first may be partial."""
        return self._before[-1] + self._is_open

    def clear(self) -> None:
        """Drop all lines."""
        if self._file is not None and not self._is_closed:
            self._file.truncate(0)
        self._blocks, self._is_open = [], False
        self._counted()

    def put(self, chunk: LogChunk) -> int:
        """Append a piece, or replace everything if it does not join; return how many lines came before it.

        Raises:
            DiskFailedError: It cannot be stored.
        """
        if self._is_closed:
            return 0
        data, offset, held = chunk.data, chunk.offset, self.count
        if self._blocks and offset < self.begin <= offset + len(data):
            data = data[: self.begin - offset]
            self._write(offset, data)
            self._blocks.insert(0, LogBlock(offset, len(data), data.count(b"\n")))
            self._counted()
            return self.count - held
        if self._blocks and offset != self.end:
            self.clear()
        if data:
            self._append(offset, data)
        return 0

    def line(self, row: int) -> bytes:
        """Return a line without its end; of a very long one its beginning, or its end if it was overwritten."""
        begin = self._start(row)
        end = self._start(row + 1) - 1 if row < self._before[-1] else self.end
        found = self._read(begin, min(end - begin, LONGEST))
        if end - begin > LONGEST and b"\r" in found:
            return self._read(end - LONGEST, LONGEST)
        return found

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """Return the next matching line from here on (step 1), or before (step -1); None: no match, or closed."""
        if not self.count:
            return None
        try:
            at = self._start(max(0, min(begin, self.count))) if begin < self.count else self.end
            return self._find_after(pattern, at) if step > 0 else self._find_before(pattern, at)
        except ValueError:
            # The screen was closed during a search in a thread.
            if self._is_closed:
                return None
            raise

    def _find_after(self, pattern: Pattern[bytes], at: int) -> int | None:
        while data := self._read(at, min(BLOCK, self.end - at)):
            data = data[: data.rfind(b"\n") + 1] or data
            if match := pattern.search(data):
                return self._row(at + match.start())
            at += len(data)
        return None

    def _find_before(self, pattern: Pattern[bytes], at: int) -> int | None:
        while at > self.begin:
            first = max(self.begin, at - BLOCK)
            data = self._read(first, at - first)
            cut = data.find(b"\n") + 1 if first > self.begin else 0
            cut = cut if cut < len(data) else 0
            matches = list(pattern.finditer(data, cut))
            if matches:
                return self._row(first + matches[-1].start())
            at = first + cut
        return None

    def _append(self, offset: int, data: bytes) -> None:
        self._write(offset, data)
        ends, last = data.count(b"\n"), self._blocks[-1] if self._blocks else None
        if last is not None and last.size + len(data) <= BLOCK:
            with self._lock:
                self._ends.pop(last.offset, None)
                last.size += len(data)
                last.ends += ends
        else:
            self._blocks.append(LogBlock(offset, len(data), ends))
        self._is_open = not data.endswith(b"\n")
        self._counted()

    def _counted(self) -> None:
        self._before = list(accumulate((block.ends for block in self._blocks), initial=0))
        if not self._blocks:
            self._ends.clear()

    def _start(self, row: int) -> int:
        """The offset of a line: after the end of the one before it."""
        if row <= 0:
            return self.begin
        index = bisect_left(self._before, row) - 1
        block = self._blocks[index]
        return block.offset + self._ends_of(block)[row - self._before[index] - 1] + 1

    def _row(self, offset: int) -> int:
        if not self._blocks:  # Cleared during the search.
            return 0
        index = bisect_right(self._blocks, offset, key=lambda block: block.offset) - 1
        block = self._blocks[index]
        return self._before[index] + bisect_left(self._ends_of(block), offset - block.offset)

    def _ends_of(self, block: LogBlock) -> list[int]:
        with self._lock:
            found = self._ends.get(block.offset)
            if found is None:
                data = self._read(block.offset, block.size)
                found = self._ends[block.offset] = [match.start() for match in _END.finditer(data)]
                if len(self._ends) > MOST_COUNTED:
                    self._ends.popitem(last=False)
            return found

    def _write(self, offset: int, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the screen
            os.pwrite(self._file.fileno(), data, offset)
        except OSError as error:
            folder = Path(tempfile.gettempdir())
            raise DiskFailedError(f"The log cannot be kept in {folder}: {error.strerror}.", path=folder) from error

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), max(0, size), offset) if self._file is not None else b""
