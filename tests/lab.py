"""The lab: one service on a loopback socket for all tests of the client, as the spec says, or misbehaving as told.

    with Lab() as lab:
        lab.put("run_1", "working", created=-5)  # minutes into the test's day
        lab.script(Respond(503), Drop())  # instead of the answers to the next two requests
        ... a client with `lab.base_url` ...
        assert [request.method for request in lab.requests] == ["GET", "POST"]

A `Server` knows nothing of runs: it plays its script, then calls `otherwise`. It listens in its own thread.
No code here is shared with service/.
"""

import asyncio
import json
import random
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qsl, unquote
from zlib import crc32

START: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
"""The start of the test's day."""
OMITTED: Final = object()
"""As a field's value, it means that the document lacks the field."""
ORGANIZATION: Final = {
    "organization_id": "org_1",
    "organization_name": "Example",
    "organization_slug": "example",
    "parent_organization_id": "org_0",
}
RUN: Final = {
    "run_id": "run_1",
    "status": "queued",
    "branch_name": "agent/x",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
    "created_at": "2026-05-01T12:00:00Z",
    "updated_at": "2026-05-01T12:00:00Z",
}
EXECUTION: Final = {
    "agent_name": "nightly",
    "execution_id": "exe_1",
    "repository": "acme/api",
    "status": "queued",
    "created_at": "2026-05-01T12:00:00Z",
}
_DEADLINE_S: Final = 300.0


def stamp(when: float | datetime) -> str:
    """A time as the service writes it: UTC, with microseconds; a number counts minutes into the test's day."""
    moment = when.astimezone(UTC) if isinstance(when, datetime) else START + timedelta(minutes=when)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Lets time pass, given in timedelta's own words."""
        self.now += timedelta(**by)


@dataclass(slots=True)
class Received:
    """A request, as it arrived over the socket."""

    method: str
    target: str
    """Path and query, undecoded."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    status: int | None = None
    """The status of its answer. None: not answered yet, or with raw bytes."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The parameters, decoded; of repeated ones, the last."""
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Respond:
    """A complete answer; the connection is kept."""

    status: int = 200
    body: object = b""
    """Bytes and text are sent as they are, anything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raw:
    """Sends raw bytes, then closes the connection."""

    data: bytes
    then: Literal["close", "reset", "hang"] = "close"
    after_s: float = 0.0
    """Seconds between the bytes and the close."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Gives no answer: the connection is reset, or closed."""

    when: Literal["accepted", "unread", "read"] = "read"
    """When to drop it: once connected, when the first bytes have come (without reading them), or after the request."""
    then: Literal["close", "reset"] = "reset"


@dataclass(frozen=True, slots=True)
class Hang:
    """Reads the request, and does nothing more until the server is closed."""


@dataclass(frozen=True, slots=True)
class Drip:
    """Sends a body in pieces, byte by byte if slow, for as long as the client listens."""

    every_s: float = 0.01
    size: int = 1


Step = Respond | Raw | Drop | Hang | Drip
Answering = Callable[[Received], Step]


@dataclass(kw_only=True, eq=False)
class Server:
    """Answers each request with the next step of a script, then by `otherwise`, and records it."""

    tls: ssl.SSLContext | None = None
    listener: socket.socket | None = None
    """The port to listen on; None: a free port of loopback."""
    requests: list[Received] = field(default_factory=list)
    """Every request that was completely read, oldest first."""
    connections: int = 0
    """The number of connections so far."""
    latency_s: float = 0.0
    """Seconds before each answer, except scripted ones."""
    port: int = 0
    """The port in use; 0 before it listens."""

    def __post_init__(self) -> None:
        self.otherwise: Answering | None = None
        """Answers requests instead of `answer` when the script is empty. It runs in another thread and may block."""
        self._steps: deque[Step] = deque()
        self._changed = threading.Condition()
        self._own_thread: threading.Thread | None = None

    def answer(self, request: Received) -> Step | Awaitable[Step]:
        return Respond(404, {"message": f"nothing scripted for {request.target}"})

    @property
    def origin(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def script(self, *steps: Step) -> None:
        """Append steps, one for each of the next requests."""
        self._steps.extend(steps)

    @property
    def posts(self) -> list[bytes]:
        return [request.body for request in self.requests if request.method == "POST"]

    def wait_for(self, count: int) -> list[Received]:
        """The requests, as soon as this many have been read."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout=_DEADLINE_S):
                raise AssertionError(f"{len(self.requests)} requests came, {count} were waited for")
            return list(self.requests)

    def start(self) -> Self:
        """Listen, in a thread; does nothing on a server that listens."""
        if self._own_thread is None:
            ready = threading.Event()
            self._own_thread = threading.Thread(target=asyncio.run, args=(self._listen(ready),), daemon=True)
            self._own_thread.start()
            assert ready.wait(_DEADLINE_S)
        return self

    def close(self) -> None:
        """Close every connection and the thread."""
        thread, self._own_thread = self._own_thread, None
        if thread is not None:
            self.loop.call_soon_threadsafe(self._closing.set)
            thread.join(_DEADLINE_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self, ready: threading.Event) -> None:
        self.loop, self._closing, self._threads = asyncio.get_running_loop(), asyncio.Event(), ThreadPoolExecutor(64)
        address = {"host": "127.0.0.1", "port": self.port} if self.listener is None else {"sock": self.listener}
        server = await asyncio.start_server(self._serve, **address, ssl=self.tls, backlog=512, limit=1 << 20)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._closing.wait()
        server.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        # A client that disconnects in the middle is the subject of many tests.
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
                await self.converse(reader, writer)
        finally:
            writer.close()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it closes."""
        if self._next_is(Drop("accepted")):
            return hang_up(writer, "reset")
        while first := await reader.read(1):
            if self._next_is(Drop("unread")):
                return hang_up(writer, "reset")
            head, *lines = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, target, _ = head.split(" ")
            request = Received(method, target, headers, body)
            with self._changed:
                self.requests.append(request)
                self._changed.notify_all()
            if not await self._play(request, writer):
                return None
        return None

    def _next_is(self, step: Step) -> bool:
        is_next = bool(self._steps) and self._steps[0] == step
        if is_next:
            self._steps.popleft()
        return is_next

    async def _play(self, request: Received, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection stays open."""
        step = self._steps.popleft() if self._steps else await self._answered(request)
        match step:
            case Respond():
                request.status = step.status
                writer.write(_written(step))
                await writer.drain()
                return True
            case Raw(data, then, after_s):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(after_s)
                if then == "hang":
                    await asyncio.Event().wait()
                hang_up(writer, then)
            case Hang():
                await asyncio.Event().wait()
            case Drop():
                hang_up(writer, step.then)
            case Drip(every_s, size):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
                while True:
                    writer.write(b" " * size)
                    await writer.drain()
                    await asyncio.sleep(every_s)
        return False

    async def _answered(self, request: Received) -> Step:
        await asyncio.sleep(self.latency_s)
        if self.otherwise is None:
            step = self.answer(request)
            return await step if isawaitable(step) else step
        return await self.loop.run_in_executor(self._threads, self.otherwise, request)


def _written(step: Respond) -> bytes:
    body = step.body if isinstance(step.body, bytes) else None
    if body is None:
        body = (step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()
    phrase = HTTPStatus(step.status).phrase if step.status in set(HTTPStatus) else "Whatever"
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **step.headers}
    head = [f"HTTP/1.1 {step.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (b"" if step.status == HTTPStatus.NO_CONTENT else body)


def hang_up(writer: asyncio.StreamWriter, how: str) -> None:
    """Close a connection: `close` or `reset`."""
    if how == "reset":
        # No lingering: the close is sent as RST, which the client cannot mistake for a normal close.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


def free_port() -> int:
    """A loopback port where nothing listens.

    It is below those that a system gives to connections: any of them could take one that is free for a while.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass(kw_only=True, eq=False)
class Lab(Server):
    """A service with runs that a test changes at will; every quirk is a field that may change at any time."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Runs by id, as documents with their true times."""
    health: Any = field(default_factory=dict)
    """The part `code_hosting` of the answer."""
    turns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The results extension's answer by run. Empty: the service does not have the extension."""
    logs: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """Logs by run and turn; all turns have ended."""
    steps: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    """The steps of a log, if the client requests them."""
    diffs: dict[tuple[str, int | None], str] = field(default_factory=dict)
    """Diffs by run and turn; None: of the whole run."""
    artifacts: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    """Artifacts by run, turn and name."""

    clock: Callable[[], datetime] | None = None
    """Returns the true time. None: the test's day stands still, and answers have no Date."""
    is_dated: bool = True
    clock_offset: timedelta = timedelta(0)
    """How far the service's clock is ahead of the true time, in documents and in the Date header."""
    show_time: Callable[[datetime], object] = stamp
    """How documents format a time, without effect on order and filters."""
    order: Literal["created_at", "updated_at"] = "created_at"
    date_filter: Literal["created_at", "updated_at", ""] = "created_at"
    """The time that the date filter uses. Empty: the filter is ignored."""
    ignore_status: bool = False
    """Whether the status filter has no effect."""
    paging: Literal["key", "offset"] = "key"
    shuffles_ties: bool = False
    """Whether runs created in the same instant change their order with each request."""
    largest_page: int = 100
    endless: Literal["", "same", "stays", "around"] = ""
    """What follows the last page: its token again, it with a new token, or the first page with a new token."""
    nulls: int = 0
    """How many null entries each page begins with."""
    total_count: Any = None
    """A next-page token to send instead of the true one."""

    limit: Callable[[], float | None] = lambda: None
    """Called for each request; returns the wait if the request is over the limit."""
    retry_after: Literal["", "seconds", "date"] = "seconds"
    refused: dict[str, int] = field(default_factory=dict)
    """Tokens, and the status that each gets as its answer."""
    echoes_metadata: bool = False
    continues_as_new: bool = False
    """Whether the next turn of a conversation is another run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._listed = 0
        self.upcoming: dict[int, Callable[[], object]] = {}
        self._true_times: dict[str, dict[str, str]] = {}

    @property
    def now(self) -> datetime:
        """The true time."""
        return START if self.clock is None else self.clock()

    @property
    def list_queries(self) -> list[dict[str, str]]:
        """The query of each list request, oldest first."""
        return [r.query for r in self.requests if (r.method, r.path) == ("GET", "/v1/external/runs")]

    def put(
        self,
        run_id: str,
        status: str = "completed",
        *,
        created: float | datetime | None = None,
        updated: float | datetime | None = None,
        **fields: Any,
    ) -> None:
        """Add or replace a run; a time is a moment or minutes into the test's day. None: created now, not updated."""
        created_at = self._stored(self.now if created is None else created)
        updated_at = created_at if updated is None else self._stored(updated)
        self._true_times[run_id] = {"created_at": created_at, "updated_at": updated_at}
        self.runs[run_id] = {
            "run_id": run_id,
            "status": status,
            "branch_name": "main",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
            **self._true_times[run_id],
            **fields,
        }

    def fill(
        self, count: int, status: str = "completed", *, until: datetime | None = None, every_s: float = 60.0
    ) -> None:
        """Add numbered runs, oldest first, the newest created at `until` (None: now)."""
        until = until or self.now
        for n in range(count):
            self.put(f"run_{len(self.runs):05}", status, created=until - timedelta(seconds=(count - 1 - n) * every_s))

    def move(self, run_id: str, status: str, *, updated: float | datetime | None = None) -> None:
        """Give a run another status, now or at a time that may even be before its last one."""
        updated_at = self._stored(self.now if updated is None else updated)
        self.runs[run_id] = {**self.runs[run_id], "status": status, "updated_at": updated_at}

    def before(self, n: int, do: Callable[[], object]) -> None:
        """Call this before answering the n-th list request from now (1: the next); play the step that it returns."""
        self.upcoming[self._listed + n] = do

    def answer(self, request: Received) -> Step:
        """Answer as the spec says, or with the quirks."""
        step = self._judged(request)
        if isinstance(step, Respond) and self.clock is not None and self.is_dated:
            date = format_datetime((self.now + self.clock_offset).replace(microsecond=0), usegmt=True)
            step = Respond(step.status, step.body, {"Date": date, **step.headers})
        return step

    def _judged(self, request: Received) -> Step:
        path = request.path.removeprefix("/v1/external/").split("/")
        is_list = (request.method, path) == ("GET", ["runs"])
        if is_list:
            self._listed += 1
            done = self.upcoming.pop(self._listed, lambda: None)()
            if isinstance(done, Step):
                return done
        if request.token in self.refused:
            return Respond(self.refused[request.token], {"message": "The token is not accepted."})
        if (wait_s := self.limit()) is not None:
            return self.rate_limited(wait_s)
        match request.method, path:
            case "GET", ["runs"]:
                return Respond(200, self._page(request.query))
            case "GET", ["installation", "health"]:
                return Respond(200, {"code_hosting": self.health})
            case "POST", ["runs"]:
                return self._started(request.json())
            case "POST", ["agents", name, "runs"]:
                execution = {**EXECUTION, "agent_name": unquote(name), "repository": request.json()["repository"]}
                return Respond(201, execution)
            case "POST", ["organizations"]:
                return Respond(201, ORGANIZATION)
            case _, ["runs", run_id, *rest] if self.turns:
                return self._result(unquote(run_id), rest, request)
        return Respond(404, {"message": "Not here."})

    def rate_limited(self, wait_s: float) -> Respond:
        """Return a 429, with the wait in this service's format."""
        until = (self.now + self.clock_offset + timedelta(seconds=wait_s + 1)).replace(microsecond=0)
        value = {"seconds": str(int(wait_s) + 1), "date": format_datetime(until, usegmt=True)}.get(self.retry_after)
        return Respond(429, {"message": "Slow down."}, {"Retry-After": value} if value else {})

    def document(self, run: dict[str, Any]) -> dict[str, Any]:
        shown = {name: value for name, value in run.items() if value is not OMITTED}
        if self.show_time is not stamp:
            for name in ("created_at", "updated_at"):
                if at := _sortable(run.get(name)):
                    shown[name] = self.show_time(datetime.fromisoformat(at))
        return shown

    def _started(self, body: dict[str, Any]) -> Respond:
        run_id = body.get("run_id")
        if run_id is not None and run_id not in self.runs:
            return Respond(404, {"message": "There is no such run.", "error_code": "run_not_found"})
        if run_id is not None and not self.continues_as_new:
            self.move(run_id, "queued")
        else:
            run_id = f"run_{len(self.runs):05}"
            named = {"branch_name": body["branch_name"]} if "branch_name" in body else {}
            shown = {"metadata": body.get("metadata")} if self.echoes_metadata else {}
            self.put(run_id, "queued", repository=body["repository"], **named, **shown)
        return Respond(201, self.document(self.runs[run_id]))

    def _result(self, run_id: str, rest: list[str], request: Received) -> Respond:
        if run_id not in self.turns:
            return Respond(404, {"message": "There is no such run.", "error_code": "run_not_found"})
        match request.method, rest:
            case "GET", []:
                return Respond(200, {"run_id": run_id, **self.turns[run_id]})
            case "POST", ["cancel"]:
                self.move(run_id, "failed")
                return Respond(200, self.document(self.runs[run_id]))
            case "POST", ["messages"]:
                return Respond(202, {"message_id": "msg_1", "state": "waiting", **request.json()})
            case "GET", ["turns", turn, "log"] if (log := self.logs.get((run_id, int(turn)))) is not None:
                offset = int(request.query.get("offset", "0"))
                offset = min(offset if offset >= 0 else max(0, len(log) + offset), len(log))
                places = {"Offset": offset, "Next": len(log), "Size": len(log), "Ended": "true"}
                headers = {f"Runwarden-Log-{name}": str(at) for name, at in places.items()}
                steps = self.steps.get((run_id, int(turn)))
                if steps is not None and request.query.get("form") == "steps":
                    return Respond(
                        200, {"steps": steps if log[offset:] else []}, headers | {"Runwarden-Log-Form": "steps"}
                    )
                return Respond(200, log[offset:], headers)
            case "GET", ["turns", turn, "artifacts", *name]:
                key = (run_id, int(turn), unquote("/".join(name)))
                if (content := self.artifacts.get(key)) is not None:
                    return Respond(200, content)
                return Respond(404, {"message": "It was pruned.", "error_code": "artifact_not_found"})
            case "GET", ["diff"] | ["turns", _, "diff"]:
                of_turn = int(rest[1]) if len(rest) > 1 else None
                if (diff := self.diffs.get((run_id, of_turn))) is not None:
                    return Respond(200, diff, {"Content-Type": "text/plain"})
        return Respond(404, {"message": "There is no such turn.", "error_code": "turn_not_found"})

    def _page(self, query: dict[str, str]) -> dict[str, Any]:
        token, size = query.get("page_token", ""), min(int(query.get("page_size", "10")), self.largest_page)
        listed = sorted(self._matching(query), reverse=True)
        total, number, place = len(listed), token.partition(" ")[0], token.partition(" ")[2]
        start = int(place or "0") if self.paging == "offset" else 0
        if self.paging == "key" and place:
            listed = [(key, run) for key, run in listed if key < tuple(place.split("|", 1))]
        window, rest = listed[start : start + size], listed[start + size :]
        following: str | None = None
        if rest:
            number, place = "0", f"{start + size}" if self.paging == "offset" else "|".join(window[-1][0])
            following = f"{number} {place}"
        elif self.endless:
            following = (
                token if token and self.endless == "same" else f"{self._listed} {place * (self.endless != 'around')}"
            )
        return {
            "runs": [None] * self.nulls + [self.document(self.runs[run_id]) for _, run_id in window],
            "page_size": size,
            "next_token": following,
            "total_count": total if self.total_count is None else self.total_count,
        }

    def _matching(self, query: dict[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
        """The keys and ids of the runs that match the filters, in no order."""
        first, last = (_sortable(query.get(name, "")) for name in ("date_from", "date_to"))
        for run_id, run in list(self.runs.items()):
            if "status" in query and not self.ignore_status and run["status"] != query["status"]:
                continue
            if self.date_filter:
                at = self._time(run_id, self.date_filter)
                if at < first or (last and at > last):
                    continue
            tie = f"{crc32(f'{self._listed} {run_id}'.encode())}" if self.shuffles_ties else run_id
            yield (self._time(run_id, self.order), tie), run_id

    def _time(self, run_id: str, name: str) -> str:
        # A run with odd times keeps its position by its true ones.
        return _sortable(self.runs[run_id].get(name)) or self._true_times.get(run_id, {}).get(name, "")

    def _stored(self, when: float | datetime) -> str:
        moment = when if isinstance(when, datetime) else START + timedelta(minutes=when)
        return stamp(moment + self.clock_offset)


@lru_cache(1 << 16)
def _instant(text: str) -> str:
    try:
        return stamp(datetime.fromisoformat(text))
    except ValueError:
        return ""


def _sortable(shown: object) -> str:
    """A time as text that sorts; empty if it cannot be read as one."""
    return _instant(shown) if isinstance(shown, str) else ""
