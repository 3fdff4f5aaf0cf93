"""Event streams, read to the letter of the WHATWG's standard while they pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LONGEST: Final = 32 << 20
"""The most bytes of one event; a longer one is dropped."""


@dataclass(slots=True)
class EventStream:
    """Reads one stream in pieces of any size; yields the name and the data of each event."""

    is_cut: bool = False
    """Whether an event was too long to be held."""
    _held: bytearray = field(default_factory=bytearray)
    _looked_at: int = 0
    _name: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _is_first: bool = True
    _skips_newline: bool = False
    _drops_line: bool = False

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the events that a piece completes."""
        self._held += piece
        if self._is_first:
            if len(self._held) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(bytes(self._held)):
                return
            self._is_first = False
            if self._held.startswith(_BYTE_ORDER_MARK):
                del self._held[: len(_BYTE_ORDER_MARK)]
        at = 0
        for line, at in self._lines():  # noqa: B007 — used after the loop
            yield from self._line(line)
        del self._held[:at]
        self._looked_at = len(self._held)
        if self._size + len(self._held) > _LONGEST:
            self._held.clear()
            self._data, self._size, self._looked_at = [], 0, 0
            self._drops_line = self.is_cut = True

    def end(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield an unfinished last event as if it were complete, because its tokens were spent too."""
        if self._held and not self._drops_line:
            yield from self._line(bytes(self._held))
            self._held.clear()
        yield from self._line(b"")

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield each whole line, with where the next one begins; CR, LF and CR LF end a line."""
        start, look = 0, self._looked_at
        while True:
            if self._skips_newline and start < len(self._held):
                # A CR ends its line at once; an LF that follows belongs to it.
                self._skips_newline = False
                if self._held[start] == ord("\n"):
                    start += 1
            look = max(look, start)
            ends = [at for at in (self._held.find(b"\r", look), self._held.find(b"\n", look)) if at >= 0]
            if not ends:
                if start:
                    yield b":", start
                return
            end = min(ends)
            line, self._drops_line = (b":" if self._drops_line else bytes(self._held[start:end])), False
            self._skips_newline = self._held[end] == ord("\r")
            start = look = end + 1
            yield line, start

    def _line(self, line: bytes) -> Iterator[tuple[bytes, bytes]]:
        if not line:
            if self._data:
                yield self._name, b"\n".join(self._data)
            self._name, self._data, self._size = b"", [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._name = value
