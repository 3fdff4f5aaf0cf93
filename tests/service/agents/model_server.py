"""A fake model API on loopback: answers like Anthropic, OpenAI and Gemini, and records its requests.

Streams come in chunks, an event in each, with words and the arguments of tools in pieces.
"""

import json
import re
from base64 import b64encode
from binascii import crc32
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.lab import Raw, Received, Respond, Server, Step

INPUT, CACHED, OUTPUT = 1000, 200, 50
"""Tokens that each answer counts; `INPUT` are uncached ones."""
Event = tuple[str, Any]
"""An event's name and data."""


@dataclass(frozen=True, slots=True)
class Said:
    """The model's output: words, or a tool call."""

    words: str
    ending: str
    call: tuple[str, dict[str, str]] | None = None


@dataclass(kw_only=True, eq=False)
class ModelServer(Server):
    """Serves until it is closed; a `status` other than 200 is the answer to every model request."""

    status: int = 200
    refusal: Any = field(default_factory=lambda: {"error": {"message": "no"}})
    ending: str = "stop"
    """How each answer ends; also `length`, cut at its token limit, or `refusal`."""

    @property
    def questions(self) -> list[Received]:
        """The requests to the model that cost tokens."""
        return [one for one in self.requests if one.body and not re.search("count_?tokens", one.path, re.IGNORECASE)]

    def answer(self, request: Received) -> Step:
        if request.method == "POST" and self.status != 200:
            return Respond(self.status, self.refusal)
        if not request.body or request.path.endswith("count_tokens"):
            return Respond(200, {"data": [], "input_tokens": 1, "totalTokens": 1})
        asked = request.json()
        said = Said("All done.", self.ending)
        is_stream = asked.get("stream")
        if re.search("/messages$|:streamRawPredict$|:rawPredict$|/invoke", request.path):
            if request.path.endswith("/invoke-with-response-stream"):
                return frames(event for _, event in _anthropic(said))
            is_stream = is_stream and not request.path.endswith(":rawPredict")
            return self._events(_anthropic(said)) if is_stream else Respond(200, _message(said))
        if request.path.endswith("/responses"):
            return self._events(_responses(said))
        if request.path.endswith("/chat/completions"):
            return self._events(_chat(asked, said)) if is_stream else Respond(200, _whole(said))
        if "streamGenerateContent" in request.path:
            return self._events(_gemini_stream(said))
        return Respond(200, _gemini(said))

    def _events(self, events: Iterable[Event]) -> Raw:
        texts = [
            (f"event: {name}\n" if name else "") + f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
            for name, event in events
        ]
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = "".join(f"{len(text.encode()):x}\r\n{text}\r\n" for text in texts)
        return Raw(f"{head}{chunks}0\r\n\r\n".encode())


def _pieces(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def frames(events: Iterable[dict[str, Any]]) -> Respond:
    """Answer as Amazon Bedrock: each event in base64, in a frame with checksums."""
    whole = b""
    headers = b"".join(
        bytes([len(name)]) + name + b"\x07" + len(value).to_bytes(2) + value
        for name, value in ((b":event-type", b"chunk"), (b":message-type", b"event"))
    )
    for event in events:
        payload = json.dumps({"bytes": b64encode(json.dumps(event).encode()).decode(), "p": "abc"}).encode()
        head = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
        frame = head + crc32(head).to_bytes(4) + headers + payload
        whole += frame + crc32(frame).to_bytes(4)
    return Respond(200, whole, {"Content-Type": "application/vnd.amazon.eventstream"})


def _message(said: Said) -> dict[str, Any]:
    counted = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    usage = counted | {"cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(said.ending, said.ending)
    content: list[dict[str, Any]] = [] if said.ending == "refusal" else [{"type": "text", "text": said.words}]
    if said.call is not None:
        name, given = said.call
        content, reason = [{"type": "tool_use", "id": "toolu_1", "name": name, "input": given}], "tool_use"
    made = {"content": content, "stop_reason": reason, "stop_sequence": None}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "made-up", "usage": usage} | made


def _anthropic(said: Said) -> Iterator[Event]:
    whole = _message(said)
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for block in whole["content"]:
        is_text = block["type"] == "text"
        empty = {"text": ""} if is_text else {"input": {}}
        events.append({"type": "content_block_start", "index": 0, "content_block": block | empty})
        for piece in _pieces(block["text"] if is_text else json.dumps(block["input"])):
            part = {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta"}
            part |= {} if is_text else {"partial_json": piece}
            events.append({"type": "content_block_delta", "index": 0, "delta": part})
        events.append({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}})
    events.append({"type": "message_stop"})
    return ((str(event["type"]), event) for event in events)


def _responses(said: Said) -> Iterator[Event]:
    kind, word = ("refusal", "refusal") if said.ending == "refusal" else ("output_text", "text")
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "content": [{"type": kind, word: said.words}],
    }
    is_cut = said.ending == "length"
    details = {"input_tokens_details": {"cached_tokens": CACHED}, "output_tokens_details": {"reasoning_tokens": 0}}
    counted = {"input_tokens": INPUT + CACHED, "output_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    end = {"id": "r1", "usage": counted | details, "output": [item]}
    end |= {"incomplete_details": {"reason": "max_output_tokens"} if is_cut else None}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    for event in (
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        *({"type": f"response.{kind}.delta", "delta": piece} | place for piece in _pieces(said.words)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{'incomplete' if is_cut else 'completed'}", "response": end},
    ):
        yield str(event["type"]), event


def _chat_usage() -> dict[str, Any]:
    counted = {"prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    return counted | {"prompt_tokens_details": {"cached_tokens": CACHED}}


def _whole(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.words}
    if said.ending == "refusal":
        message = {"role": "assistant", "content": None, "refusal": said.words}
    choice = {"index": 0, "finish_reason": "length" if said.ending == "length" else "stop", "message": message}
    made = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return made | {"choices": [choice], "usage": _chat_usage()}


def _chat(asked: dict[str, Any], said: Said) -> Iterator[Event]:
    choice = _whole(said)["choices"][0]
    begun = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    word = "refusal" if said.ending == "refusal" else "content"
    deltas = [{"role": "assistant"}, *({word: piece} for piece in _pieces(said.words)), {}]
    for number, delta in enumerate(deltas, 1):
        finish = choice["finish_reason"] if number == len(deltas) else None
        yield "", begun | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield "", begun | {"choices": [], "usage": _chat_usage()}
    yield "", "[DONE]"


def _gemini(said: Said) -> dict[str, Any]:
    content = {"role": "model", "parts": [] if said.ending == "refusal" else [{"text": said.words}]}
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[said.ending]
    usage = {"promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT}
    usage["totalTokenCount"] = INPUT + CACHED + OUTPUT
    return {"candidates": [{"content": content, "finishReason": finish, "index": 0}], "usageMetadata": usage}


def _gemini_stream(said: Said) -> Iterator[Event]:
    first, last = (Said(piece, said.ending) for piece in _pieces(said.words))
    if said.ending != "refusal":
        yield "", {"candidates": [{"content": _gemini(first)["candidates"][0]["content"], "index": 0}]}
    yield "", _gemini(last)
