"""The batches under way, updated after events."""

from typing import TYPE_CHECKING, Protocol, Self

from textual.signal import Signal

from app.console.session.coalesced_task import CoalescedTask
from app.console.session.feed_host import FeedHost
from app.engine.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.records import Action, RunDetail
    from widgets.actions.batch import BatchView


class Batch(Protocol):
    """The requests of one confirmation and their outcomes."""

    @property
    def batch_id(self) -> str:
        """The batch's key, the same at every stage."""

    @property
    def has_begun(self) -> bool:
        """Whether a request was sent or is about to be."""

    @property
    def unknown(self) -> "tuple[Action, ...]":
        """Actions of unknown outcome."""

    @property
    def made(self) -> tuple[str, ...]:
        """Ids of the runs that were started or continued."""

    def resolved(self, action: "Action") -> Self:
        """The batch with the outcome of one action replaced."""

    def view(self, details: "Mapping[str, RunDetail]") -> "BatchView":
        """The batch as a line, with these details of its runs."""


class Batches:
    """Batches that have begun and were not dismissed."""

    def __init__(self, session: FeedHost) -> None:
        """Start empty; `changed` is published with the views of all batches."""
        self.changed: Signal[tuple[BatchView, ...]] = Signal(session.app, "batches changed")
        self.views: tuple[BatchView, ...] = ()
        """Newest first."""
        self._session = session
        self._held: dict[str, Batch] = {}
        self._reading = CoalescedTask(self._read, session.start)

    def put(self, batch: Batch) -> None:
        """Add a batch, or replace it with its next stage."""
        if batch.has_begun:
            self._held[batch.batch_id] = batch
            self._reading.ask()

    def let_go(self, key: str) -> None:
        """Dismiss a batch."""
        self._held.pop(key, None)
        self._reading.ask()

    def view(self, key: str) -> "BatchView | None":
        """The batch with this key; None: it was dismissed."""
        return next((view for view in self.views if view.key == key), None)

    def engine_changed(self, event: Event) -> None:
        """Update runs and unknown outcomes after an event."""
        if self._held and isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._reading.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        for key, batch in tuple(self._held.items()):
            for open_action in batch.unknown:
                action = await engine.ledger.action(open_action.action_id)
                if key in self._held and action is not None and action.state != open_action.state:
                    self._held[key] = self._held[key].resolved(action)
        made = [run_id for batch in self._held.values() for run_id in batch.made]
        details = await engine.cache.details(made)
        views = tuple(batch.view(details) for batch in reversed(self._held.values()))
        if views != self.views:
            self.views = views
            self.changed.publish(views)
