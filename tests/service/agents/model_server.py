"""A made-up model API on loopback: answers as Anthropic, OpenAI and Gemini do, and keeps what it was asked."""

import json
import re
from base64 import b64encode
from binascii import crc32
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.lab import Received, Respond, Server, Step

INPUT, CACHED, OUTPUT = 1000, 200, 50
"""Tokens that each answer counts; `INPUT` are those that were not cached."""


@dataclass(kw_only=True, eq=False)
class ModelServer(Server):
    """Serves until it is closed; `status` other than 200 is answered to every request for an answer."""

    status: int = 200
    refusal: dict[str, Any] = field(default_factory=lambda: {"error": {"message": "no"}})
    words: str = "All done."
    ending: str = "stop"
    """How each answer ends; or `length`, cut at its limit of tokens, or `refusal`."""

    @property
    def questions(self) -> list[Received]:
        """The requests for an answer, as far as they cost tokens."""
        return [one for one in self.requests if one.body and not re.search("count_?tokens", one.path, re.IGNORECASE)]

    def answer(self, request: Received) -> Step:
        if request.method == "POST" and self.status != 200:
            return Respond(self.status, self.refusal)
        if not request.body or request.path.endswith("count_tokens"):
            return Respond(200, {"data": [], "input_tokens": 1, "totalTokens": 1})
        asked = {} if request.path.startswith("/v1beta/") else request.json()
        is_stream, words = asked.get("stream"), self.words
        if re.search("/messages$|:streamRawPredict$|:rawPredict$|/invoke", request.path):
            message = _message(words, self.ending)
            if request.path.endswith("/invoke-with-response-stream"):
                return _frames(event for _, event in _anthropic(message))
            is_stream = is_stream and not request.path.endswith(":rawPredict")
            return _events(_anthropic(message)) if is_stream else Respond(200, message)
        if request.path.endswith("/responses"):
            return _events(_responses(words, self.ending))
        if request.path.endswith("/chat/completions"):
            whole = _whole(words, self.ending)
            return _events(_chat(asked, whole)) if is_stream else Respond(200, whole)
        whole = _gemini(words, self.ending)
        return _events([("", whole)]) if "streamGenerateContent" in request.path else Respond(200, whole)


def _events(events: Iterable[tuple[str, Any]]) -> Respond:
    texts = [
        (f"event: {name}\n" if name else "") + f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
        for name, event in events
    ]
    return Respond(200, "".join(texts), {"Content-Type": "text/event-stream"})


def _frames(events: Iterable[dict[str, Any]]) -> Respond:
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


def _message(words: str, ending: str) -> dict[str, Any]:
    counted = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    usage = counted | {"cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}
    reason = {"stop": "end_turn", "length": "max_tokens"}.get(ending, ending)
    content = [] if ending == "refusal" else [{"type": "text", "text": words}]
    said = {"content": content, "stop_reason": reason, "stop_sequence": None}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "made-up", "usage": usage} | said


def _anthropic(whole: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    words = "".join(part["text"] for part in whole["content"])
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    for event in (
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}},
        {"type": "message_stop"},
    ):
        yield str(event["type"]), event


def _responses(words: str, ending: str) -> Iterator[tuple[str, Any]]:
    said = {"type": "refusal", "refusal": words} if ending == "refusal" else {"type": "output_text", "text": words}
    item = {"type": "message", "role": "assistant", "id": "m1", "content": [said]}
    is_cut = ending == "length"
    how = {"incomplete_details": {"reason": "max_output_tokens"} if is_cut else None}
    details = {"input_tokens_details": {"cached_tokens": CACHED}, "output_tokens_details": {"reasoning_tokens": 0}}
    counted = {"input_tokens": INPUT + CACHED, "output_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    for event in (
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.done", "item": item},
        {
            "type": f"response.{'incomplete' if is_cut else 'completed'}",
            "response": {"id": "r1", "usage": counted | details, "output": [item], **how},
        },
    ):
        yield str(event["type"]), event


def _chat_usage() -> dict[str, Any]:
    counted = {"prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT}
    return counted | {"prompt_tokens_details": {"cached_tokens": CACHED}}


def _whole(words: str, ending: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": words}
    if ending == "refusal":
        message = {"role": "assistant", "content": None, "refusal": words}
    choice = {"index": 0, "finish_reason": "length" if ending == "length" else "stop", "message": message}
    made = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return made | {"choices": [choice], "usage": _chat_usage()}


def _chat(body: dict[str, Any], whole: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    choice = whole["choices"][0]
    begun = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"index": 0, "delta": choice["message"], "finish_reason": None}
    yield "", begun | {"choices": [delta]}
    yield "", begun | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield "", begun | {"choices": [], "usage": _chat_usage()}
    yield "", "[DONE]"


def _gemini(words: str, ending: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [] if ending == "refusal" else [{"text": words}]}
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[ending]
    usage = {"promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT}
    usage["totalTokenCount"] = INPUT + CACHED + OUTPUT
    return {"candidates": [{"content": content, "finishReason": finish, "index": 0}], "usageMetadata": usage}
