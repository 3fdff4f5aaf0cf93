"""The cost of a model's answers: their tokens, as each provider reports them, and the price."""

import base64
import contextlib
import json
import re
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from service.agents.outcome import Ending
from service.agents.prices import ListPrice, Price

_LONGEST_ANSWER: Final = 32 << 20
_LONGEST_LINE: Final = 8 << 20
_ENDINGS: Final[dict[str, Ending]] = {
    **dict.fromkeys(("max_tokens", "length", "max_output_tokens", "MAX_TOKENS"), "cut_short"),
    **dict.fromkeys(("refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT"), "refused"),
}
_ENDS: Final = tuple(f'"{word}"'.encode() for word in _ENDINGS)
_FRAME_HEAD: Final = 12
_CHECKSUM: Final = 4
_LAST: Final = re.compile(
    rb'"(message_stop|response\.(completed|incomplete)|blockReason)"|"(finish_reason|finishReason)"\s*:\s*"|data:\s*\[DONE\]'
)
"""In an event with which a stream ends as it should."""
_ERROR: Final = re.compile(rb'"error"\s*:\s*\{')
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
        """The sum of all kinds."""
        return self.input + self.cached + self.cache_write + self.output

    def most(self, other: Self) -> "Usage":
        """Return the larger figure of each kind: a stream reports running totals."""
        return Usage(*(max(getattr(self, one.name), getattr(other, one.name)) for one in fields(Usage)))

    def micro_usd(self, price: Price | None) -> int | None:
        """Return the cost of one request in millionths of a dollar; None: the price is not known."""
        if price is None:
            return None
        if isinstance(price, ListPrice) and price.beyond is not None:
            longest, other = price.beyond
            price = other if self.input + self.cached + self.cache_write > longest else price
        cached = price.input if price.cached is None else price.cached
        written = price.input if price.cache_write is None else price.cache_write
        # Dollars for a million tokens are millionths of a dollar for one.
        exact = (
            self.input * price.input + self.cached * cached + self.cache_write * written + self.output * price.output
        )
        return round(exact)


class Meter:
    """Reads the usage from one answer while it passes."""

    def __init__(self, request_bytes: int, content_type: str) -> None:
        self._is_framed = "amazon.eventstream" in content_type
        self._is_stream = self._is_framed or "event-stream" in content_type
        self._held = b""
        self._received = 0
        self._estimate = Usage(input=request_bytes // BYTES_PER_TOKEN)
        self._counted = Usage()
        self._has_ended = False
        self.ending: Ending | None = None
        """How the answer ended; None: as it should, or not yet."""
        self.error: bytes | None = None
        """The event in a stream with which the provider gave it up."""

    @property
    def is_whole(self) -> bool:
        """Whether what came is an answer with its end, which the end of a connection alone does not say."""
        text = self._held.strip()
        if self._is_stream:
            return (self._has_ended or bool(_LAST.search(text))) and self.error is None
        # Of a document it is enough to look at both ends.
        return self._has_ended or (bool(text) and (text[:1] not in b"{[" or text[-1:] in b"}]"))

    def feed(self, piece: bytes) -> None:
        """Take a piece of the answer."""
        self._received += len(piece)
        self._held += piece
        if self._is_framed:
            self._read_frames()
        elif self._is_stream:
            *lines, self._held = self._held.split(b"\n")
            for line in lines:
                self._has_ended = self._has_ended or bool(_LAST.search(line))
                # Most events carry a word of the answer; only those with figures, an end or an error are parsed.
                if b"usage" in line or _ERROR.search(line) or any(word in line for word in _ENDS):
                    self._read(line.removeprefix(b"data:"))
        if len(self._held) > (_LONGEST_LINE if self._is_stream else _LONGEST_ANSWER):
            # What cannot be held cannot be looked at, and is taken for whole.
            self._held, self._has_ended = b"", True

    def total(self, *, is_complete: bool) -> Usage:
        """Return the answer's usage, or an estimate by length if the provider did not report it."""
        self._read(self._held.removeprefix(b"data:"))
        self._held = b""
        output = self._received // BYTES_PER_TOKEN
        if self._counted.tokens == 0:
            return Usage(input=self._estimate.input, output=output)
        return self._counted if is_complete else self._counted.most(Usage(output=output))

    def _read_frames(self) -> None:
        """Read the whole frames of AWS's event stream: lengths, headers, and JSON with an event in base64."""
        while len(self._held) >= _FRAME_HEAD:
            length = int.from_bytes(self._held[:4])
            if length < _FRAME_HEAD + _CHECKSUM:
                self._held, self._has_ended = b"", True
            if len(self._held) < length or not self._held:
                return
            start = _FRAME_HEAD + int.from_bytes(self._held[4:8])
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                event = base64.b64decode(json.loads(self._held[start : length - _CHECKSUM])["bytes"])
                self._has_ended = self._has_ended or bool(_LAST.search(event))
                self._read(event)
            self._held = self._held[length:]

    def _read(self, text: bytes) -> None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        for one in document if isinstance(document, list) else [document]:
            if isinstance(one, dict):
                self._counted = self._counted.most(_usage_in(one))
                self.ending = _ending_in(one) or self.ending
                if isinstance(one.get("error"), dict) or one.get("type") == "response.failed":
                    self.error = text


def _usage_in(document: dict[str, object]) -> Usage:
    for holder in (document, document.get("message"), document.get("response")):
        if not isinstance(holder, dict):
            continue
        if isinstance(found := holder.get("usage"), dict):
            cached = _number(found.get("input_tokens_details") or found.get("prompt_tokens_details"), "cached_tokens")
            # OpenAI's input includes cached tokens, Anthropic's does not.
            whole = _number(found, "input_tokens") or _number(found, "prompt_tokens")
            return Usage(
                max(0, whole - cached),
                cached + _number(found, "cache_read_input_tokens"),
                _number(found, "cache_creation_input_tokens"),
                _number(found, "output_tokens") or _number(found, "completion_tokens"),
            )
        if isinstance(found := holder.get("usageMetadata"), dict):
            cached = _number(found, "cachedContentTokenCount")
            whole = _number(found, "promptTokenCount") + _number(found, "toolUsePromptTokenCount")
            output = _number(found, "candidatesTokenCount") + _number(found, "thoughtsTokenCount")
            return Usage(max(0, whole - cached), cached, 0, output)
    return Usage()


def _ending_in(document: dict[str, Any]) -> Ending | None:
    """Return how an answer ended, by the words of Anthropic, of OpenAI's two interfaces, or of Gemini."""
    response, feedback = document.get("response"), document.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return "refused"
    told = [document, document.get("delta"), response, *(document.get("choices") or document.get("candidates") or ())]
    for holder in (one for one in told if isinstance(one, dict)):
        details = holder.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        for word in (holder.get("stop_reason"), holder.get("finish_reason"), holder.get("finishReason"), reason):
            if isinstance(word, str) and word in _ENDINGS:
                return _ENDINGS[word]
        said = holder.get("message") or holder.get("delta")
        if isinstance(said, dict) and said.get("refusal"):
            return "refused"
    item = document.get("item")
    parts = item.get("content") if isinstance(item, dict) else None
    is_refusal = any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts or ())
    return "refused" if is_refusal else None


def _number(found: object, key: str) -> int:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else 0
