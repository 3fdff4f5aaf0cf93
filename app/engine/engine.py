"""One profile at work, without a screen: the same object for console, command line and bot."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.cancelling import Cancellations
from app.actions.follow_ups import FollowUps
from app.actions.reconciliation import Reconciliation
from app.api.budget import Budget, Priority
from app.api.client import Client
from app.api.errors import ApiError
from app.api.network import Network
from app.engine.events import Announce, Doorbell, StorageFailed
from app.engine.files import author_of, login, settled_ledger
from app.profiles import CACHE_FILE, STATE_FILE, Profile, Settings, data_folder
from app.profiles.token import Token, TokenError
from app.results.service import ServiceExtension
from app.runs.summaries import RunSummaries
from app.sync.backfill import Backfill
from app.sync.listing import Listing
from app.sync.polling import POLLER, Polling
from app.sync.polls import HealthSync
from app.sync.retention import Retention
from app.sync.runs import RunSync
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.ledger import Ledger
from storage.state import State
from storage.values import utc_now

log = logging.getLogger(__name__)


class Engine(Struct, frozen=True):
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
    follow_ups: FollowUps
    reconciliation: Reconciliation
    polling: Polling
    doorbell: Doorbell
    clock: Callable[[], datetime]
    extension: ServiceExtension
    """The service's own account of runs, if it offers one."""
    summaries: RunSummaries
    """What runs are about; it waits for everything else that is asked of the service."""
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
        folder = data_folder(settings, profile)
        async with AsyncExitStack() as stack:
            cache = await Cache.open(folder / CACHE_FILE, clock=clock)
            stack.push_async_callback(cache.close)
            ledger = await settled_ledger(folder, author_of(actor), clock)
            stack.push_async_callback(ledger.close)
            state: State | StorageError
            try:
                state = await State.open(folder / STATE_FILE, clock=clock)
                stack.push_async_callback(state.close)
            except StorageError as error:
                # Without the state, the cache can still be read and the service asked.
                state = error
            token: Token | TokenError
            try:
                # A keyring or a token command may take seconds.
                token = await asyncio.to_thread(profile.token.read, os.environ)
            except TokenError as error:
                token = error
            poll = profile.poll
            network = Network(profile.proxy, profile.ca_file, profile.client_cert)
            client = Client(profile.base_url, token, deadline_s=poll.deadline_s, budget=Budget(cache), network=network)
            await client.budget.load()
            stack.pop_all()
        doorbell = Doorbell(*([announce] if announce else []))
        ring = doorbell.ring
        leases = state if isinstance(state, State) else None

        async def others_poll() -> bool:
            holder = None if leases is None else await leases.lease_owner(POLLER, clock())
            return holder not in (None, cache.process)

        # A user waits for a command's requests; a console and a bot poll in the background.
        active = client if actor == "cli" else client.at(Priority.ACTIVE)
        health = HealthSync(
            client if actor == "cli" else client.at(Priority.HEALTH), cache, ring, clock=clock, others_poll=others_poll
        )
        extension = ServiceExtension(
            client, lambda: cache.has_no_results(clock()), lambda: cache.note_no_results(clock())
        )
        runs = RunSync(
            active,
            cache,
            ring,
            clock=clock,
            page_size=poll.page_size,
            first_runs=poll.first_runs,
            others_poll=others_poll,
            turns=replace(extension, client=active).turns,
            failure_facts=replace(extension, client=active).failure_facts,
        )
        backfill = Backfill(runs, client, ring, settings.history)
        listing = Listing(runs)
        reconciliation = Reconciliation(runs, listing, ledger, ring, extension)
        by = f"{actor}:{login()}"
        actions = Actions(client, ledger, runs.store, ring, clock, by, profile.read_only, settings.command_line)
        follow_ups = FollowUps(actions, cache, partial(_usable, state), ring)
        chores = {
            "retention": Retention(cache, ledger, ring, settings.history, clock).work,
            "backfill": backfill.work,
            "reconciliation": reconciliation.work,
            "cancellations": Cancellations(actions).work,
            "follow-ups": follow_ups.work,
        }
        pace = (poll.runs_s, poll.health_s, client.budget)
        return cls(
            settings=settings,
            profile=profile,
            client=client,
            cache=cache,
            ledger=ledger,
            state=state,
            runs=runs,
            health=health,
            backfill=backfill,
            listing=listing,
            reconciliation=reconciliation,
            actions=actions,
            follow_ups=follow_ups,
            polling=Polling(runs, health, cache, ledger, ring, *pace, chores, leases),
            doorbell=doorbell,
            clock=clock,
            extension=extension,
            summaries=RunSummaries(cache, ledger, replace(extension, client=client.at(Priority.BACKFILL))),
            token_problem=token if isinstance(token, TokenError) else None,
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

    def usable_state(self) -> State:
        """The automations' state.

        Raises:
            StorageError: It cannot be used; the message names the cure.
        """
        return _usable(self.state)

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


def _usable(state: State | StorageError) -> State:
    if isinstance(state, StorageError):
        raise state
    return state
