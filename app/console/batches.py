"""The batches of this console: how far each is, kept up to date after its form has closed."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, Self

from app.console.coalesced_task import CoalescedTask, Start

if TYPE_CHECKING:
    from textual.signal import Signal

    from app.engine import Engine
    from app.events import Event
    from storage.records import Action, RunDetail
    from widgets.batch import BatchView


class Batch(Protocol):
    """What one confirmation sends, as far as it is."""

    @property
    def batch_id(self) -> str:
        """Identifies it, however far it is."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of it was sent, or is about to be."""

    @property
    def unknown(self) -> "tuple[Action, ...]":
        """Actions whose outcome a person has to find out."""

    @property
    def made(self) -> tuple[str, ...]:
        """Ids of the runs that were started or continued."""

    def resolved(self, action: "Action") -> Self:
        """With what was found out of one of its actions."""

    def view(self, details: "Mapping[str, RunDetail]") -> "BatchView":
        """How it reads, with these runs as they are known now."""


class Batches:
    """Those that were begun and not let go."""

    def __init__(
        self, engine: "Callable[[], Engine | None]", start: Start, changed: "Signal[tuple[BatchView, ...]]"
    ) -> None:
        """Hold none yet; `changed` is published with all of them."""
        self._engine = engine
        self.changed = changed
        self.views: tuple[BatchView, ...] = ()
        """The newest first."""
        self._held: dict[str, Batch] = {}
        self._reading = CoalescedTask(self._read, start)

    def put(self, batch: Batch) -> None:
        """A batch began, or came further."""
        if batch.has_begun:
            self._held[batch.batch_id] = batch
            self._reading.ask()

    def let_go(self, keys: Iterable[str]) -> None:
        """Show these no longer."""
        for key in keys:
            self._held.pop(key, None)
        self._reading.ask()

    def view(self, key: str) -> "BatchView | None":
        """One of them; None: it was let go."""
        return next((view for view in self.views if view.key == key), None)

    def engine_changed(self, event: "Event") -> None:
        """Something changed: its runs may be further, and what was unknown may be known."""
        from app.events import ActionChanged, CacheChangedElsewhere, RunsChanged

        if self._held and isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._reading.ask()

    async def _read(self) -> None:
        if (engine := self._engine()) is None:
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
