"""A made-up model API on loopback: answers as Anthropic, OpenAI and Gemini do, and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT, CACHED, OUTPUT = 1000, 200, 50
"""Tokens that each answer counts; `INPUT` are those that were not cached."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


@dataclass
class ModelServer:
    """Serves until it is closed; `status` other than 200 is answered to every request for an answer."""

    status: int = 200
    refusal: dict[str, Any] = field(default_factory=lambda: {"error": {"message": "no"}})
    words: str = "All done."
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Self:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, text)
                model.asked.append(asked)
                if model.status != 200:
                    self._send(model.status, "application/json", json.dumps(model.refusal).encode())
                    return
                kind, pieces = model.answer(asked)
                self._send(200, kind, b"".join(pieces))

            do_GET = do_POST

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def questions(self) -> list[Asked]:
        """The requests for an answer, as far as they cost tokens."""
        return [
            one for one in self.asked if one.text and "count_tokens" not in one.path and "countTokens" not in one.path
        ]

    def answer(self, asked: Asked) -> tuple[str, Iterator[bytes]]:
        path = asked.path.partition("?")[0]
        if "GET" in asked.headers.get("x-method", "") or not asked.text or path.endswith("count_tokens"):
            return "application/json", iter([json.dumps({"data": [], "input_tokens": 1, "totalTokens": 1}).encode()])
        if path.endswith("/messages"):
            return (
                self._events(_anthropic(self.words)) if asked.body.get("stream") else self._plain(_message(self.words))
            )
        if path.endswith("/responses"):
            return self._events(_responses(self.words))
        if path.endswith("/chat/completions"):
            return (
                self._events(_chat(asked.body, self.words))
                if asked.body.get("stream")
                else self._plain(_whole(self.words))
            )
        if "streamGenerateContent" in path:
            return self._events([("", _gemini(self.words))])
        return self._plain(_gemini(self.words))

    def _plain(self, document: Any) -> tuple[str, Iterator[bytes]]:
        return "application/json", iter([json.dumps(document).encode()])

    def _events(self, events: Any) -> tuple[str, Iterator[bytes]]:
        def lines() -> Iterator[bytes]:
            for name, event in events:
                yield (f"event: {name}\n" if name else "").encode()
                yield f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()

        return "text/event-stream", lines()


def _message(words: str) -> dict[str, Any]:
    usage = {
        "input_tokens": INPUT,
        "cache_read_input_tokens": CACHED,
        "cache_creation_input_tokens": 0,
        "output_tokens": OUTPUT,
    }
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "made-up", "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": words}], "usage": usage,
    }  # fmt: skip


def _anthropic(words: str) -> Iterator[tuple[str, Any]]:
    whole = _message(words)
    begun = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": begun}
    yield (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    )
    delta = {"type": "text_delta", "text": words}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT}}
    yield "message_stop", {"type": "message_stop"}


def _responses(words: str) -> Iterator[tuple[str, Any]]:
    item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": words}]}
    usage = {
        "input_tokens": INPUT + CACHED, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": INPUT + CACHED + OUTPUT,
    }  # fmt: skip
    yield "response.created", {"type": "response.created", "response": {"id": "r1"}}
    yield "response.output_item.done", {"type": "response.output_item.done", "item": item}
    yield (
        "response.completed",
        {"type": "response.completed", "response": {"id": "r1", "usage": usage, "output": [item]}},
    )


def _chat_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT, "total_tokens": INPUT + CACHED + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
    }  # fmt: skip


def _whole(words: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words}}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": _chat_usage(),
    }


def _chat(body: dict[str, Any], words: str) -> Iterator[tuple[str, Any]]:
    begun = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"index": 0, "delta": {"role": "assistant", "content": words}, "finish_reason": None}
    yield "", begun | {"choices": [delta]}
    yield "", begun | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield "", begun | {"choices": [], "usage": _chat_usage()}
    yield "", "[DONE]"


def _gemini(words: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": words}]}
    usage = {
        "promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED, "candidatesTokenCount": OUTPUT,
        "totalTokenCount": INPUT + CACHED + OUTPUT,
    }  # fmt: skip
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
