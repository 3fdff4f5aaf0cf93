"""One profile at work, without a screen: the same object for console, command line and bot."""

import asyncio
import logging
import os
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.follow_ups import FollowUps
from app.actions.reconciliation import Reconciliation
from app.api.budget import Budget, Priority
from app.api.client import Client
from app.api.errors import ApiError
from app.api.network import Network
from app.engine.events import EventBus, StorageFailed
from app.engine.files import ProfileFiles, login
from app.profiles import STATE_FILE, Profile, Settings, data_folder
from app.profiles.token import Token, TokenError
from app.results.service import ServiceExtension
from app.runs.summaries import RunSummaries
from app.sync.backfill import Backfill, drop_old_runs
from app.sync.listing import Listing
from app.sync.polling import HealthSync, Polling
from app.sync.runs import RunSync
from storage.errors import StorageError
from storage.state import State
from storage.values import Clock, utc_now

log = logging.getLogger(__name__)


class Engine(AbstractAsyncContextManager["Engine", None]):
    """Everything that one profile needs: client, cache, ledger and polling."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        actor: str,
        files: ProfileFiles,
        state: State | StorageError,
        client: Client,
        opened: AsyncExitStack,
    ) -> None:
        """Create an engine from open files; see `open`. Closing it closes the contents of `opened`, last first."""
        self.settings = settings
        self.profile = profile
        self.client = client
        self.budget = client.budget
        self.cache = cache = files.cache
        self.ledger = ledger = files.ledger
        self.clock = clock = files.clock
        self.state = state
        """The automations' state and the leases. An error: they cannot be used, and each process polls for itself."""
        self.events = EventBus()
        poll = profile.poll
        publish = self.events.publish
        leases = state if isinstance(state, State) else None
        # A user waits for a command's requests; a console and a bot poll in the background.
        for_runs, for_health = (
            client if actor == "cli" else client.at(priority) for priority in (Priority.ACTIVE, Priority.HEALTH)
        )
        self.extension = ServiceExtension(
            client, lambda: cache.has_no_results(clock()), lambda: cache.note_no_results(clock())
        )
        """The results of runs, if the service offers them."""
        polled_extension = replace(self.extension, client=for_runs)
        self.runs = RunSync(
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
        self.health = HealthSync(for_health, cache, publish, clock, leases)
        self.backfill = Backfill(self.runs, settings.history)
        self.listing = Listing(self.runs)
        author = f"{actor}:{login()}"
        store = partial(self.runs.reader.store, is_of_write=True)
        self.actions = Actions(client, ledger, store, publish, clock, author, profile.read_only, settings.command_line)
        self.reconciliation = Reconciliation(self.runs, self.listing, self.extension, self.actions)
        self.follow_ups = FollowUps(self.actions, cache, self.usable_state, publish)
        patient_extension = replace(self.extension, client=client.at(Priority.BACKFILL))
        self.summaries = RunSummaries(cache, ledger, patient_extension, clock, timedelta(seconds=poll.runs_s))
        """Short descriptions of runs, asked for when nothing else waits for the service."""
        self.polling = Polling(
            self.runs,
            self.health,
            ledger,
            poll.runs_s,
            poll.health_s,
            chores={
                "retention": partial(drop_old_runs, cache, ledger, publish, settings.history, clock),
                "backfill": self.backfill.work,
                "reconciliation": self.reconciliation.work,
                "follow-ups": self.follow_ups.work,
            },
        )
        self._opened = opened
        opened.push_async_callback(self.polling.stop)

    @classmethod
    async def open(
        cls, settings: Settings, profile: Profile, *, actor: str, clock: Clock = utc_now, cache_file: Path | None = None
    ) -> Self:
        """Open the profile's files, without a request. `cache_file`: used in place of the profile's own cache.

        The actor is `console`, `cli` or `bot:<rule>`; the ledger adds the login name and the machine.
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
            token: Token | TokenError
            try:
                # In a thread: a keyring or a token command may take seconds.
                token = await asyncio.to_thread(profile.token.read, os.environ)
            except TokenError as error:
                token = error
            client = Client(
                profile.base_url,
                token,
                deadline_s=profile.poll.deadline_s,
                budget=Budget(files.cache),
                network=Network.of(profile),
                source=profile.token,
            )
            stack.push_async_callback(client.aclose)
            await client.budget.load()
            return cls(settings, profile, actor, files, state, client, stack.pop_all())

    @property
    def token_problem(self) -> TokenError | None:
        """Why there is no token. Cached data can be read without one."""
        token = self.client.transport.token
        return token if isinstance(token, TokenError) else None

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start_polling(self) -> None:
        if isinstance(self.state, StorageError):
            self.events.publish(StorageFailed(f"Automations do not work here: {self.state}"))
        self.polling.start()

    def usable_state(self) -> State:
        """The automations' state; if it cannot be used, the `StorageError` is raised."""
        if isinstance(self.state, StorageError):
            raise self.state
        return self.state

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
