"""One profile at work, without a screen: the same object for console, command line and bot."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from app.actions import Actions
from app.actions.cancelling import Cancellations
from app.api.budget import Budget, Priority
from app.api.client import Client
from app.api.errors import ApiError
from app.config import CACHE_FILE, STATE_FILE, PollSettings, Profile, Settings, data_folder
from app.config.token import Token, TokenError, resolve
from app.events import Announce, Doorbell, StorageFailed
from app.files import author_of, login, settled_ledger
from app.polling import POLLER, Polling
from app.reconcile.reconciliation import Reconciliation
from app.results.service import ServiceExtension
from app.schedule import JobWork
from app.sync.backfill import Backfill
from app.sync.listing import Listing
from app.sync.polls import HealthSync, OthersPoll
from app.sync.retention import Retention
from app.sync.runs import RunSync
from storage.cache import Cache
from storage.errors import StorageError
from storage.lease import Lease
from storage.ledger import Ledger
from storage.records import Author
from storage.state import State
from storage.values import utc_now

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that one profile needs: client, cache, ledger and polling."""

    settings: Settings
    profile: Profile
    client: Client
    cache: Cache
    ledger: Ledger
    runs: RunSync
    health: HealthSync
    listing: Listing
    backfill: Backfill
    state: State | StorageError
    """The automations' state and the leases; an error: it cannot be used, and each process polls for itself."""
    actions: Actions
    reconciliation: Reconciliation
    polling: Polling
    doorbell: Doorbell
    clock: Callable[[], datetime]
    token_problem: TokenError | None
    """Why there is no token. Cached data can be read without one."""

    @classmethod
    async def open(
        cls,
        settings: Settings,
        profile: Profile,
        *,
        actor: str,
        announce: Announce | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open the profile's files, without a request.

        The actor is `console`, `cli` or `bot:<rule>`; the ledger adds the login name and the machine.

        Raises:
            StorageError: A file cannot be used; the message names the cure.
        """
        opened = await _open(settings, profile, author_of(actor), clock)
        return cls._of(settings, profile, opened, Doorbell(*([announce] if announce else [])), actor, clock)

    @classmethod
    def _of(
        cls,
        settings: Settings,
        profile: Profile,
        opened: "_Opened",
        doorbell: Doorbell,
        actor: str,
        clock: Callable[[], datetime],
    ) -> Self:
        client, cache, ledger = opened.client, opened.cache, opened.ledger
        ring, poll = doorbell.ring, profile.poll
        state = opened.state if isinstance(opened.state, State) else None
        lease = Lease(state)
        others_poll = partial(lease.is_held_by_another, POLLER, cache.process)
        runs, health = _syncs(client, cache, ring, clock, poll, others_poll, is_asked=actor == "cli")
        backfill = Backfill(runs, client, ring, settings.history)
        retention = Retention(cache, ledger, ring, settings.history, clock)
        listing = Listing(runs)
        reconciliation = Reconciliation(runs, listing, ledger, ring)
        actor = f"{actor}:{login()}"
        actions = Actions(client, ledger, runs.store, ring, clock, actor, profile.read_only, settings.command_line)
        chores = _chores(retention, backfill, reconciliation, Cancellations(actions))
        pace = (poll.runs_s, poll.health_s, client.budget)
        polling = Polling(runs, health, cache, ledger, lease, ring, *pace, chores, state)
        return cls(
            settings=settings,
            profile=profile,
            client=client,
            cache=cache,
            ledger=ledger,
            state=opened.state,
            runs=runs,
            health=health,
            backfill=backfill,
            listing=listing,
            reconciliation=reconciliation,
            actions=actions,
            polling=polling,
            doorbell=doorbell,
            clock=clock,
            token_problem=opened.token_problem,
        )

    async def __aenter__(self) -> Self:
        """Return the open engine."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    def subscribe(self, listener: Announce) -> Callable[[], None]:
        """Listen to events until the returned function is called."""
        return self.doorbell.subscribe(listener)

    def start_polling(self) -> None:
        """Keep the cache in step with the service from now on."""
        if isinstance(self.state, StorageError):
            self.doorbell.ring(StorageFailed(f"There are no automations here: {self.state}"))
        self.polling.start()

    @property
    def extension(self) -> ServiceExtension:
        """The service's own account of runs, if it offers one."""
        return ServiceExtension(
            self.client,
            lambda: self.cache.has_no_results(self.clock()),
            lambda: self.cache.note_no_results(self.clock()),
        )

    def usable_state(self) -> State:
        """The automations' state.

        Raises:
            StorageError: It cannot be used; the message names the cure.
        """
        if isinstance(self.state, StorageError):
            raise self.state
        return self.state

    async def refresh(self) -> ApiError | None:
        """Poll runs and health once, now; return the first error, if any, after both."""
        results = await asyncio.gather(self.runs.refresh(), self.health.refresh(), return_exceptions=True)
        problem: ApiError | None = None
        for result in results:
            if isinstance(result, ApiError):
                problem = problem or result
            elif isinstance(result, BaseException):
                raise result
        return problem

    async def close(self) -> None:
        """Settle running writes, end polling, then close connections and files, even if one of these fails."""
        async with AsyncExitStack() as stack:
            # The stack closes first what was pushed last.
            for close in (self.cache.close, self.ledger.close):
                stack.push_async_callback(close)
            if isinstance(self.state, State):
                stack.push_async_callback(self.state.close)
            for close in (self.client.aclose, self.polling.stop):
                stack.push_async_callback(close)
            await self.actions.in_flight.close()


@dataclass(frozen=True, slots=True)
class _Opened:
    """Parts that an engine opens, and closes at its end."""

    client: Client
    cache: Cache
    ledger: Ledger
    state: State | StorageError
    token_problem: TokenError | None


async def _open(settings: Settings, profile: Profile, author: Author, clock: Callable[[], datetime]) -> _Opened:
    folder = data_folder(settings, profile)
    async with AsyncExitStack() as stack:
        cache = await Cache.open(folder / CACHE_FILE, clock=clock)
        stack.push_async_callback(cache.close)
        ledger = await settled_ledger(folder, author, clock)
        stack.push_async_callback(ledger.close)
        state = await _open_state(folder, clock)
        if isinstance(state, State):
            stack.push_async_callback(state.close)
        token, problem = await _token(profile)
        budget = Budget(cache)
        await budget.load()
        client = Client(profile.base_url, token or problem, deadline_s=profile.poll.deadline_s, budget=budget)
        stack.pop_all()
    return _Opened(client, cache, ledger, state, problem)


async def _open_state(folder: Path, clock: Callable[[], datetime]) -> State | StorageError:
    try:
        return await State.open(folder / STATE_FILE, clock=clock)
    except StorageError as error:
        # Without the state, the cache can still be read and the service asked.
        return error


async def _token(profile: Profile) -> tuple[Token | None, TokenError | None]:
    try:
        # A keyring or a token command may take seconds.
        return await asyncio.to_thread(resolve, profile.token, os.environ), None
    except TokenError as error:
        return None, error


def _syncs(
    client: Client,
    cache: Cache,
    ring: Announce,
    clock: Callable[[], datetime],
    poll: PollSettings,
    others_poll: OthersPoll,
    *,
    is_asked: bool,
) -> tuple[RunSync, HealthSync]:
    # A user waits for a command's requests; a console and a bot poll in the background.
    active, health = (client, client) if is_asked else (client.at(Priority.ACTIVE), client.at(Priority.HEALTH))
    size, first = poll.page_size, poll.first_runs
    runs = RunSync(active, cache, ring, clock=clock, page_size=size, first_runs=first, others_poll=others_poll)
    return runs, HealthSync(health, cache, ring, clock=clock, others_poll=others_poll)


def _chores(*workers: Backfill | Retention | Reconciliation | Cancellations) -> dict[str, JobWork]:
    return {type(worker).__name__.lower(): worker.work for worker in workers}
