"""One profile at work, without a screen: the same object for console, command line and bot."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.follow_ups import FollowUps
from app.actions.reconciliation import Reconciliation
from app.api.budget import Budget, Priority
from app.api.client import Client
from app.api.errors import ApiError
from app.api.network import Network
from app.engine.events import Announce, EventBus, StorageFailed
from app.engine.files import ProfileFiles, login
from app.profiles import STATE_FILE, Profile, Settings, data_folder
from app.profiles.token import Token, TokenError
from app.results.service import ServiceExtension
from app.runs.summaries import RunSummaries
from app.sync.backfill import Backfill, drop_old_runs
from app.sync.listing import Listing
from app.sync.polling import HealthSync, Polling
from app.sync.runs import PollRecord, RunSync
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.ledger import Ledger
from storage.records import RunFilter
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
    """The automations' state and the leases. An error: they cannot be used, and each process polls for itself."""
    actions: Actions
    follow_ups: FollowUps
    reconciliation: Reconciliation
    polling: Polling
    events: EventBus
    clock: Callable[[], datetime]
    extension: ServiceExtension
    """The results of runs, if the service offers them."""
    summaries: RunSummaries
    """Short descriptions of runs, asked for when nothing else waits for the service."""
    _opened: AsyncExitStack
    """Closes what was opened, the last first."""

    @classmethod
    async def open(
        cls,
        settings: Settings,
        profile: Profile,
        *,
        actor: str,
        clock: Callable[[], datetime] = utc_now,
        cache_file: Path | None = None,
    ) -> Self:
        """Open the profile's files, without a request. `cache_file`: used in place of the profile's own cache.

        The actor is `console`, `cli` or `bot:<rule>`; the ledger adds the login name and the machine.

        Raises:
            StorageError: A file cannot be used; the message says how to fix it.
        """
        async with AsyncExitStack() as stack:
            files = await ProfileFiles.open(settings, profile, actor=actor, clock=clock, cache_file=cache_file)
            stack.push_async_callback(files.close)
            state: State | StorageError
            try:
                state = await State.open(data_folder(settings, profile) / STATE_FILE, clock=clock)
                stack.push_async_callback(state.close)
            except StorageError as error:
                state = error  # Without it the cache can be read and the service asked.
            client = await _make_client(profile, Budget(files.cache))
            stack.push_async_callback(client.aclose)
            await client.budget.load()
            opened = stack.pop_all()
        cache, ledger = files.cache, files.ledger
        events = EventBus()
        poll, publish, leases = profile.poll, events.publish, state if isinstance(state, State) else None
        # A user waits for a command's requests; a console and a bot poll in the background.
        for_runs, for_health = (
            client if actor == "cli" else client.at(priority) for priority in (Priority.ACTIVE, Priority.HEALTH)
        )
        extension = ServiceExtension(
            client, lambda: cache.has_no_results(clock()), lambda: cache.note_no_results(clock())
        )
        polled_extension = replace(extension, client=for_runs)
        patient_extension = replace(extension, client=client.at(Priority.BACKFILL))
        runs = RunSync(
            for_runs,
            cache,
            publish,
            clock=clock,
            page_size=poll.page_size,
            first_runs=poll.first_runs,
            leases=leases,
            turns=polled_extension.turns,
            failure_facts=polled_extension.failure_facts,
        )
        health = HealthSync(PollRecord("health", for_health, cache, publish, clock, leases))
        backfill = Backfill(runs, settings.history)
        listing = Listing(runs)
        by = f"{actor}:{login()}"
        actions = Actions(client, ledger, runs.store, publish, clock, by, profile.read_only, settings.command_line)
        reconciliation = Reconciliation(runs, listing, extension, actions)
        follow_ups = FollowUps(actions, cache, partial(_usable, state), publish)
        polling = Polling(
            runs,
            health,
            ledger,
            poll.runs_s,
            poll.health_s,
            chores={
                "retention": partial(drop_old_runs, cache, ledger, publish, settings.history, clock),
                "backfill": backfill.work,
                "reconciliation": reconciliation.work,
                "follow-ups": follow_ups.work,
            },
        )
        opened.push_async_callback(polling.stop)
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
            polling=polling,
            events=events,
            clock=clock,
            extension=extension,
            summaries=RunSummaries(cache, ledger, patient_extension, clock, timedelta(seconds=poll.runs_s)),
            _opened=opened,
        )

    @property
    def budget(self) -> Budget:
        """When requests may be sent, as all processes of the profile share it."""
        return self.client.budget

    @property
    def token_problem(self) -> TokenError | None:
        """Why there is no token. Cached data can be read without one."""
        token = self.client.transport.token
        return token if isinstance(token, TokenError) else None

    async def __aenter__(self) -> Self:
        """The open engine."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    def subscribe(self, listener: Announce) -> Callable[[], None]:
        """Listen to events until the returned function is called."""
        return self.events.subscribe(listener)

    def start_polling(self) -> None:
        """Keep the cache in step with the service from now on."""
        if isinstance(self.state, StorageError):
            self.events.publish(StorageFailed(f"Automations do not work here: {self.state}"))
        self.polling.start()

    def usable_state(self) -> State:
        """The automations' state; if it cannot be used, the `StorageError` is raised."""
        return _usable(self.state)

    async def live_counts(self) -> dict[str, int]:
        """The number of runs by status, without those that the service no longer lists."""
        counts, gone = await self.cache.status_counts(RunFilter()), await self.cache.gone()
        return {status: count - gone.get(status, 0) for status, count in counts.items()}

    async def refresh(self) -> ApiError | None:
        """Poll runs and health once, now; return the first error, if any, after both."""
        results = await asyncio.gather(self.runs.refresh(), self.health.refresh(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ApiError):
                raise result
        return next((result for result in results if isinstance(result, ApiError)), None)

    async def close(self) -> None:
        """Finish running writes, stop polling, then close connections and files, even if one of these fails."""
        async with self._opened:
            await self.actions.in_flight.close()


async def _make_client(profile: Profile, budget: Budget) -> Client:
    token: Token | TokenError
    try:
        # In a thread: a keyring or a token command may take seconds.
        token = await asyncio.to_thread(profile.token.read, os.environ)
    except TokenError as error:
        token = error
    return Client(
        profile.base_url,
        token,
        deadline_s=profile.poll.deadline_s,
        budget=budget,
        network=Network.of(profile),
        source=profile.token,
    )


def _usable(state: State | StorageError) -> State:
    if isinstance(state, StorageError):
        raise state
    return state
