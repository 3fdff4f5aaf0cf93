"""Events: each describes a change, without rows; listeners read those from the cache."""

from collections.abc import Callable
from contextlib import ExitStack

from msgspec import Struct

from storage.records import HealthChange, LinkState, PollOutcome, RunChanges
from storage.records.coverage import BackfillProgress


class Event(Struct, frozen=True):
    """A change that listeners may have to read from the cache."""


class RunsChanged(Event, frozen=True):
    """The cached runs changed."""

    changes: RunChanges


class HealthChanged(Event, frozen=True):
    """Code hosts changed their status; without changes, their status was confirmed."""

    changes: tuple[HealthChange, ...]


class LinkChanged(Event, frozen=True):
    """A poll ended: the rows are fresher, or the link failed or recovered."""

    state: LinkState
    own_failure: PollOutcome | None = None
    """The poll failed in this process, while another one's polls succeed."""


class PollDelayed(Event, frozen=True):
    """The next poll has to wait for the request budget."""


class ActionChanged(Event, frozen=True):
    """An action of the ledger moved to another state."""

    action_id: str


class BackfillMoved(Event, frozen=True):
    """Fetching older runs made progress, paused or ended."""

    progress: BackfillProgress


class FilesChangedElsewhere(Event, frozen=True):
    """Another process wrote to the cache or the ledger."""


class StateChangedElsewhere(Event, frozen=True):
    """The automations' state changed: a follow-up, or any write by another process, even of a lease."""


class StorageFailed(Event, frozen=True):
    """Our own files cannot be written: the screen no longer follows the service."""

    message: str
    """The problem and its fix."""


Announce = Callable[[Event], None]


class EventBus(Struct, eq=False):
    """Passes each event to every listener."""

    _listeners: list[Announce] = []

    def publish(self, event: Event) -> None:
        """Pass the event on, in the order of subscription; one that raises does so after all have had it."""
        with ExitStack() as calls:
            for listener in reversed(self._listeners):
                calls.callback(listener, event)

    def subscribe(self, listener: Announce) -> Callable[[], None]:
        """Listen until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
