"""A visit: one HTTP connection of an agent to the model proxy."""

import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from service.errors import ServiceError

_LONGEST_REQUEST: Final = 64 << 20
_PASSED_BACK: Final = ("content-type", "retry-after", "request-id", "x-request-id")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]{1,8}")
_ELSEWHERE: Final = 3
"""The first digit of a redirect's status."""


class BlockedRequestError(ServiceError):
    """A request is not passed on; the text says why."""


class ClosedPathError(BlockedRequestError):
    """The path is closed. This is no fault of the agent: programs also ask for updates and send statistics."""


class Visit(BaseHTTPRequestHandler):
    """One connection from an agent."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, answer: Callable[["Visit"], None]) -> None:
        self._answer = answer
        self._is_away = False
        super().__init__(connection, "agent", None)  # type: ignore[arg-type]  # no server and no address are needed

    def do_GET(self) -> None:
        """Answer."""
        self._is_away = False
        self._answer(self)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Log nothing: single requests do not belong in the agent's log."""

    def body(self) -> bytes:
        """Read the request's body.

        Raises:
            BlockedRequestError: It is too long.
        """
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            return b"".join(self._chunks())
        given = self.headers.get("content-length") or "0"
        length = int(given) if given.isascii() and given.isdigit() else _LONGEST_REQUEST + 1
        if length > _LONGEST_REQUEST:
            self.close_connection = True
            raise BlockedRequestError("its body is too long")
        return self.rfile.read(length)

    def _chunks(self) -> Iterator[bytes]:
        left = _LONGEST_REQUEST
        while True:
            given = self.rfile.readline(64).partition(b";")[0].strip()
            if not _HEXADECIMAL.fullmatch(given) or (left := left - int(given, 16)) < 0:
                self.close_connection = True
                raise BlockedRequestError("its body is too long, or cannot be read")
            piece = self.rfile.read(int(given, 16))
            self.rfile.readline(8)
            if not piece:
                return
            yield piece

    def refuse(self, status: int, reason: str) -> None:
        """Answer with an error in a shape that every provider's clients can read."""
        error = {"type": "permission_error", "code": status, "status": "PERMISSION_DENIED", "message": reason}
        text = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def begin(self, answer: http.client.HTTPResponse) -> None:
        """Begin to pass an answer back."""
        # A redirect is an error, and is not followed: the key is for one host only.
        self.send_response(502 if answer.status // 100 == _ELSEWHERE else answer.status)
        for name in _PASSED_BACK:
            if value := answer.headers.get(name):
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send(self, piece: bytes) -> None:
        """Pass a piece on, unless the agent has gone."""
        try:
            if not self._is_away:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            self._is_away = self.close_connection = True

    def finish_answer(self) -> None:
        """End the answer."""
        if not self._is_away:
            self.wfile.write(b"0\r\n\r\n")


def document_of(body: bytes) -> dict[str, object]:
    """Return a body's JSON object.

    Raises:
        BlockedRequestError: It is not a JSON object.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BlockedRequestError("its body is not JSON") from error
    if not isinstance(document, dict):
        raise BlockedRequestError("its body is not an object")
    return document
