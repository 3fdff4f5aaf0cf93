"""The doorbell: it rings with a description of the change, never with rows; listeners read those from the cache."""

from collections.abc import Callable
from dataclasses import dataclass

from storage.records import HealthChange, LinkState, PollOutcome, RunChanges
from storage.records.coverage import BackfillProgress
from storage.records.service_traits import Wait


@dataclass(frozen=True, slots=True)
class RunsChanged:
    """Runs appeared, changed status or changed presence."""

    changes: RunChanges


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """Code hosts changed their status; without changes, their status was confirmed."""

    changes: tuple[HealthChange, ...]


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A poll ended: the rows are fresher, or the link failed or recovered."""

    state: LinkState
    own_failure: PollOutcome | None = None
    """The poll failed in this process, while another one's polls succeed."""


@dataclass(frozen=True, slots=True)
class PollDelayed:
    """The next poll has to wait for the request budget."""

    wait: Wait


@dataclass(frozen=True, slots=True)
class ActionChanged:
    """An action of the ledger moved to another state."""

    action_id: str


@dataclass(frozen=True, slots=True)
class BackfillMoved:
    """Fetching older runs made progress, paused or ended."""

    progress: BackfillProgress


@dataclass(frozen=True, slots=True)
class CacheChangedElsewhere:
    """Another process wrote to the cache or the ledger."""


@dataclass(frozen=True, slots=True)
class StateChangedElsewhere:
    """Another process wrote to the automations' state: a decision, a mark in the inbox, or only a lease."""


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """Our own files cannot be written: the screen no longer follows the service."""

    message: str
    """What happened, and the cure."""


Event = (
    RunsChanged
    | HealthChanged
    | LinkChanged
    | PollDelayed
    | ActionChanged
    | BackfillMoved
    | CacheChangedElsewhere
    | StateChangedElsewhere
    | StorageFailed
)
Announce = Callable[[Event], None]


class Doorbell:
    """Passes each event to every listener."""

    def __init__(self, *listeners: Announce) -> None:
        self._listeners = list(listeners)

    def ring(self, event: Event) -> None:
        """Pass the event on, in the order of subscription."""
        for listener in tuple(self._listeners):
            listener(event)

    def subscribe(self, listener: Announce) -> Callable[[], None]:
        """Listen until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
