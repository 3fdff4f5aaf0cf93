"""Feeds: facts that are read again after events: the header's figures, the inbox, and the batches under way.

Work requested more often than it can be done runs once at a time, and once more for all later requests.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace
from textual.app import App
from textual.signal import Signal
from textual.worker import Worker, WorkType

from app.console.troubles import link_notice, storage_notice
from app.engine.events import (
    ActionChanged,
    Event,
    FilesChangedElsewhere,
    HealthChanged,
    LinkChanged,
    RunsChanged,
    StateChangedElsewhere,
    StorageFailed,
)
from app.engine.times import clocks_apart
from storage.errors import StorageError
from storage.records import ActionFilter, link_of
from storage.records.activity import Wait
from storage.records.error_kinds import error_kind
from widgets.frame import Notice, PollTiming, Vitals

if TYPE_CHECKING:
    from app.actions.screen_batch import RunBatch
    from app.automations.rule import Rule
    from app.engine.engine import Engine
    from app.inbox.inbox import Inbox
    from storage.records.inbox import InboxItem
    from widgets.runs.follow import BatchView


class RunWorker(Protocol):
    """The type of Textual's `run_worker`, which mypy cannot match with a coroutine function."""

    def __call__(
        self,
        work: WorkType[Any],
        name: str | None = ...,
        group: str = ...,
        description: str = ...,
        exit_on_error: bool = ...,
        start: bool = ...,
        exclusive: bool = ...,
        thread: bool = ...,
    ) -> Worker[Any]: ...


@dataclass(eq=False)
class CoalescedTask:
    """Runs its work when asked; requests during a run lead to exactly one more run."""

    _work: Callable[[], Coroutine[None, None, None]]
    _start: RunWorker
    _wanted: bool = False
    _busy: bool = False
    _run: asyncio.Task[None] | None = None
    _is_given_up: bool = False

    def ask(self) -> None:
        """Run the work now, or once more after the current run."""
        self._wanted = True
        if not self._busy:
            self._busy = True
            self._start(self._drain)

    def ask_anew(self) -> None:
        """Run the work now: a current run is cancelled, since nobody needs its result."""
        if self._run is not None:
            self._is_given_up = True
            self._run.cancel()
        self.ask()

    async def _drain(self) -> None:
        has_failed = False
        try:
            while self._wanted:
                self._wanted = self._is_given_up = False
                self._run = asyncio.ensure_future(self._work())
                try:
                    await self._run
                except asyncio.CancelledError:
                    if not self._is_given_up:
                        self._run.cancel()
                        raise
                finally:
                    self._run = None
        except Exception:
            has_failed = True
            raise
        finally:
            self._busy = False
            # The error is reported at once; requests from before it are served by another task.
            if has_failed and self._wanted:
                self.ask()


TODAY: Final = timedelta(hours=24)
ASK_AGAIN: Final = timedelta(seconds=4)
"""How soon a service that gives no answer is asked again while the terminal has the focus."""


class VitalsFeed:
    """The vitals of one profile, read again whenever they may have changed."""

    def __init__(
        self,
        app: App[Any],
        engine: "Callable[[], Engine | None]",
        clock: Callable[[], datetime],
        now: Vitals,
        poll_s: float,
        warn: Callable[[str], None],
    ) -> None:
        """Begin with the vitals of `now`; `engine` returns None while the profile's is not open."""
        self._app = app
        self._engine = engine
        self._clock = clock
        self._warn = warn
        self.now, self.timing = now, PollTiming(clock(), poll_s)
        self.changed: Signal[Vitals] = Signal(app, "vitals changed")
        self._reader = CoalescedTask(self._read, app.run_worker)
        self._unknown_reader = CoalescedTask(self._read_unknown, app.run_worker)
        self._storage_trouble: str | None = None
        self.run_clock_ahead = timedelta(0)
        """How far the service's clock, by which runs are timed, is ahead of this machine's."""
        self._reported_ahead = timedelta(0)
        """The difference that was reported last."""
        self._has_polled = False
        """Whether a poll ended since the last reading."""
        self._asks_at = clock()
        """When the service is asked again for someone who looks at old rows."""
        self._may_create: bool | None = False if now.read_only else None
        """Whether the token may create organizations; None: the service was not asked yet."""

    def ask(self) -> None:
        self._reader.ask()
        self._unknown_reader.ask()

    def engine_changed(self, event: Event) -> None:
        if isinstance(event, StorageFailed):
            self.storage_failed(event.message)
        self._has_polled = self._has_polled or isinstance(event, LinkChanged)
        if not isinstance(event, ActionChanged | StateChangedElsewhere):
            self._reader.ask()
        is_answered = isinstance(event, LinkChanged) and event.state.subject == "runs" and not event.state.is_failing
        if isinstance(event, ActionChanged | FilesChangedElsewhere) or (is_answered and self._may_create is None):
            self._unknown_reader.ask()

    def storage_failed(self, message: str) -> None:
        """Report on every screen that our own files fail."""
        self._storage_trouble = message
        self._show(self.now)

    def change(self, **figures: Any) -> None:
        if (vitals := replace(self.now, **figures)) != self.now:
            self._show(vitals)

    def set_up(self, tab: str, *, is_set_up: bool) -> None:
        before = self.now.set_up
        self.change(set_up=before | {tab} if is_set_up else before - {tab})

    @property
    def as_of(self) -> datetime | None:
        """When the service last answered, if it no longer does, by the runs' clock; None: the rows are live."""
        link = self.now.runs_link
        if link is None or link.last_ok_at is None or not link.is_failing:
            return None
        return link.last_ok_at + self.run_clock_ahead

    def tick(self, now: datetime) -> None:
        """Poll again because the user is looking at old rows, unless the service asked for a pause."""
        if now >= self._asks_at and self._is_awaited(self.now) and (engine := self._engine()) is not None:
            self._asks_at = now + ASK_AGAIN
            engine.polling.poll_soon("runs")

    def _is_awaited(self, vitals: Vitals) -> bool:
        link = vitals.runs_link
        wait = vitals.wait
        if link is None or not self._app.app_focus or (wait is not None and wait.reason != "service_down"):
            return False
        if link.is_failing or link.last_ok_at is None:
            return error_kind(link.error_kind).concerns == "link"
        # Another process may poll, and wait longer.
        return (self._clock() - link.last_ok_at).total_seconds() >= self.timing.due_after_s

    @property
    def trouble(self) -> Notice | None:
        return self.storage_trouble or link_notice(self.now.runs_link, self._clock(), self.now.wait)

    @property
    def storage_trouble(self) -> Notice | None:
        if self._storage_trouble is None:
            return None
        return storage_notice(self._storage_trouble)

    @property
    def files_trouble(self) -> str:
        """Why our own files cannot be used, with the fix; empty if they can."""
        return self._storage_trouble or self.state_trouble

    @property
    def state_trouble(self) -> str:
        """Why the state cannot be used, which prevents acknowledging items; empty if it can."""
        engine = self._engine()
        if engine is not None and isinstance(engine.state, StorageError):
            return str(engine.state)
        return ""

    def _show(self, vitals: Vitals) -> None:
        self.now = replace(vitals, files_fail=self._storage_trouble is not None)
        self.changed.publish(self.now)

    async def _read(self) -> None:
        if (engine := self._engine()) is None:
            return
        trouble = self._storage_trouble
        has_polled = self._has_polled
        self._has_polled = False
        vitals = await read_vitals(engine, self.now, self._clock())
        self.run_clock_ahead = ahead = engine.budget.clock_ahead
        if abs(ahead - self._reported_ahead) >= timedelta(minutes=1):
            self._reported_ahead = ahead
            if ahead:
                self._warn(f"{clocks_apart(ahead)} Ages of runs are counted by the service's clock.")
        if self._is_awaited(vitals):
            vitals = replace(vitals, wait=Wait("service_down", self._asks_at))
        if self.now.link_fails and not vitals.link_fails and vitals.health_is_stale:
            engine.polling.poll_soon("health")
        if trouble is not None and has_polled:
            # The cache was written and read; once the ledger can be read too, the problem is over.
            await engine.ledger.actions(limit=1)
            self._storage_trouble = None
        self._show(replace(vitals, unknown=self.now.unknown, inbox=self.now.inbox, set_up=self.now.set_up))

    async def _read_unknown(self) -> None:
        # Separate from the other figures: a poll does not change it, and the ledger may fail while the cache works.
        if (engine := self._engine()) is None:
            return
        self.change(unknown=await engine.ledger.count(ActionFilter(is_unresolved=True)))
        is_set_up = bool(await engine.ledger.actions(ActionFilter(["organization.create"]), limit=1))
        self.set_up("organizations", is_set_up=is_set_up or bool(self._may_create))
        link = link_of(await engine.cache.links(), "runs")
        if self._may_create is None and link is not None and link.last_ok_at is not None and not link.is_failing:
            from app.organizations.invitations import may_create  # the engine, which is open, has imported its client

            # If the request fails, it is repeated after the service's next answer.
            self._may_create = await may_create(engine)
            self.set_up("organizations", is_set_up=is_set_up or bool(self._may_create))


async def read_vitals(engine: "Engine", before: Vitals, now: datetime) -> Vitals:
    """Read the header's figures.

    Raises:
        StorageError: The cache cannot be read.
    """
    wait = await engine.polling.next_poll()
    figures = await engine.cache.figures(now + engine.budget.clock_ahead - TODAY)
    counts = figures.runs
    runs_link = link_of(figures.links, "runs")
    health_link = link_of(figures.links, "health")
    return replace(
        before,
        runs_link=runs_link,
        wait=wait,
        working=counts.get("working", 0),
        queued=counts.get("queued", 0),
        failed=counts.get("failed", 0),
        failed_today=figures.failed_lately,
        health=figures.health,
        health_is_stale=health_link is not None and health_link.is_failing,
        known=bool(counts) or (runs_link is not None and runs_link.last_ok_at is not None),
    )


MIN_INTERVAL: Final = timedelta(seconds=2)
MAX_INTERVAL: Final = timedelta(minutes=1)
"""The end of a snooze and a silent bot cause no event."""


class InboxFeed:
    """The inbox of one profile."""

    def __init__(
        self, app: App[Any], engine: "Callable[[], Engine | None]", vitals: VitalsFeed, automations: "tuple[Rule, ...]"
    ) -> None:
        """Start empty; after each reading the vitals have the number of items."""
        self.changed: Signal[tuple[InboxItem, ...]] = Signal(app, "inbox changed")
        self.items: tuple[InboxItem, ...] | None = None
        """None: not read yet."""
        self.can_undo = False
        """Whether `undo` has something to bring back."""
        self.inbox: Inbox | None = None
        """None: the engine is not open yet."""
        self._engine = engine
        self._vitals = vitals
        self._automations = automations
        self._read_at: datetime | None = None
        self._failed = 0
        """The number of failed runs at the last reading."""
        self.ask = CoalescedTask(self._read, app.run_worker).ask
        """Reads the items again."""

    def use_automations(self, automations: "Sequence[Rule]") -> None:
        """Use these rules from now on: they were just written into the configuration."""
        self._automations = tuple(automations)
        self._vitals.set_up("automations", is_set_up=bool(automations))
        self.ask()

    def engine_changed(self, event: Event) -> None:
        """Read the items again if this event may have changed them; `tick` sees new failed runs."""
        has_moved = isinstance(event, RunsChanged) and bool(event.changes.transitions or event.changes.updated)
        # A confirmed health status can only close an item.
        has_moved |= isinstance(event, HealthChanged) and bool(event.changes or self.items)
        if has_moved or isinstance(event, ActionChanged | FilesChangedElsewhere | StateChangedElsewhere):
            self.ask()

    def tick(self, now: datetime) -> None:
        """Read the items again each minute, and soon after a failed run arrived: a backfill brings many of them."""
        every = MAX_INTERVAL if self._vitals.now.failed == self._failed else MIN_INTERVAL
        if self._read_at is not None and now - self._read_at >= every:
            self.ask()

    async def _read(self) -> None:
        if (engine := self._engine()) is None:
            return
        if self.inbox is None or self.inbox.engine is not engine:
            # In a thread: this imports the automations.
            await asyncio.to_thread(import_module, "app.inbox.inbox")
            from app.inbox.inbox import Inbox

            self.inbox = Inbox.of(engine, lambda: self._automations)
        self._read_at, self._failed = engine.clock(), self._vitals.now.failed
        self.can_undo = await self.inbox.can_undo()
        self.items = await self.inbox.items()
        self._vitals.change(inbox=len(self.items))
        self.changed.publish(self.items)


class Batches:
    """Started batches that were not dismissed."""

    def __init__(self, app: App[Any], engine: "Callable[[], Engine | None]") -> None:
        """Start empty; `changed` is published with the views of all batches."""
        self.changed: Signal[tuple[BatchView, ...]] = Signal(app, "batches changed")
        self.views: tuple[BatchView, ...] = ()
        """Newest first."""
        self._engine = engine
        self._batches: dict[str, RunBatch] = {}
        self._reading = CoalescedTask(self._read, app.run_worker)

    def keep(self, batch: "RunBatch") -> None:
        """Add a batch, or replace it with its next stage."""
        if batch.sent or batch.is_sending:
            self._batches[batch.batch_id] = batch
            self._reading.ask()

    def dismiss(self, key: str) -> None:
        self._batches.pop(key, None)
        self._reading.ask()

    def engine_changed(self, event: Event) -> None:
        if self._batches and isinstance(event, RunsChanged | ActionChanged | FilesChangedElsewhere):
            self._reading.ask()

    async def _read(self) -> None:
        if (engine := self._engine()) is None:
            return
        for key, batch in tuple(self._batches.items()):
            for open_action in batch.unknown:
                action = await engine.ledger.action(open_action.action_id)
                if key in self._batches and action is not None and action.state != open_action.state:
                    self._batches[key] = self._batches[key].with_resolved(action)
        details = await engine.cache.details([run_id for batch in self._batches.values() for run_id in batch.made])
        views = tuple(batch.view(details) for batch in reversed(self._batches.values()))
        if views != self.views:
            self.views = views
            self.changed.publish(views)
