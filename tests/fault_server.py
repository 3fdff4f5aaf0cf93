"""A server on loopback that misbehaves as told: each request gets the next step of a script, and is recorded.

    with FaultServer() as server:
        server.script(Respond(200, {"runs": []}), Drop())
        ... a client with `server.base_url` ...
        assert [request.method for request in server.requests] == ["GET", "POST"]

Real sockets, a thread a connection, so that asynchronous tests and subprocesses use it alike.
"""

import json
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal, Self

_DEADLINE_S = 300.0
"""Nothing in here waits longer: a test that hangs says where."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request, as it came over the socket."""

    method: str
    target: str
    """Path and query, undecoded."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def json(self) -> object:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Respond:
    """A complete answer; the connection is kept."""

    status: int = 200
    body: object = b""
    """Bytes and text as they are; anything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they are, then the end of the connection."""

    data: bytes
    then: Literal["close", "reset", "hang"] = "close"


@dataclass(frozen=True, slots=True)
class Drop:
    """No answer: the connection is reset."""

    when: Literal["accepted", "unread", "read"] = "read"
    """As soon as it stands; when the first bytes have come, without reading them; after the whole request."""


@dataclass(frozen=True, slots=True)
class Hang:
    """The request is read, and nothing more happens until the server is closed."""


@dataclass(frozen=True, slots=True)
class Drip:
    """A body that comes byte by byte for as long as the client listens."""

    every_s: float = 0.01


@dataclass(frozen=True, slots=True)
class Flood:
    """A body without an end, as fast as the client takes it."""


Step = Respond | Raw | Drop | Hang | Drip | Flood
Answering = Callable[[Received], Step]


class FaultServer:
    """Listens from construction to `close`; also a context manager."""

    def __init__(self) -> None:
        """Take a free port on loopback."""
        self.requests: list[Received] = []
        """Every request that was read whole, in order."""
        self.connections = 0
        self.otherwise: Answering = lambda request: Respond(404, {"message": f"nothing scripted for {request.target}"})
        """Answers whatever the script has no step for."""
        self._steps: deque[Step] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The base address of the API it plays."""
        return f"{self.origin}/v1"

    def script(self, *steps: Step) -> None:
        """Append steps, one for each request to come."""
        with self._changed:
            self._steps.extend(steps)

    def wait_for(self, count: int) -> list[Received]:
        """The requests, as soon as so many have been read."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout=_DEADLINE_S):
                raise AssertionError(f"{len(self.requests)} requests came, {count} were waited for")
            return list(self.requests)

    def close(self) -> None:
        """End every connection and every thread."""
        self._closing.set()
        with suppress(OSError):  # a listener is woken by shutdown on Linux and refuses it elsewhere
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            sockets = list(self._sockets)
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_DEADLINE_S)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                self._sockets.add(connection)
            self._start(lambda connection=connection: self._serve(connection))

    def _serve(self, connection: socket.socket) -> None:
        # A client that goes away in the middle is what many tests are about.
        with suppress(OSError), connection:
            if self._next_is(Drop("accepted")):
                _reset(connection)
                return
            with connection.makefile("rb") as stream:
                while connection.recv(1, socket.MSG_PEEK):
                    if self._next_is(Drop("unread")):
                        _reset(connection)
                        return
                    request = _read_request(stream.readline, stream.read)
                    if request is None or not self._play(connection, self._record(request)):
                        return
        with self._changed:
            self._sockets.discard(connection)

    def _next_is(self, step: Step) -> bool:
        with self._changed:
            if self._steps and self._steps[0] == step:
                self._steps.popleft()
                return True
            return False

    def _record(self, request: Received) -> Step:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            step = self._steps.popleft() if self._steps else None
        return self.otherwise(request) if step is None else step

    def _play(self, connection: socket.socket, step: Step) -> bool:
        """Carry out one step; whether the connection goes on."""
        match step:
            case Respond():
                connection.sendall(_response(step))
                return True
            case Raw(data, then):
                connection.sendall(data)
                if then == "hang":
                    self._closing.wait(_DEADLINE_S)
                elif then == "reset":
                    _reset(connection)
            case Hang():
                self._closing.wait(_DEADLINE_S)
            case Drop():
                _reset(connection)
            case Drip(every_s):
                self._pour(connection, b" ", every_s)
            case Flood():
                self._pour(connection, b" " * 65_536, 0.0)
        return False

    def _pour(self, connection: socket.socket, chunk: bytes, every_s: float) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        while not self._closing.wait(every_s):
            connection.sendall(chunk)


def free_port() -> int:
    """A loopback port where nothing listens.

    Below those that a system gives to connections: one that is let go for a while would be taken by any of them.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _read_request(readline: Callable[[], bytes], read: Callable[[int], bytes]) -> Received | None:
    words = readline().decode("latin-1").split()
    if len(words) != 3:
        return None
    headers = dict(_headers(readline))
    body = read(int(headers.get("content-length", "0")))
    return Received(words[0], words[1], headers, body)


def _headers(readline: Callable[[], bytes]) -> Iterator[tuple[str, str]]:
    while line := readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        yield name.strip().lower(), value.strip()


def _response(step: Respond) -> bytes:
    body = step.body if isinstance(step.body, bytes) else None
    if body is None:
        body = (step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()
    phrase = HTTPStatus(step.status).phrase if step.status in set(HTTPStatus) else "Whatever"
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **step.headers}
    head = [f"HTTP/1.1 {step.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def _reset(connection: socket.socket) -> None:
    # No lingering: the close is sent as RST, which the client cannot mistake for an end.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
