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
class Reply:
    """The model's output: words, then perhaps a call of a tool with its arguments."""

    words: str
    ending: str = "stop"
    call: tuple[str, dict[str, str]] | None = None
    call_id: str = "toolu_1"


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
        costing = (request for request in self.requests if request.body)
        return [request for request in costing if not re.search("count_?tokens", request.path, re.IGNORECASE)]

    def answer(self, request: Received) -> Step:
        if request.method == "POST" and self.status != 200:
            return Respond(self.status, self.refusal)
        if not request.body or request.path.endswith("count_tokens"):
            return Respond(200, {"data": [], "input_tokens": 1, "totalTokens": 1})
        question = request.json()
        reply = Reply("All done.", self.ending)
        is_stream = question.get("stream")
        if re.search("/messages$|:streamRawPredict$|:rawPredict$|/invoke", request.path):
            if request.path.endswith("/invoke-with-response-stream"):
                return frames(event for _, event in anthropic_events(reply))
            is_stream = is_stream and not request.path.endswith(":rawPredict")
            return self.stream(anthropic_events(reply)) if is_stream else Respond(200, _message(reply))
        if request.path.endswith("/responses"):
            return self.stream(_responses(reply))
        if request.path.endswith("/chat/completions"):
            return self.stream(_chat(question, reply)) if is_stream else Respond(200, _whole(reply))
        if "streamGenerateContent" in request.path:
            return self.stream(_gemini_stream(reply))
        return Respond(200, _gemini(reply))

    def stream(self, events: Iterable[Event]) -> Raw:
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


def _message(reply: Reply) -> dict[str, Any]:
    counted = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    usage = counted | {"cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(reply.ending, reply.ending)
    content: list[dict[str, Any]] = [] if reply.ending == "refusal" else [{"type": "text", "text": reply.words}]
    if reply.call is not None:
        name, arguments = reply.call
        content.append({"type": "tool_use", "id": reply.call_id, "name": name, "input": arguments})
        reason = "tool_use"
    about = {"content": content, "stop_reason": reason, "stop_sequence": None}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "made-up", "usage": usage} | about


def anthropic_events(reply: Reply) -> Iterator[Event]:
    whole = _message(reply)
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {"text": ""} if is_text else {"input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block | empty})
        for piece in _pieces(block["text"] if is_text else json.dumps(block["input"])):
            part = {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta"}
            part |= {} if is_text else {"partial_json": piece}
            events.append({"type": "content_block_delta", "index": index, "delta": part})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}})
    events.append({"type": "message_stop"})
    return ((str(event["type"]), event) for event in events)


def _responses(reply: Reply) -> Iterator[Event]:
    kind, word = ("refusal", "refusal") if reply.ending == "refusal" else ("output_text", "text")
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "content": [{"type": kind, word: reply.words}],
    }
    is_cut = reply.ending == "length"
    details = {"input_tokens_details": {"cached_tokens": CACHED}, "output_tokens_details": {"reasoning_tokens": 0}}
    counted = {"input_tokens": INPUT + CACHED, "output_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    end = {"id": "r1", "usage": counted | details, "output": [item]}
    end |= {"incomplete_details": {"reason": "max_output_tokens"} if is_cut else None}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    for event in (
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        *({"type": f"response.{kind}.delta", "delta": piece} | place for piece in _pieces(reply.words)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{'incomplete' if is_cut else 'completed'}", "response": end},
    ):
        yield str(event["type"]), event


def _chat_usage() -> dict[str, Any]:
    counted = {"prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    return counted | {"prompt_tokens_details": {"cached_tokens": CACHED}}


def _whole(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.words}
    if reply.ending == "refusal":
        message = {"role": "assistant", "content": None, "refusal": reply.words}
    choice = {"index": 0, "finish_reason": "length" if reply.ending == "length" else "stop", "message": message}
    about = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return about | {"choices": [choice], "usage": _chat_usage()}


def _chat(question: dict[str, Any], reply: Reply) -> Iterator[Event]:
    choice = _whole(reply)["choices"][0]
    begun = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    word = "refusal" if reply.ending == "refusal" else "content"
    deltas = [{"role": "assistant"}, *({word: piece} for piece in _pieces(reply.words)), {}]
    for number, delta in enumerate(deltas, 1):
        finish = choice["finish_reason"] if number == len(deltas) else None
        yield "", begun | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if (question.get("stream_options") or {}).get("include_usage"):
        yield "", begun | {"choices": [], "usage": _chat_usage()}
    yield "", "[DONE]"


def _gemini(reply: Reply) -> dict[str, Any]:
    content = {"role": "model", "parts": [] if reply.ending == "refusal" else [{"text": reply.words}]}
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[reply.ending]
    usage = {"promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT}
    usage["totalTokenCount"] = INPUT + CACHED + OUTPUT
    return {"candidates": [{"content": content, "finishReason": finish, "index": 0}], "usageMetadata": usage}


def _gemini_stream(reply: Reply) -> Iterator[Event]:
    first, last = (Reply(piece, reply.ending) for piece in _pieces(reply.words))
    if reply.ending != "refusal":
        yield "", {"candidates": [{"content": _gemini(first)["candidates"][0]["content"], "index": 0}]}
    yield "", _gemini(last)
