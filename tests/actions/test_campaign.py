"""Faults over real sockets and commands killed at any moment: nothing sent twice, forgotten or reported wrongly.

Three accounts of each write have to agree: what the peer executed, what the ledger has, and what the command reported.
"""

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from ssl import SSLContext
from subprocess import PIPE
from typing import Any, Final, NamedTuple

import pytest

from app.actions.actions import Actions
from app.actions.command_writes import exit_of, finish_send, send_once, unsent_document, write_document
from app.api.client import Client
from app.api.requests import StartRun
from app.profiles.token import Token
from app.sync.runs import RunSync
from storage import database
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.ledger import Ledger
from storage.records import Action, Repository
from tests.cli.conftest import CommandLine
from tests.lab import RUN, Drop, Raw, Received, Respond, Server, Step, hang_up
from tests.program import Program
from tests.service.servers import make_certificate

CODE = """
import os, signal, sys
from itertools import count
from app.__main__ import main
from storage import database

kill_at, kill_after_s, *line = sys.argv[1:]
sys.stdin.readline()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
# The kernel ends the process, after `execve` as well: nothing of ours handles this signal.
signal.setitimer(signal.ITIMER_REAL, float(kill_after_s))
if kill_at == "program":
    os.execve(sys.executable, [sys.executable, "-m", "app", *line], os.environ)
database.BUSY_WAIT_S = 5.0
connect, statements = database.connect, count()

def tick(_):
    if str(next(statements)) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def counting(*arguments):
    connection = connect(*arguments)
    connection.set_trace_callback(tick)
    return connection

database.connect = counting
sys.exit(main(line))
"""


class Ended(NamedTuple):
    """The result of a command that finished."""

    code: int
    """A negative code is the number of the signal that killed it, negated."""
    out: str


def command(environment: Mapping[str, str], line: Sequence[str], kill_at: object = "", kill_after_s: float = 0) -> Any:
    """A command line for `run`, killed at its n-th SQL statement or after some seconds.

    `kill_at="program"` starts the program itself, with neither its imports nor anything else prepared.
    """
    return environment, [str(kill_at), str(kill_after_s), *line]


def run(*commands: Any) -> list[Ended]:
    """Start all of these commands, let them go at the same moment, and wait until they have ended."""
    processes = [Program(arguments, given, code=CODE, streams=(PIPE, PIPE, PIPE)) for given, arguments in commands]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outs = [process.communicate()[0] for process in processes]
    return [Ended(process.wait(), out) for process, out in zip(processes, outs, strict=True)]


API = Repository.parse("acme/api")

# the service

REFUSALS: Final = (400, 401, 403, 404, 405, 409, 413, 422, 429)
DOUBTFUL: Final = (204, 206, 302, 307, 406, 408, 418, 424, 425, 499, 500, 501, 502, 503, 504)
MAX_STALL_S: Final = 0.4
UNREAD: Final = 0.08
"""The share of connections that close before the request was read."""


def seeded(size: int) -> random.Random:
    """The same random choices in every test run; a campaign gets new ones and prints its seed."""
    seed = 1 if size <= 100 else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


@dataclass(slots=True)
class Exchange:
    """One write that the peer received."""

    mark: str
    execute: Callable[[], None]
    rng: random.Random

    @property
    def answer(self) -> Respond:
        """Return the answer that the spec promises."""
        return Respond(201, {**RUN, "run_id": f"run_of_{self.mark}"})

    @property
    def whole(self) -> bytes:
        """The answer as it is sent."""
        body = json.dumps(self.answer.body)
        return f"HTTP/1.1 201 X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    def part(self) -> bytes:
        """The beginning of the answer, or an empty one."""
        return self.whole[: self.rng.randrange(len(self.whole))]

    def maybe(self) -> None:
        """Whether to execute the write, at random."""
        if self.rng.random() < 0.5:
            self.execute()


Play = Callable[[Exchange], Awaitable[Step]]


async def succeed(it: Exchange) -> Step:
    it.execute()
    return it.answer


async def succeed_late(it: Exchange) -> Step:
    """Execute the write before or after the answer stalls."""
    is_early = it.rng.random() < 0.5
    if is_early:
        it.execute()
    await asyncio.sleep(it.rng.uniform(0, MAX_STALL_S))
    if not is_early:
        it.execute()
    return it.answer


async def refuse(it: Exchange) -> Step:
    return Respond(it.rng.choice(REFUSALS), {"message": "no"})


async def doubt(it: Exchange) -> Step:
    it.maybe()
    return Respond(it.rng.choice(DOUBTFUL), {"message": "hm"}, {"Location": "/v1/elsewhere"})


async def odd_success(it: Exchange) -> Step:
    it.maybe()
    odd = (b"<html>", b"", b"{}", b'{"run_id": null}', b'{"run_id": ""}', b"\xff\xfe", b"[]", b"{" * 50_000)
    headers = it.rng.choice([{}, {"Content-Encoding": "gzip"}])
    return Respond(it.rng.choice([200, 201, 202]), it.rng.choice(odd), headers)


async def break_off(it: Exchange) -> Step:
    """Send nothing, a part of the answer or garbage, at once or late."""
    it.maybe()
    stall_s = it.rng.choice([0, 0, 0, MAX_STALL_S])
    then: Any = "close" if stall_s else it.rng.choice(["close", "reset"])
    garbage = (b"\x00" * 40, b"HTTP/9.9 yes\r\n\r\n", b"HTTP/1.1 abc X\r\n\r\n", b"220 smtp\r\n")
    hint = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    data = it.rng.choice([it.part(), it.part(), it.rng.choice(garbage), hint + it.part()])
    return it.rng.choice([Drop(then=then), Raw(data, then, after_s=stall_s)])


async def hint_first(it: Exchange) -> Step:
    it.execute()
    return Raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" + it.whole)


PLAYS: Final[tuple[Play, ...]] = (
    *(succeed, succeed, succeed, succeed_late, succeed_late, refuse, refuse, refuse, doubt, odd_success),
    *(break_off, break_off, break_off, break_off, break_off, hint_first),
)


@dataclass(slots=True)
class FaultyPeer:
    """Plays one of the faults for each write; each write's instructions are its mark."""

    rng: random.Random
    plays: tuple[Play, ...] = PLAYS
    unread: float = UNREAD
    executed: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    """How often each write was received, by its mark."""
    played: Counter[str] = field(default_factory=Counter)

    def greet(self) -> Drop | None:
        """How to close a connection before its request is read, if at all."""
        if self.rng.random() >= self.unread:
            return None
        self.played["unread"] += 1
        return Drop(self.rng.choice(["accepted", "unread"]), self.rng.choice(["close", "reset"]))

    async def play(self, request: Received) -> Step:
        if request.method != "POST":
            return Respond(200, {"runs": [], "page_size": 100, "next_token": None, "total_count": 0})
        mark = request.json()["instructions"]
        self.received[mark] += 1
        play = self.rng.choice(self.plays)
        self.played[play.__name__] += 1
        return await play(Exchange(mark, lambda: self.executed.update([mark]), self.rng))


@dataclass(kw_only=True, eq=False)
class RudeServer(Server):
    """An address of the peer; it closes some connections before it has read a request."""

    peer: FaultyPeer

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (drop := self.peer.greet()) is None:
            await super().converse(reader, writer)
        elif drop.when == "accepted" or await reader.read(1):
            hang_up(writer, drop.then)

    async def answer(self, request: Received) -> Step:
        return await self.peer.play(request)


# the accounts

CODES = {"confirmed": {0}, "unknown": {6, 130}, "rejected": {2, 4, 5, 7}, "not_sent": {2, 4, 5, 7, 8, 130}}


class Said(NamedTuple):
    """What a command reported about one write."""

    mark: str
    code: int
    state: str
    action_id: str | None
    has_run: bool


@dataclass(slots=True)
class Accounts:
    """The three accounts, collected while writes are under way and compared at the end."""

    peer: FaultyPeer
    said: list[Said] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)

    def hear(self, mark: str, code: int, document: dict[str, Any]) -> None:
        """Record what a command reported."""
        self.said.append(Said(mark, code, document["state"], document["action_id"], document["run"] is not None))

    async def contradictions(self, *ledger_files: Path, ours: bool) -> list[str]:
        """Return everything that does not fit together.

        Actions that this process (`ours`) sent count as those of a dead one.
        """
        held: dict[str, tuple[str, Action]] = {}
        for file in ledger_files:
            async with await Ledger.open(file) as ledger:
                if ours:  # No process has this id.
                    query = f"UPDATE actions SET owner_json = json_set(owner_json, '$[0]', {2**22 + 1})"
                    await ledger.writer.run(lambda connection, query=query: connection.execute(query))
                await ledger.adopt_orphans()
                for action in await ledger.actions(limit=10_000_000):
                    held[action.action_id] = json.loads(action.body_json)["instructions"], action
        self.states.update(action.state for _, action in held.values())
        marks = {mark for mark, _ in held.values()}
        odd = [f"{mark} was sent {n} times" for mark, n in self.peer.received.items() if n > 1 or mark not in marks]
        for mark, action in held.values():
            executed = self.peer.executed[mark]
            is_true = {
                "unknown": True,
                "confirmed": executed and action.result_id == f"run_of_{mark}",
                **dict.fromkeys(("not_sent", "rejected"), not executed),
            }.get(action.state, False)
            odd += [] if is_true else [f"{mark} was executed {executed} times: {action}"]
        return odd + [f"{said}: {held.get(said.action_id or '')}" for said in self.said if not self._fits(said, held)]

    def _fits(self, said: Said, held: Mapping[str, tuple[str, Action]]) -> bool:
        """Whether exit code, state and run fit together, and agree with the ledger or the peer."""
        if said.action_id is None:
            is_known = said.state == "not_sent" and not self.peer.received[said.mark]
        else:
            is_known = said.action_id in held and held[said.action_id][1].state == said.state
        return is_known and said.code in CODES.get(said.state, ()) and said.has_run == (said.state == "confirmed")


# faults

DEADLINES_S = (0.2, 0.4, 0.5, 0.7, 1.0, 5.0)
"""The number of desks; each plays a process with its own connections."""
AT_ONCE = 16


class NoBudget:
    """Requests are neither spaced nor refused: every fault reaches the wire."""

    heard_ahead: timedelta | None = None

    @asynccontextmanager
    async def turn(self, *_: object) -> AsyncIterator[None]:
        yield

    def read_headers(self, *_: object) -> None:
        pass

    async def settle(self) -> None:
        pass


@dataclass(slots=True)
class Storm:
    """Many writes at once, each with its own fault."""

    folder: Path
    rng: random.Random
    accounts: Accounts
    desks: list[Actions]

    async def write(self, mark: str) -> None:
        """Send one write, perhaps interrupt it, and report it as the command line does."""
        desk = self.rng.choice(self.desks)
        request = StartRun(mark, API)
        sending = asyncio.create_task(send_once(finish_send(desk.submit(request, key=mark)), request, mark))
        if self.rng.random() < 0.1:
            asyncio.get_running_loop().call_later(self.rng.uniform(0, 0.2), sending.cancel)
        document: dict[str, Any] = unsent_document("run.start")
        code = 130
        try:
            action = await sending
            document, code = write_document(action), exit_of(action)
        except StorageError:
            code = 2
        except asyncio.CancelledError:
            pass
        self.accounts.hear(mark, code, document)

    async def run(self, count: int) -> None:
        """Send all of them, a few at a time, while the disk and other processes interfere."""
        vandal = asyncio.create_task(self._spoil())
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with turns:
                await self.write(f"mark-{number}")

        for first in range(0, count, 1_000):
            await asyncio.gather(*(one(number) for number in range(first, min(count, first + 1_000))))
        vandal.cancel()
        with suppress(asyncio.CancelledError):
            await vandal

    async def _spoil(self) -> None:
        """Let another process lock a file, or let the disk look full to one process."""
        while True:
            await asyncio.sleep(self.rng.uniform(0, 0.4))
            name, for_s = self.rng.choice(["ledger", "cache"]), self.rng.uniform(0, 0.12)
            if self.rng.random() < 2 / 3:
                other = sqlite3.connect(self.folder / f"{name}.sqlite3", timeout=0.5, isolation_level=None)
                with closing(other), suppress(sqlite3.OperationalError):
                    other.execute("BEGIN EXCLUSIVE")
                    await asyncio.sleep(for_s)
                continue
            desk = self.rng.choice(self.desks)
            file = desk.ledger if name == "ledger" else desk.store.func.__self__.cache  # type: ignore[attr-defined] — a partial of a bound method
            for query in ("PRAGMA max_page_count = 1", f"PRAGMA max_page_count = {2**30}"):
                with suppress(StorageError):
                    await file.writer.run(lambda connection, query=query: connection.execute(query).fetchall())
                await asyncio.sleep(for_s)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SSLContext:
    """A TLS server that the client trusts, with short timeouts."""
    monkeypatch.setattr(database, "BUSY_WAIT_S", 0.03)
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.2)
    monkeypatch.setattr("app.actions.actions.PAUSE_S", 0.02)
    certificate = make_certificate(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    return certificate.server_context()


@asynccontextmanager
async def desks(folder: Path, addresses: list[str]) -> AsyncIterator[list[Actions]]:
    """One desk for each deadline, with its own files and connections."""
    async with AsyncExitStack() as stack:
        made = []
        for number, deadline_s in enumerate(DEADLINES_S):
            cache = await stack.enter_async_context(await Cache.open(folder / "cache.sqlite3"))
            ledger = await stack.enter_async_context(await Ledger.open(folder / "ledger.sqlite3"))
            address = addresses[number % len(addresses)]
            budget: Any = NoBudget()
            client = Client(address, Token("campaign-token"), deadline_s=deadline_s, budget=budget)
            stack.push_async_callback(client.aclose)
            clock = partial(datetime.now, UTC)
            runs = RunSync(client, cache, lambda _: None, clock=clock, page_size=100, first_runs=100)
            store = partial(runs.reader.store, is_of_write=True)
            made.append(Actions(client, ledger, store, lambda _: None, clock, "campaign"))
        yield made


@pytest.mark.parametrize(
    "size", [100, pytest.param(100_000, marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)])]
)
async def test_peer_ledger_and_commands_agree_despite_thousands_of_faults(
    tmp_path: Path, trusted: SSLContext, size: int
) -> None:
    """The peer, the ledger and the commands agree on every write, whatever faults occur."""
    peer = FaultyPeer(rng := seeded(size))
    accounts = Accounts(peer)
    with RudeServer(peer=peer) as plain, RudeServer(peer=peer, tls=trusted) as secure:
        async with desks(tmp_path, [plain.base_url, secure.base_url]) as open_desks:
            await Storm(tmp_path, rng, accounts, open_desks).run(size)

    assert await accounts.contradictions(tmp_path / "ledger.sqlite3", ours=True) == []
    assert len(accounts.said) == size
    assert {"confirmed", "unknown", "rejected", "not_sent"} <= set(accounts.states)


# kills

COMMANDS_AT_ONCE = 3
STATEMENTS = 26
"""Somewhat more than the number of a command's SQL statements on existing files."""
FIRST_STATEMENTS = 110
"""The same for a command that creates the files."""
ROUNDS_A_FOLDER = 8
PLAYED = (succeed, succeed, succeed, odd_success, break_off, break_off)


def start(mark: str, *more: str) -> tuple[str, ...]:
    return ("runs", "start", "-R", "acme/api", mark, "--json", *more)


def three(rng: random.Random, given: dict[str, str], marks: list[str], round_: int) -> list[Any]:
    """Make three commands: killed at a statement, killed after a while, and of a random kind.

    In the last round, one is the program itself.
    """
    most = STATEMENTS if round_ else FIRST_STATEMENTS
    third: dict[str, Any] = {} if round_ % 2 else {"kill_at": rng.randrange(most)}
    if round_ == ROUNDS_A_FOLDER - 1:
        third = {"kill_at": "program", "kill_after_s": rng.choice([0, rng.uniform(0.1, 1.0)])}
    return [
        command(given, start(marks[0]), kill_at=rng.randrange(most)),
        command(given, start(marks[1]), kill_after_s=rng.uniform(0.001, 0.3)),
        command(given, start(marks[2]), **third),
    ]


@pytest.mark.parametrize("size", [8, pytest.param(5_000, marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)])])
async def test_peer_ledger_and_commands_agree_when_commands_are_killed(tmp_path: Path, size: int) -> None:
    """Three commands share one ledger; some are killed at their n-th SQL statement, some after a while, some not."""
    peer, marks, kills = FaultyPeer(rng := seeded(size), PLAYED, unread=0.05), count(), 0
    accounts = Accounts(peer)
    folders: list[Path] = []
    with RudeServer(peer=peer) as server:
        while kills < size:
            folders.append(tmp_path / f"{len(folders)}")
            folders[-1].mkdir()
            given = CommandLine(folders[-1], server.base_url).environment
            for round_ in range(ROUNDS_A_FOLDER):
                names = [f"mark-{next(marks)}" for _ in range(COMMANDS_AT_ONCE)]
                results = await asyncio.to_thread(run, *three(rng, given, names, round_))
                for mark, result in zip(names, results, strict=True):
                    kills += result.code < 0
                    if result.code >= 0:
                        accounts.hear(mark, result.code, json.loads(result.out))
    ledgers = [file for folder in folders for file in folder.rglob("ledger.sqlite3")]

    assert await accounts.contradictions(*ledgers, ours=False) == []


@pytest.mark.parametrize("size", [1, pytest.param(10_000, marks=[pytest.mark.campaign, pytest.mark.timeout(28_800)])])
async def test_one_key_in_eight_processes_is_sent_once(tmp_path: Path, size: int) -> None:
    """Eight processes with one key send one request and report the same result, whatever the service answers."""
    peer = FaultyPeer(seeded(size), (succeed, succeed_late, odd_success), unread=0)
    with RudeServer(peer=peer) as server:
        given = CommandLine(tmp_path, server.base_url).environment
        for number in range(size):
            mark = f"mark-{number}"
            line = start(mark, "--key", mark)
            # For the first key, a ninth process is the program itself.
            others = [] if number else [command(given, line, kill_at="program")]
            results = await asyncio.to_thread(run, *[command(given, line)] * 8, *others)

            assert peer.received[mark] == 1
            reports = [(json.loads(result.out), result.code) for result in results]
            ((_, state, _),) = {(document["action_id"], document["state"], code) for document, code in reports}
            assert state in {"confirmed", "unknown"}
