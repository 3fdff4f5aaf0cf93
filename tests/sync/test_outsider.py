"""Random services, written from the specification alone, check the claims of the command line.

Nothing here knows how the program syncs. A history is made from its number; every service has some habits that the
specification allows or does not exclude, and some of them turn into others midway. `RUNWARDEN_HISTORIES` says how many
histories a campaign has, `RUNWARDEN_FIRST_HISTORY` with which it begins.
"""

import json
import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.conftest import CommandLine, Result
from tests.lab import Raw, Received, Respond, Server, Step

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
ACTIVE: Final = ("queued", "working")
FINAL: Final = ("completed", "failed")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FORMATS: Final[dict[str, Callable[[datetime], object]]] = {
    "microseconds": lambda at: at.isoformat().replace("+00:00", "Z"),
    "milliseconds": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z",
    "seconds": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}Z",
    "an offset": lambda at: (at + 2 * 60 * MINUTE).replace(tzinfo=None).isoformat() + "+02:00",
    "epoch": lambda at: (at - EPOCH).total_seconds(),
    "epoch in milliseconds": lambda at: (at - EPOCH) // timedelta(milliseconds=1),
    "local": lambda at: (at + 2 * 60 * MINUTE).replace(tzinfo=None).isoformat(),
    "words": lambda at: f"{at:%d %B, %H.%M}",
}
"""The ways in which a service may write a time; the specification does not say."""
HABITS: Final[dict[str, tuple[Any, ...]]] = {
    "largest_page": (1, 2, 3, 5, 8, 13, 100),
    "token": ("place", "place", "key", "key", "snapshot"),
    "shuffles_ties": (False, False, True),
    "order": ("created", "created", "created", "created", "updated"),
    "shows": (*("microseconds",) * 5, *FORMATS),
    "filters_status": (True, True, True, False),
    "filters_dates": ("created", "created", "updated", ""),
    "total": ("all", "all", "filtered", "none", "text"),
    "last_token": (None, None, "", "missing"),
    "repeats": ("", "", "", "", "page", "last", "empty", "around"),
    "lifetime": (0, 0, 0, 2, 5),
    "is_dated": (True, True, True, False),
}
"""Habits of a service; repeated ones are more likely."""
EVENTS: Final = ("arrive", "arrive", "arrive together", "move", "move", "move", "continue", "delete", "turn", "clock")


@dataclass
class Life:
    """A run in the service, and everything that was ever true of it, by the real clock."""

    created: datetime
    updated: datetime
    shown: list[tuple[datetime, str | None]]
    """Each status with the time from which it holds. None: deleted."""

    @property
    def status(self) -> str | None:
        return self.shown[-1][1]

    def had(self, status: str, first: datetime, last: datetime) -> bool:
        """Whether it had this status at any time in this period."""
        ends = [*(at for at, _ in self.shown[1:]), datetime.max.replace(tzinfo=UTC)]
        return any(
            was == status and at <= last and end >= first for (at, was), end in zip(self.shown, ends, strict=True)
        )


@dataclass
class Service:
    """The list of runs (spec 4.2) with habits; everything random depends on the history's number."""

    dice: random.Random
    lives: dict[str, Life] = field(default_factory=dict)
    offset: timedelta = timedelta(0)
    """How far its clock is ahead."""
    offsets: set[timedelta] = field(default_factory=lambda: {timedelta(0)})
    """All runs that it ever had."""
    habits: dict[str, Any] = field(default_factory=dict)
    unrest: float = 0.0
    """The probability of an event before a request is answered."""
    faults: float = 0.0
    """The probability that an answer fails."""
    requests: int = 0
    limit: int = 0
    """After this many requests of one command the service stops answering, since the command would not end."""
    tokens: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """The request that created each token, and the page it leads to."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        dice = self.dice
        self.habits = {name: dice.choice(values) for name, values in HABITS.items()}
        # Most services are odd in only a few ways.
        for name in dice.sample(sorted(HABITS), dice.randrange(4, len(HABITS))):
            if name != "largest_page":
                self.habits[name] = HABITS[name][0]
        self.unrest = dice.choice((0, 0, 0.1, 0.3))
        self.faults = dice.choice((0, 0, 0, 0.05, 0.15))
        self.offset = dice.choice((0, 0, 0, -3, 2)) * 60 * MINUTE
        self.offsets.add(self.offset)
        at = self.now - dice.choice((1, 60, 24 * 60)) * MINUTE
        for _ in range(dice.choice((0, 1, 5, 15, 30, 45))):
            at -= dice.choice((timedelta(0), SECOND / 3, SECOND, MINUTE, 61 * MINUTE))
            self.add(dice.choice((*FINAL, *FINAL, *FINAL, *ACTIVE)), at)

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def add(self, status: str, created: datetime) -> None:
        number = len(self.lives)
        # Ids do not reflect the order.
        run_id = f"run_{(number * 7919 + 13) % 10007:05}"
        # Runs from before the history began always existed.
        since = EPOCH if not self.requests else datetime.now(UTC)
        updated = created + self.dice.choice((timedelta(0), SECOND, 5 * MINUTE)) if not self.requests else created
        self.lives[run_id] = Life(created, min(updated, self.now), [(since, status)])

    def set_status(self, run_id: str, status: str | None) -> None:
        self.lives[run_id].shown.append((datetime.now(UTC), status))
        self.lives[run_id].updated = self.now

    def happens(self, what: str) -> None:
        """Something happens to the runs, or to the service."""
        dice = self.dice
        among = {"move": ACTIVE, "continue": FINAL, "delete": ACTIVE + FINAL}.get(what, ())
        some = [run_id for run_id, life in self.lives.items() if life.status in among]
        match what:
            case "arrive" | "arrive together":
                at = self.now
                for _ in range(dice.choice((1, 1, 2, 6))):
                    self.add(dice.choice((*ACTIVE, *ACTIVE, *FINAL)), at if "together" in what else self.now)
            case "move" if some:
                self.set_status(dice.choice(some), dice.choice((*ACTIVE, *FINAL)))
            case "continue" if some:
                self.set_status(dice.choice(some), dice.choice(ACTIVE))
            case "delete" if some:
                self.set_status(dice.choice(some), None)
            case "turn":
                name = dice.choice(sorted(HABITS))
                self.habits[name] = dice.choice(HABITS[name])
            case "clock":
                self.offset += (by := dice.choice((-180, -10, 10, 120))) * MINUTE
                # Without a date, nobody can detect that newer runs are listed below older ones.
                self.habits["is_dated"] = self.habits["is_dated"] or by < 0
                self.offsets.add(self.offset)

    def answer(self, target: str) -> tuple[int, bytes, bool]:
        """Return status, body, and whether the connection breaks in the middle."""
        dice = self.dice
        self.requests += 1
        if self.requests > self.limit:
            return 403, b'{"message": "enough"}', False
        if dice.random() < self.unrest:
            self.happens(dice.choice(EVENTS))
        url = urlsplit(target)
        if url.path.endswith("/health"):
            return 200, b'{"code_hosting": {"github": {"status": "ok"}}}', False
        if not url.path.endswith("/external/runs"):
            return 404, b'{"message": "not here"}', False
        if dice.random() < self.faults:
            return dice.choice((500, 503)), b'{"message": "failed"}', False
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        status, document = self.page(query)
        return status, json.dumps(document).encode(), dice.random() < self.faults

    def page(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        habits = self.habits
        listed = self.listed(query)
        size = min(int(query.get("page_size", "10")), habits["largest_page"])
        given = query.get("page_token")
        start = 0
        if given is not None:
            made_at, leads = self.tokens.get(given, (0, None))
            if leads is None or (habits["lifetime"] and self.requests - made_at > habits["lifetime"]):
                return 400, {"message": "the page token has expired"}
            match leads:
                case int(start):
                    pass
                case list():
                    listed = [run_id for run_id in leads if self.lives[run_id].status is not None]
                case key:
                    start = sum(self.key(run_id) >= key for run_id in listed)
        window, rest = listed[start : start + size], listed[start + size :]
        leads_on: Any = None
        if rest:
            # If ties change their order, a key would skip some of them for every reader.
            kind = "place" if habits["token"] == "key" and habits["shuffles_ties"] else habits["token"]
            leads_on = {"place": start + size, "key": self.key(window[-1]), "snapshot": rest}[kind]
        shown = window
        if habits["repeats"] in {"page", "empty"} and rest and self.dice.random() < 0.5:
            # The same page again, or first an empty one.
            leads_on, shown = start, window if habits["repeats"] == "page" else []
        elif habits["repeats"] in {"last", "around"} and not rest:
            leads_on = start if habits["repeats"] == "last" else 0
        token: Any = habits["last_token"]
        if leads_on is not None:
            token = f"t{self.requests}"
            self.tokens[token] = (self.requests, leads_on)
        total = {"all": self.count(), "filtered": len(listed), "text": f"{len(listed)}"}.get(habits["total"])
        document = {"runs": [self.document(run_id) for run_id in shown], "page_size": size, "next_token": token}
        if total is not None:
            document["total_count"] = total
        if token == "missing":
            del document["next_token"]
        return 200, document

    def listed(self, query: dict[str, str]) -> list[str]:
        """The runs that match the filters, newest first."""
        ids = [run_id for run_id, life in self.lives.items() if life.status is not None]
        if "status" in query and self.habits["filters_status"]:
            ids = [run_id for run_id in ids if self.lives[run_id].status == query["status"]]
        if name := self.habits["filters_dates"]:
            for bound, sign in (("date_from", 1), ("date_to", -1)):
                if bound in query:
                    at = datetime.fromisoformat(query[bound])
                    ids = [run_id for run_id in ids if sign * ((getattr(self.lives[run_id], name) - at) // SECOND) >= 0]
        if self.habits["shuffles_ties"]:
            self.dice.shuffle(ids)
            return sorted(ids, key=lambda run_id: self.key(run_id)[0], reverse=True)
        return sorted(ids, key=self.key, reverse=True)

    def key(self, run_id: str) -> tuple[datetime, str]:
        life = self.lives[run_id]
        return getattr(life, self.habits["order"]), run_id

    def count(self) -> int:
        return sum(life.status is not None for life in self.lives.values())

    def document(self, run_id: str) -> dict[str, Any]:
        life, show = self.lives[run_id], FORMATS[self.habits["shows"]]
        return {
            "run_id": run_id,
            "status": life.status,
            "branch_name": "main",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
            "created_at": show(life.created),
            "updated_at": show(life.updated),
        }


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve the service over HTTP; return its base address."""

    def answer(request: Received) -> Step:
        with service.lock:
            status, body, breaks = service.answer(request.target)
            date = format_datetime(service.now.replace(microsecond=0), usegmt=True)
            headers = {"Date": date} if service.habits["is_dated"] else {}
        if breaks:
            begin = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            return Raw(begin.encode() + body[: len(body) // 2])
        return Respond(status, body, headers)

    with Server() as server:
        server.otherwise = answer
        yield server.base_url


COMMANDS: Final = (
    ("runs", "sync", "--json"),
    ("runs", "sync", "--json"),
    ("runs", "list", "--active", "--all", "--json"),
    ("runs", "list", "--from", "-10m", "--all", "--json"),
    ("runs", "list", "--all", "--json"),
    ("runs", "list", "--limit", "3", "--json"),
)
CACHED: Final = ("runs", "list", "--cached", "--all", "--json")


def history(number: int, folder: Path, counts: Counter[str]) -> None:
    """Run commands on one service and one data folder; after each, compare their claims with the truth."""
    dice = random.Random(number)
    service = Service(dice)
    with serving(service) as base_url:
        command_line = CommandLine(folder, base_url)
        for _ in range(dice.choice((2, 3, 4))):
            with service.lock:
                for _ in range(dice.choice((0, 1, 3))):
                    service.happens(dice.choice(EVENTS))
            arguments = dice.choice(COMMANDS)
            service.limit = service.requests + 60 + 12 * len(service.lives)
            before = datetime.now(UTC)
            result = command_line(*arguments)
            with service.lock:
                told = f"history {number}, {' '.join(arguments)}: {service.habits}"
                assert service.requests <= service.limit, f"it does not end: {told}"
                assert result.code in {0, 2, 4, 5, 8}, f"{result}: {told}"
                counts["commands"] += 1
                counts["failed"] += result.code != 0
                check_live(service, arguments, result, before, told)
                cached = command_line(*CACHED).json()
                check_cached(service, cached, told)
                if result.code == 0:
                    held = {run["run_id"] for run in cached["runs"]}
                    check_claims(service, result.json(), held, told)
                    counts["claims"] += bool(result.json()["complete_since"])


def check_live(service: Service, arguments: tuple[str, ...], result: Result, before: datetime, told: str) -> None:
    """A live list shows only matching runs, each once."""
    if result.code or arguments[1] != "list":
        return
    runs = result.json()["runs"]
    ids = [run["run_id"] for run in runs]
    assert len(ids) == len(set(ids)), f"a run comes twice: {told}"
    if "--active" in arguments:
        assert {run["status"] for run in runs} <= {*ACTIVE}, f"an ended run is listed as active: {told}"
    if "--from" in arguments:
        # By any clock that the service ever had, as they agree to the minute.
        since = before + min(service.offsets) - 12 * MINUTE
        early = [run_id for run_id in ids if service.lives[run_id].created < since]
        is_zoned = service.habits["shows"] != "local"
        assert not (early and is_zoned), f"older than ten minutes: {early}: {told}"


def check_cached(service: Service, document: Any, told: str) -> None:
    """Cached facts were true, and only deleted runs are shown as lost."""
    check_claims(service, document, {run["run_id"] for run in document["runs"]}, told)
    for run in document["runs"]:
        life = service.lives[run["run_id"]]
        observed = run["observed"]
        if observed["state"] == "lost":
            assert any(status is None for _, status in life.shown), f"{run['run_id']} is called lost: {told}"
        seen_at = datetime.fromisoformat(observed["last_seen_at"])
        # An answer is dated by its request, and may arrive a moment later.
        assert life.had(run["status"], seen_at, seen_at + MINUTE), f"{run} never was so: {told}"


def check_claims(service: Service, document: Any, held: set[str], told: str) -> None:
    """No run is missing where a document claims completeness."""
    as_of = _moment(document["as_of"])
    ranges = [(_moment(one["from"]), _moment(one["to"])) for one in document.get("complete", ())]
    if since := _moment(document["complete_since"]):
        ranges.append((since, None))
    if document.get("whole"):
        ranges.append((None, None))
    if as_of is None:
        assert not ranges, f"a claim without a time: {told}"
        return
    for since, until in ranges:
        missing = [
            f"{run_id} of {life.created}"
            for run_id, life in service.lives.items()
            if run_id not in held
            and life.status is not None
            and life.shown[0][0] <= as_of
            # A time may be shown without its fraction.
            and (since is None or life.created.replace(microsecond=0) >= since)
            and (until is None or life.created <= until)
        ]
        assert not missing, f"from {since} to {until} as of {as_of} these are missing: {missing}: {told}"


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def played(numbers: Sequence[int]) -> Counter[str]:
    """Run all of these histories; return how many commands ran, failed, and made claims."""
    counts = Counter[str]()
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            history(number, Path(folder), counts)
    print(len(numbers), dict(counts))
    return counts


@pytest.mark.parametrize("numbers", [range(2), [1022]], ids=["two", "false once"])
def test_no_claim_about_a_random_service_is_false(numbers: Sequence[int]) -> None:
    """No active run is shown as ended, no list shows runs outside its filter, and every command ends."""
    assert played(numbers)["commands"] >= len(numbers)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_no_claim_about_a_thousand_services_is_false() -> None:
    """A thousand histories are checked in the same way."""
    first = int(os.environ.get("RUNWARDEN_FIRST_HISTORY", "0"))
    played(range(first, first + int(os.environ.get("RUNWARDEN_HISTORIES", "1000"))))
