"""HTTP connections: malformed requests get a failure body; slow requests and stalled readers are cut off."""

import asyncio
import json
import logging
import math
import socket
import struct
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.errors import body

TRANSPORT: Final = "runwarden.transport"
"""Key in the ASGI scope's `state` for the connection's transport."""
_MAX_HEAD: Final = 65_536
_logger = logging.getLogger(__name__)


class StrictConnection(h11.Connection):
    """Refuses a request that states its length twice: a proxy in front could believe the other one."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class HttpProtocol(H11Protocol):
    """One connection, with limits on slow requests and stalled readers."""

    arrival_s = 30.0
    """How long a request may take to arrive, head and body together, and how long a client may read nothing."""
    most_open: int
    """How many connections may be open: the remaining files are for turns and the database."""
    count: Callable[[int], None]
    """The function to call with the status when a connection is refused before a request has arrived."""
    _arrival: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Pass the transport to the application, since the lab breaks real connections."""
        super().connection_made(transport)
        self.conn = StrictConnection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        # Everything that the kernel does not accept immediately counts as unread.
        transport.set_write_buffer_limits(high=0)
        self.app_state: dict[str, object] = {**self.app_state, TRANSPORT: transport}
        if len(self.connections) > self.most_open:
            warn_once(f"more than {self.most_open} connections are open: further ones get 503 (half of LimitNOFILE)")
            self._refuse(503, "too_busy", "too many connections are open")
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Limit the time in which a request must arrive."""
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self._await_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client `arrival_s` to read something."""
        super().pause_writing()
        self._watch_reader(math.inf)

    def resume_writing(self) -> None:
        """The client has read everything."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def _watch_reader(self, unread_before: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread < unread_before:
            self._stalled = self.loop.call_later(self.arrival_s, self._watch_reader, unread)
        else:
            # No lingering: the kernel would otherwise keep the unread bytes.
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def send_400_response(self, _msg: str) -> None:
        """Respond to anything but HTTP with a failure body (spec 7.2), and close."""
        self._refuse(400, "malformed_request", "the request is not HTTP/1.1, or its head is too large")

    def _await_request(self) -> None:
        if self._arrival is None:
            late = f"the request did not arrive within {self.arrival_s:g} s"
            self._arrival = self.loop.call_later(self.arrival_s, self._refuse, 408, "request_timeout", late)

    def _stop_waiting(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _refuse(self, status: int, error_code: str, message: str) -> None:
        if self.conn.our_state in {h11.SEND_RESPONSE, h11.IDLE}:
            raw = json.dumps(body(error_code, message)).encode()
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(raw))), ("Connection", "close")]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()),
                h11.Data(data=raw),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.count(status)
        self.transport.close()


def protocol(arrival_s: float, most_open: int, count: Callable[[int], None]) -> type[HttpProtocol]:
    """Return the protocol class with these limits; see `HttpProtocol`."""
    options = {"arrival_s": arrival_s, "most_open": most_open, "count": staticmethod(count)}
    return type("HttpProtocol", (HttpProtocol,), options)


@cache
def warn_once(warning: str) -> None:
    """Log a warning only once per process: it may come a thousand times a second."""
    _logger.warning(warning)
