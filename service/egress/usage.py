"""The cost of a model's answers: their tokens, as each provider reports them, and the price."""

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Self

from service.agents.outcome import Ending
from service.agents.prices import ListPrice, Price
from service.text import items, table

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MAX_EVENT_BYTES: Final = 32 << 20
"""The most bytes of one event; a longer one is dropped."""


@dataclass(slots=True)
class EventStream:
    """Reads one stream in pieces of any size; yields the name and the data of each event."""

    is_cut: bool = False
    """Whether an event was too long to be held."""
    _held: bytearray = field(default_factory=bytearray)
    """The beginning of a line."""
    _name: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _is_first: bool = True
    _skips_newline: bool = False
    _drops_line: bool = False

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the events that a piece completes; CR, LF and CR LF end a line."""
        if self._skips_newline and piece:
            # The CR already ended its line, and a following LF belongs to it.
            piece, self._skips_newline = piece.removeprefix(b"\n"), False
        self._skips_newline |= piece.endswith(b"\r")
        first, *lines = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._held += first
        for line in lines:
            if not self._drops_line:
                yield from self._line(bytes(self._held))
            self._drops_line, self._held = False, bytearray(line)
        if self._size + len(self._held) > _MAX_EVENT_BYTES:
            self._held.clear()
            self._data, self._size = [], 0
            self._drops_line = self.is_cut = True

    def end(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield an unfinished last event as if it were complete, because its tokens were spent too."""
        yield from self.feed(b"\n\n")

    def _line(self, line: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BYTE_ORDER_MARK), False
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


_MAX_ANSWER: Final = 32 << 20
_ENDINGS: Final[dict[str, Ending]] = {
    **dict.fromkeys(("max_tokens", "length", "max_output_tokens", "MAX_TOKENS"), "cut_short"),
    **dict.fromkeys(("refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT"), "refused"),
}
_FRAME_HEAD: Final = 12
_CHECKSUM: Final = 4
_LAST_TYPES: Final = frozenset({"message_stop", "response.completed", "response.incomplete"})
"""The types of event with which a stream ends as it should."""
BYTES_PER_TOKEN: Final = 4
"""The assumed length of a token, for answers whose tokens the provider did not report."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens; `input` excludes those read from or written to the provider's cache."""

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.cached + self.cache_write + self.output

    def most(self, other: Self) -> "Usage":
        """Return the larger figure of each kind: a stream reports running totals."""
        return Usage(*map(max, astuple(self), astuple(other)))

    def micro_usd(self, price: Price | None) -> int | None:
        """Return the cost of one request in millionths of a dollar; None: the price is not known."""
        if price is None:
            return None
        if isinstance(price, ListPrice) and price.beyond is not None:
            longest, other = price.beyond
            price = other if self.input + self.cached + self.cache_write > longest else price
        cached = price.input if price.cached is None else price.cached
        written = price.input if price.cache_write is None else price.cache_write
        inputs = self.input * price.input + self.cached * cached + self.cache_write * written
        # Dollars for a million tokens are millionths of a dollar for one.
        return round(inputs + self.output * price.output)


class Meter:
    """Reads the usage from one answer while it passes.

    The declared type alone does not decide how an answer is read, because programs ignore it too: an answer that begins
    like JSON is read as a document, and every answer is also read as a stream of events.
    """

    def __init__(self, request_bytes: int, content_type: str) -> None:
        content_type = content_type.lower()
        self._is_framed = "amazon.eventstream" in content_type
        self._is_declared = self._is_framed or "event-stream" in content_type
        """Whether its type says that it is a stream."""
        self._events = EventStream()
        self._has_events = False
        self._is_document: bool | None = None
        """Whether the answer is one JSON document; None: nothing but blanks has come."""
        self._held = bytearray()
        self._received = 0
        self._request_bytes = request_bytes
        self._counted = Usage()
        self._has_ended = False
        self.ending: Ending | None = None
        """How the answer ended; None: as it should, or not yet."""
        self.error: bytes | None = None
        """The event in a stream with which the provider gave it up."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete; a closed connection alone does not prove that."""
        if self._has_events or (self._is_declared and not self._is_document):
            return (self._has_ended or self._events.is_cut) and self.error is None
        # For a document, looking at both ends is enough.
        is_closed = not self._is_document or self._held.strip()[-1:] in b"}]"
        return self._has_ended or (self._is_document is not None and is_closed)

    def feed(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._is_framed:
            self._held += piece
            # AWS's event stream has frames: lengths, headers, and JSON with an event in base64.
            while len(self._held) >= _FRAME_HEAD:
                length = int.from_bytes(self._held[:4])
                if length < _FRAME_HEAD + _CHECKSUM:
                    self._held.clear()
                    self._has_ended = True
                if len(self._held) < length or not self._held:
                    break
                start = _FRAME_HEAD + int.from_bytes(self._held[4:8])
                with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                    self._read(base64.b64decode(json.loads(self._held[start : length - _CHECKSUM])["bytes"]))
                del self._held[:length]
        else:
            if self._is_document is None and (begun := piece.lstrip(b"\xef\xbb\xbf \t\r\n")):
                self._is_document = begun[:1] in b"{["
            if self._is_document:
                self._held += piece
            for name, data in self._events.feed(piece):
                self._read_event(name, data)
        if len(self._held) > _MAX_ANSWER:
            # An answer too large to keep cannot be parsed, and counts as complete.
            self._held, self._is_document, self._has_ended = bytearray(), False, True

    def total(self, *, is_complete: bool) -> Usage:
        """Return the answer's usage, or an estimate by length if the provider did not report it."""
        for name, data in self._events.end():
            self._read_event(name, data)
        self._read(bytes(self._held))
        self._held.clear()
        output = self._received // BYTES_PER_TOKEN
        if self._counted.tokens == 0:
            return Usage(input=self._request_bytes // BYTES_PER_TOKEN, output=output)
        if is_complete:
            return self._counted
        return self._counted.most(Usage(output=output))

    def _read_event(self, name: bytes, data: bytes) -> None:
        self._has_events = True
        if data.strip() == b"[DONE]":
            self._has_ended = True
        self._read(data)
        if name == b"error":
            self.error = data

    def _read(self, text: bytes) -> None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        for part in filter(None, map(table, document if isinstance(document, list) else [document])):
            self._counted = self._counted.most(_usage_in(part))
            self.ending = _ending_in(part) or self.ending
            # The provider may add events after the last one.
            choices = map(table, items(part.get("choices") or part.get("candidates")))
            self._has_ended |= (
                str(part.get("type")) in _LAST_TYPES
                or bool(table(part.get("promptFeedback")).get("blockReason"))
                or any(isinstance(row.get("finish_reason") or row.get("finishReason"), str) for row in choices)
            )
            if isinstance(part.get("error"), dict) or part.get("type") == "response.failed":
                self.error = text


def _usage_in(document: dict[str, object]) -> Usage:
    for holder in map(table, (document, document.get("message"), document.get("response"))):
        if isinstance(usage := holder.get("usage"), dict):
            cached = _number(usage.get("input_tokens_details") or usage.get("prompt_tokens_details"), "cached_tokens")
            # OpenAI's input includes cached tokens, Anthropic's does not.
            whole = _number(usage, "input_tokens") or _number(usage, "prompt_tokens")
            return Usage(
                max(0, whole - cached),
                cached + _number(usage, "cache_read_input_tokens"),
                _number(usage, "cache_creation_input_tokens"),
                _number(usage, "output_tokens") or _number(usage, "completion_tokens"),
            )
        if isinstance(usage := holder.get("usageMetadata"), dict):
            cached = _number(usage, "cachedContentTokenCount")
            whole = _number(usage, "promptTokenCount") + _number(usage, "toolUsePromptTokenCount")
            output = _number(usage, "candidatesTokenCount") + _number(usage, "thoughtsTokenCount")
            return Usage(max(0, whole - cached), cached, 0, output)
    return Usage()


def _ending_in(document: dict[str, Any]) -> Ending | None:
    """Return why an answer stopped, from the fields of Anthropic, OpenAI's two interfaces, or Gemini."""
    if table(document.get("promptFeedback")).get("blockReason"):
        return "refused"
    choices = items(document.get("choices") or document.get("candidates"))
    for holder in map(table, (document, document.get("delta"), document.get("response"), *choices)):
        reason = table(holder.get("incomplete_details")).get("reason")
        for word in (holder.get("stop_reason"), holder.get("finish_reason"), holder.get("finishReason"), reason):
            if isinstance(word, str) and word in _ENDINGS:
                return _ENDINGS[word]
        if table(holder.get("message") or holder.get("delta")).get("refusal"):
            return "refused"
    parts = items(table(document.get("item")).get("content"))
    if any(table(part).get("type") == "refusal" for part in parts):
        return "refused"
    return None


def _number(usage: object, key: str) -> int:
    value = table(usage).get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return value
    return 0
