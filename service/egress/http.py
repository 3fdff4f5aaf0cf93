"""HTTP/1.1 with a program in the sandbox, by h11 over a blocking socket; both proxies speak through it."""

import http.client
import json
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import h11

from service.errors import ServiceError

_LONGEST_HEAD: Final = 32_768
_LONGEST_BODY: Final = 64 << 20
_CHUNK: Final = 65_536
Headers = Sequence[tuple[str, str]]


class BodyTooLongError(ServiceError):
    """A request's body is longer than any model takes."""


class AgentConnection:
    """One connection from an agent."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST_HEAD)
        self._asks_for_head = False
        self._is_away = False

    def requests(self) -> Iterator[h11.Request]:
        """Yield each request, until the agent closes the connection or does not speak HTTP. Answer it before the next.

        Raises:
            OSError: The connection broke.
        """
        while True:
            try:
                event = self._next_event()
            except h11.RemoteProtocolError as error:
                self.refuse(error.error_status_hint, f"this is not HTTP: {error}")
                return
            if not isinstance(event, h11.Request):
                return
            yield event
            if self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
                return
            self._wire.start_next_cycle()

    def body(self) -> bytes:
        """Read the request's body.

        Raises:
            BodyTooLongError: It is too long.
            h11.RemoteProtocolError: It is not what its headers announce.
        """
        whole = bytearray()
        while isinstance(event := self._next_event(), h11.Data):
            whole += event.data
            if len(whole) > _LONGEST_BODY:
                raise BodyTooLongError("its body is too long")
        return bytes(whole)

    def tunnel(self) -> bytes:
        """Accept a CONNECT; return what the agent has sent for the other side so far."""
        self.body()
        self._begin(200, [], "Connection established")
        return self._wire.trailing_data[0]

    def begin(self, status: int, headers: Headers) -> None:
        """Send the beginning of an answer; without a length it is sent in chunks."""
        self._begin(status, headers)

    def send(self, piece: bytes) -> None:
        """Send a piece of the answer; if the agent has gone, it is dropped, and `is_gone` says so."""
        if not self._is_away and piece:
            self._write(self._wire.send(h11.Data(data=piece)))

    def finish(self) -> None:
        """Send the end of the answer."""
        if not self._is_away:
            self._write(self._wire.send(h11.EndOfMessage()))

    def break_off(self) -> None:
        """Leave the answer without its end: the connection closes, and the program sees that something is missing."""
        self._wire.send_failed()

    def refuse(self, status: int, reason: str, *, is_json: bool = True) -> None:
        """Answer with an error, by default in a shape that every provider's clients can read.

        Nothing is sent if an answer has begun.
        """
        if self._wire.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        error = {"type": "permission_error", "code": status, "status": "PERMISSION_DENIED", "message": reason}
        text = json.dumps({"type": "error", "error": error}).encode() if is_json else f"{reason}\n".encode()
        kind = "application/json" if is_json else "text/plain; charset=utf-8"
        self._begin(status, [("Content-Type", kind), ("Content-Length", str(len(text)))])
        self.send(b"" if self._asks_for_head else text)
        self.finish()

    def is_gone(self) -> bool:
        """Whether the agent has closed its connection."""
        watch = select.poll()
        watch.register(self._link, select.POLLIN)
        try:
            # A socket with a timeout waits for the first byte, whatever the flags say.
            return self._is_away or (bool(watch.poll(0)) and not self._link.recv(1, socket.MSG_PEEK))
        except OSError:
            return True

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                self._write(self._wire.send(h11.InformationalResponse(status_code=100, headers=[])))
            self._wire.receive_data(self._link.recv(_CHUNK))
        if isinstance(event, h11.Request):
            self._asks_for_head = event.method == b"HEAD"
        return event

    def _begin(self, status: int, headers: Headers, reason: str = "") -> None:
        reason = reason or http.client.responses.get(status, "")
        response = h11.Response(status_code=status, headers=list(headers), reason=reason.encode())
        self._write(self._wire.send(response))

    def _write(self, data: bytes | None) -> None:
        try:
            self._link.sendall(data or b"")
        except OSError:
            self._is_away = True
