"""HTTP/1.1 by h11 over blocking sockets: with a program in the sandbox, and with a model's provider.

`SandboxServer` listens on a unix socket that is visible in a sandbox; a thread serves each connection.
"""

import contextlib
import json
import os
import select
import socket
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Final

import h11

from service.errors import ServiceError

_MAX_HEAD: Final = 65_536
_MAX_BODY: Final = 64 << 20
_CHUNK: Final = 65_536
Headers = Sequence[tuple[str, str]]


class BodyError(ServiceError):
    """A request body is longer than any model accepts, or violates HTTP."""


def _encode(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


class _Connection:
    def __init__(self, link: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self._link = link
        self._wire = h11.Connection(role, max_incomplete_event_size=_MAX_HEAD)

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
            self._wire.receive_data(self._link.recv(_CHUNK))
        return event

    def _write(self, event: h11.Event) -> None:
        self._link.sendall(self._wire.send(event) or b"")


class AgentConnection(_Connection):
    """One connection from an agent."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__(link, h11.SERVER)
        self._is_gone = False
        self._method = b""

    def requests(self) -> Iterator[h11.Request]:
        """Yield each request, to be answered before the next, until the agent closes the connection or breaks HTTP."""
        while True:
            try:
                event = self._next_event()
            except h11.RemoteProtocolError as error:
                self.refuse(error.error_status_hint, f"this is not HTTP: {error}")
                return
            if not isinstance(event, h11.Request):
                return
            self._method = event.method
            yield event
            if self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
                return
            self._wire.start_next_cycle()

    def body(self) -> bytes:
        """Read the request's body.

        Raises:
            BodyError: It is too long, or contradicts its headers.
        """
        whole = bytearray()
        try:
            while isinstance(event := self._next_event(), h11.Data):
                whole += event.data
                if len(whole) > _MAX_BODY:
                    raise BodyError("its body is too long")
        except h11.RemoteProtocolError as error:
            raise BodyError("its body cannot be read") from error
        return bytes(whole)

    def tunnel(self) -> bytes:
        """Accept a CONNECT; return the bytes for the other side that have already arrived."""
        self.body()
        self.begin(HTTPStatus.OK, [], "Connection established")
        return self._wire.trailing_data[0]

    def begin(self, status: int, headers: Headers, reason: str = "") -> None:
        """Send the beginning of an answer; without a length it is sent in chunks."""
        reason = reason or responses.get(status, "")
        self._write(h11.Response(status_code=status, headers=_encode(headers), reason=reason.encode()))

    def send(self, piece: bytes) -> None:
        """Send a piece of the answer; drop it if the agent has gone."""
        if piece:
            self._write(h11.Data(data=piece))

    def finish(self) -> None:
        self._write(h11.EndOfMessage())

    def break_off(self) -> None:
        """Leave the answer incomplete: the connection closes, and the program sees that something is missing."""
        self._wire.send_failed()

    def refuse(self, status: int, reason: str, *, is_json: bool = True) -> None:
        """Answer with an error, by default in a form that all providers' clients read, unless an answer has begun."""
        if self._wire.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        error = {"type": "permission_error", "code": status, "status": "PERMISSION_DENIED", "message": reason}
        text = json.dumps({"type": "error", "error": error}).encode() if is_json else f"{reason}\n".encode()
        kind = "application/json" if is_json else "text/plain; charset=utf-8"
        self.begin(status, [("Content-Type", kind), ("Content-Length", str(len(text)))])
        self.send(b"" if self._method == b"HEAD" else text)
        self.finish()

    def is_gone(self) -> bool:
        watch = select.poll()
        watch.register(self._link, select.POLLIN)
        try:
            # A socket with a timeout waits for the first byte, whatever the flags say.
            return self._is_gone or (bool(watch.poll(0)) and not self._link.recv(1, socket.MSG_PEEK))
        except OSError:
            return True

    def _write(self, event: h11.Event) -> None:
        try:
            if not self._is_gone:
                super()._write(event)
        except OSError:
            self._is_gone = True


class ProviderConnection(_Connection):
    """One request to a provider, and its answer."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__(link, h11.CLIENT)
        self.status = 0
        """Zero until an answer arrives."""
        self.headers: dict[str, str] = {}
        """The answer's; names in lower case."""

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send the request, and read the head of the answer.

        Raises:
            OSError: The connection broke, or was silent for too long.
            h11.RemoteProtocolError: The other side does not speak HTTP.
        """
        length = [("Content-Length", str(len(body)))] if body or method == "POST" else []
        self._write(h11.Request(method=method, target=target, headers=_encode([*headers.items(), *length])))
        self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        while isinstance(event := self._next_event(), h11.InformationalResponse):
            pass
        if isinstance(event, h11.Response):
            self.status = event.status_code
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}

    def read(self) -> bytes:
        """Return the next piece of the answer; empty: it is complete.

        Raises:
            OSError: The connection broke, was silent for too long, or closed too early.
            h11.RemoteProtocolError: The answer is not HTTP.
        """
        while self._wire.their_state is h11.SEND_BODY and isinstance(event := self._next_event(), h11.Data):
            if event.data:
                return bytes(event.data)
        return b""

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return super()._next_event()
        except h11.RemoteProtocolError as error:
            if self._wire.trailing_data[1]:
                raise ConnectionResetError("the answer was cut") from error
            raise


_AT_ONCE: Final = 64


class SandboxServer(AbstractContextManager[object]):
    """A listening socket; leaving its context closes every connection through it."""

    @abstractmethod
    def serve(self, inside: socket.socket) -> None:
        """Serve one connection of the agent."""

    def __init__(self, path: Path) -> None:
        self._open: set[socket.socket] = set()
        self.closed = threading.Event()
        """The event that is set when the agent has ended."""
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._listener = socket.socket(socket.AF_UNIX)
        # Through the folder's descriptor, as the path of a unix socket has at most 107 bytes.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        self._listener.listen(_AT_ONCE)
        threading.Thread(target=self._accept, name="sandbox-server", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def closing(self, connection: socket.socket) -> Iterator[None]:
        """Close a connection in the end; closing the server closes it before."""
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _accept(self) -> None:
        # This thread closes the listener; otherwise accept() could continue on a new socket with the same number.
        with self._listener, contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._free.acquire()
                threading.Thread(target=self._one, args=(connection,), name="sandbox-connection", daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        try:
            # If either side closes its connection, no answer is needed.
            with contextlib.suppress(OSError), self.closing(connection):
                self.serve(connection)
        finally:
            self._free.release()
