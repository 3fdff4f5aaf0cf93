"""A scripted service: histories in memory, every quirk a field. It shares nothing with service/.

`tests.sync.peer_socket` puts it on a loopback socket.
"""

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from heapq import merge
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, Literal, overload
from urllib.parse import parse_qsl, urlsplit
from zlib import crc32

START: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
TICK: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
OMITTED: Final = object()
"""As the value of a field: the document does not have it."""


@dataclass(frozen=True, slots=True)
class PeerRun:
    """A run as the service stores it."""

    run_id: str
    status: str
    created: datetime
    updated: datetime
    fields: dict[str, Any] = field(default_factory=dict)
    """Replace or add fields of the document."""
    born: datetime | None = None
    """The true time at which it came into the list, whatever its own times say."""


@dataclass(frozen=True, slots=True)
class Archive(Sequence[PeerRun]):
    """Final runs that are computed, not stored: a million of them cost nothing."""

    numbers: range = range(0)
    """The newest one has number 0."""
    newest: datetime = START - MINUTE
    every: timedelta = SECOND
    statuses: tuple[str, ...] = ("completed", "failed", "cancelled")
    """They take turns."""

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> PeerRun: ...
    @overload
    def __getitem__(self, place: slice) -> "Archive": ...
    def __getitem__(self, place: int | slice) -> "PeerRun | Archive":
        if isinstance(place, slice):
            return replace(self, numbers=self.numbers[place])
        number = self.numbers[place]
        created = self.newest - number * self.every
        return PeerRun(f"old_{10**9 - number}", self.statuses[number % len(self.statuses)], created, created)

    def of(self, status: str) -> "Archive":
        """Those with this status."""
        if status not in self.statuses:
            return self[:0]
        step = len(self.statuses)
        return self[(self.statuses.index(status) - self.numbers.start) % step :: step] if self else self


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Fault = Answer | Literal["reset", "truncated"]
"""Instead of the answer; the connection reset in the middle of it; the body cut off, but announced as cut."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and how it was answered."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    status: int
    at_s: float


@dataclass
class Peer:
    """The service; change any field at any time."""

    runs: dict[str, PeerRun] = field(default_factory=dict)
    archive: Archive = field(default_factory=Archive)
    health: Any = field(default_factory=lambda: {"code_hosting": {"github": {"status": "healthy"}}})
    clock: Callable[[], datetime] = lambda: START
    """The true time."""
    clock_offset: timedelta = timedelta(0)
    """How far the service's clock is ahead, in its times and its Date header."""
    stored_unit: timedelta = TICK
    shown_unit: timedelta = TICK
    """Times are cut to it in documents only."""
    local_offset: timedelta | None = None
    """Times are shown as naive local times, so far ahead of UTC. None: in UTC, with Z."""
    has_readable_times: bool = True
    order: Literal["created", "updated"] = "created"
    date_filter: Literal["created", "updated", "ignored"] = "created"
    has_status_filter: bool = True
    filtered_statuses: Collection[str] | None = None
    """Those that the filter takes; others are answered with 400. None: any."""
    paging: Literal["key", "offset"] = "key"
    shuffles_ties: bool = False
    """Runs created in the same instant are in another order with each request."""
    largest_page: int = 100
    endless: Literal["", "same", "stays", "around"] = ""
    """After the end: the same token again; the last page with a new token; the first page with a new token."""
    nulls: int = 0
    """Null entries at the beginning of each page."""
    total_count: Any = None
    """Instead of the true one."""
    limit: tuple[int, float] | None = None
    """So many requests in so many seconds; more are answered with 429."""
    retry_after: Literal["", "seconds", "date"] = "seconds"
    refused: dict[str, int] = field(default_factory=dict)
    """Tokens that are answered with this status."""
    lost_writes: int = 0
    """So many answers to writes are lost on their way; the writes are carried out."""
    echoes_metadata: bool = False
    continues_as_new: bool = False
    """The next turn of a conversation is another run."""
    is_dated: bool = True
    """Answers have a Date header."""
    latency_s: float = 0.0
    clock_s: Callable[[], float] = time.monotonic
    """For `limit`."""
    log: list[Asked] = field(default_factory=list)
    base_url: str = ""
    _counted: int = 0
    _listed: int = 0
    _script: dict[int, Callable[[], object]] = field(default_factory=dict)

    def put(
        self,
        run_id: str,
        status: str = "completed",
        *,
        created: datetime | None = None,
        updated: datetime | None = None,
        **fields: Any,
    ) -> None:
        """Add or replace a run; times are true ones, `now` where none is given."""
        created = self._stored(created or self.now)
        updated = created if updated is None else self._stored(updated)
        self.runs[run_id] = PeerRun(run_id, status, created, updated, fields, self.now)

    def fill(
        self, count: int, status: str = "completed", *, until: datetime | None = None, every: timedelta = MINUTE
    ) -> None:
        """Add runs, oldest first, the newest one created at `until` (None: now); they are numbered through."""
        for n in range(count):
            self.put(f"run_{len(self.runs):05}", status, created=(until or self.now) - (count - 1 - n) * every)

    def move(self, run_id: str, status: str, *, updated: datetime | None = None) -> None:
        """Give a run another status, now or at a time that may even lie before its last one."""
        self.runs[run_id] = replace(self.runs[run_id], status=status, updated=self._stored(updated or self.now))

    def before(self, n: int, do: Callable[[], object]) -> None:
        """Do this before the n-th list request from now (1: the next) is answered; a `Fault` it returns happens."""
        self._script[self._listed + n] = do

    def asked(self) -> int:
        """How many requests came since this was last asked."""
        count, self._counted = len(self.log) - self._counted, len(self.log)
        return count

    @property
    def now(self) -> datetime:
        """The true time."""
        return self.clock()

    @property
    def service_now(self) -> datetime:
        """The time by its own clock."""
        return self.now + self.clock_offset

    def document(self, run: PeerRun) -> dict[str, Any]:
        """The run as it is shown."""
        document = {
            "run_id": run.run_id,
            "status": run.status,
            "branch_name": "main",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
            "created_at": self.shown(run.created),
            "updated_at": self.shown(run.updated),
            **run.fields,
        }
        return {name: value for name, value in document.items() if value is not OMITTED}

    def shown(self, moment: datetime) -> str:
        """A stored time as documents have it."""
        if not self.has_readable_times:
            return f"moment {moment:%H.%M}"
        text = (_cut(moment, self.shown_unit) + (self.local_offset or timedelta(0))).replace(tzinfo=None).isoformat()
        return text if self.local_offset is not None else f"{text}Z"

    def answer(self, method: str, target: str, token: str, body: bytes) -> tuple[Answer, str]:
        """The answer to a request, and what happens to it on its way: `reset`, `truncated` or nothing."""
        parts = urlsplit(target)
        path, query = parts.path.removeprefix("/v1"), dict(parse_qsl(parts.query))
        done: object = None
        if (method, path) == ("GET", "/external/runs"):
            self._listed += 1
            done = self._script.pop(self._listed, lambda: None)()
        answer = done if isinstance(done, Answer) else self._judged(method, path, query, token, body)
        self.log.append(Asked(method, path, query, token, answer.status, self.clock_s()))
        if method == "POST" and self.lost_writes:
            self.lost_writes -= 1
            done = "reset"
        return answer, done if isinstance(done, str) else ""

    def _judged(self, method: str, path: str, query: dict[str, str], token: str, body: bytes) -> Answer:
        if token in self.refused:
            return Answer(self.refused[token], {"message": "The token is not accepted."})
        if limited := self._limited():
            return limited
        match method, path:
            case "GET", "/external/runs":
                status, known = query.get("status"), self.filtered_statuses
                is_refused = status is not None and known is not None and status not in known
                return Answer(400, {"message": "No such status."}) if is_refused else Answer(body=self._page(query))
            case "GET", "/external/installation/health":
                return Answer(body=self.health)
            case "POST", "/external/runs":
                return Answer(body=self._started(json.loads(body)))
        return Answer(404, {"message": "Not here."})

    def _limited(self) -> Answer | None:
        if self.limit is None:
            return None
        count, window_s = self.limit
        since_s = self.clock_s() - window_s
        passed = [asked.at_s for asked in self.log if asked.status == HTTPStatus.OK and asked.at_s > since_s]
        return rate_limited(self, passed[-count] - since_s) if len(passed) >= count else None

    def _started(self, body: dict[str, Any]) -> dict[str, Any]:
        run_id = "" if self.continues_as_new else body.get("run_id", "")
        if run_id in self.runs:
            self.move(run_id, "queued")
        else:
            run_id = f"run_{len(self.runs):05}"
            named = {"branch_name": body["branch_name"]} if "branch_name" in body else {}
            shown = {"metadata": body.get("metadata")} if self.echoes_metadata else {}
            self.put(run_id, "queued", repository=body["repository"], **named, **shown)
        return self.document(self.runs[run_id])

    def _page(self, query: dict[str, str]) -> dict[str, Any]:
        token, size = query.get("page_token", ""), min(int(query.get("page_size", "10")), self.largest_page)
        stored, archive = self._stored_runs(query), self._archived(query)
        total = len(stored) + len(archive)
        kind, _, place = token.rpartition(" ")[2].partition(":")
        if kind == "key":
            moment, _, run_id = place.partition("|")
            stored, archive = (_after(runs, self._key, (moment, run_id)) for runs in (stored, archive))
        start = int(place) if kind == "offset" else 0
        window = list(islice(merge(stored, archive, key=self._key, reverse=True), start, start + size + 1))
        shown, rest = window[:size], window[size:]
        following: str | None = None
        if rest:
            following = "key:{}|{}".format(*self._key(shown[-1])) if self.paging == "key" else f"offset:{start + size}"
        elif self.endless:
            following = {"same": token, "stays": token.rpartition(" ")[2], "around": ""}[self.endless]
        if following is not None and (self.endless in {"stays", "around"} or not following):
            following = f"{self._listed if self.endless != 'same' else 0} {following}"
        return {
            "runs": [None] * self.nulls + [self.document(run) for run in shown],
            "page_size": size,
            "next_token": following,
            "total_count": total if self.total_count is None else self.total_count,
        }

    def _key(self, run: PeerRun) -> tuple[str, str]:
        moment = run.updated if self.order == "updated" else run.created
        tie = f"{crc32(f'{self._listed} {run.run_id}'.encode())}" if self.shuffles_ties else run.run_id
        return _digits(moment), tie

    def _stored_runs(self, query: dict[str, str]) -> Sequence[PeerRun]:
        runs = list(self.runs.values())
        if "status" in query and self.has_status_filter:
            runs = [run for run in runs if run.status == query["status"]]
        if self.date_filter != "ignored":
            start, end = _times(query)
            runs = [run for run in runs if start <= getattr(run, self.date_filter) <= end]
        return sorted(runs, key=self._key, reverse=True)

    def _archived(self, query: dict[str, str]) -> Archive:
        archive = self.archive.of(query["status"]) if "status" in query and self.has_status_filter else self.archive
        if self.date_filter == "ignored" or not archive:
            return archive
        start, end = _times(query)
        first = bisect_left(archive, -end.timestamp(), key=lambda run: -run.created.timestamp())
        return archive[first : bisect_right(archive, -start.timestamp(), key=lambda run: -run.created.timestamp())]

    def _stored(self, moment: datetime) -> datetime:
        return _cut(moment + self.clock_offset, self.stored_unit)


def rate_limited(peer: Peer, wait_s: float) -> Answer:
    """429, with the wait as the peer states it."""
    until = (peer.service_now + timedelta(seconds=wait_s)).replace(microsecond=0) + SECOND
    value = {"seconds": str(int(wait_s) + 1), "date": format_datetime(until, usegmt=True)}.get(peer.retry_after)
    return Answer(429, {"message": "Slow down."}, {"Retry-After": value} if value else {})


def _times(query: dict[str, str]) -> tuple[datetime, datetime]:
    bounds = query.get("date_from", "0001-01-01T00:00:00Z"), query.get("date_to", "9999-12-31T00:00:00Z")
    start, end = (datetime.fromisoformat(bound) for bound in bounds)
    return start, end


@lru_cache(1 << 16)
def _digits(moment: datetime) -> str:
    """A moment as it sorts; each list is sorted by it."""
    return f"{moment:%Y%m%d%H%M%S%f}"


def _cut(moment: datetime, unit: timedelta) -> datetime:
    return moment - (moment - START) % unit


def _after(
    runs: Sequence[PeerRun], key: Callable[[PeerRun], tuple[str, str]], last: tuple[str, str]
) -> Sequence[PeerRun]:
    low, high = 0, len(runs)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if key(runs[middle]) < last else (middle + 1, high)
    return runs[low:]
