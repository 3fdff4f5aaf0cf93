"""Faults by the thousand over real sockets: nothing sent twice, nothing forgotten, nothing reported wrongly."""

import asyncio
import random
import sqlite3
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.actions import Actions
from app.api.client import Client
from app.api.requests import StartRun
from app.cli.documents import unsent_document, write_document
from app.cli.writes import carry_out, exit_of
from app.config.token import Token
from app.sync.runs import RunSync
from storage import database
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.ledger import Ledger
from tests.actions.accounts import Accounts
from tests.actions.conftest import API
from tests.actions.peer import FaultyPeer, seeded
from tests.service.certificates import make_certificate

DEADLINES_S = (0.2, 0.4, 0.5, 0.7, 1.0, 5.0)
"""Of the desks: each stands for a process with its own connections."""
AT_ONCE = 16


class NoBudget:
    """Requests are neither spaced nor refused: every fault reaches the wire."""

    @asynccontextmanager
    async def turn(self, *_: object) -> AsyncIterator[None]:
        yield

    def hear(self, *_: object) -> None:
        pass

    async def settle(self) -> None:
        pass


@dataclass(slots=True)
class Storm:
    """Many writes at once, each with its fault."""

    folder: Path
    rng: random.Random
    accounts: Accounts
    desks: list[Actions]

    async def write(self, mark: str) -> None:
        """One command: sent, perhaps interrupted, and reported as the command line reports it."""
        desk = self.rng.choice(self.desks)
        sending = asyncio.create_task(carry_out(SimpleNamespace(actions=desk), StartRun(mark, API), key=mark))
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
        """All of them, a few at a time, while the disk and other processes do their worst."""
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
        while True:
            await asyncio.sleep(self.rng.uniform(0, 0.4))
            spoil = self.rng.choice([self._lock, self._lock, self._fill])
            await spoil(self.rng.choice(["ledger.sqlite3", "cache.sqlite3"]), self.rng.uniform(0, 0.12))

    async def _lock(self, name: str, for_s: float) -> None:
        """Another process holds the file."""
        with closing(sqlite3.connect(self.folder / name, timeout=0.5, isolation_level=None)) as other:
            with suppress(sqlite3.OperationalError):
                other.execute("BEGIN EXCLUSIVE")
            await asyncio.sleep(for_s)

    async def _fill(self, name: str, for_s: float) -> None:
        """The disk is full, as one process sees it."""
        desk = self.rng.choice(self.desks)
        file = desk.ledger if name.startswith("ledger") else desk.store.__self__.cache  # type: ignore[attr-defined] — a bound method
        most = 2**30
        for pages in (1, most):
            with suppress(StorageError):
                await file.writer.run(lambda c, pages=pages: c.execute(f"PRAGMA max_page_count = {pages}").fetchall())
            await asyncio.sleep(for_s if pages == 1 else 0)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """TLS of a server that the client trusts; nothing waits for long, and nothing is synced to the disk."""
    monkeypatch.setattr(database, "BUSY_WAIT_S", 0.03)
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.2)
    monkeypatch.setattr("app.actions.actions.PAUSE_S", 0.02)
    monkeypatch.setitem(database.PRECIOUS, "synchronous", "OFF")  # type: ignore[arg-type] — a dict, declared read-only
    certificate = make_certificate(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    return certificate.server_context()


@asynccontextmanager
async def desks(folder: Path, addresses: list[str]) -> AsyncIterator[list[Actions]]:
    """One for each deadline, with files and connections of its own."""
    async with AsyncExitStack() as stack:
        made = []
        for number, deadline_s in enumerate(DEADLINES_S):
            cache = await stack.enter_async_context(await Cache.open(folder / "cache.sqlite3"))
            ledger = await stack.enter_async_context(await Ledger.open(folder / "ledger.sqlite3"))
            address = addresses[number % len(addresses)]
            budget: Any = NoBudget()
            client = await stack.enter_async_context(
                Client(address, Token("campaign-token"), deadline_s=deadline_s, budget=budget)
            )
            clock = partial(datetime.now, UTC)
            runs = RunSync(client, cache, lambda _: None, clock=clock, page_size=100, first_runs=100)
            made.append(Actions(client, ledger, runs.store, lambda _: None, clock, "campaign"))
        yield made


@pytest.mark.parametrize(
    "size", [100, pytest.param(100_000, marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)])]
)
async def test_thousands_of_faults_leave_three_accounts_that_agree(
    tmp_path: Path, trusted: ssl.SSLContext, size: int
) -> None:
    """What the peer executed, what the ledger has, and what every command said: not one contradiction."""
    peer = FaultyPeer(rng := seeded(size))
    accounts = Accounts(peer)
    async with (
        peer.listening() as plain,
        peer.listening(trusted) as secure,
        desks(tmp_path, [plain, secure]) as open_desks,
    ):
        await Storm(tmp_path, rng, accounts, open_desks).run(size)

    assert await accounts.contradictions(tmp_path / "ledger.sqlite3", ours=True) == []
    assert len(accounts.said) == size
    assert {"confirmed", "unknown", "rejected", "not_sent"} <= set(accounts.states)
