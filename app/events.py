"""The doorbell: what changed, never the rows themselves; whoever shows something asks the cache for it."""

from collections.abc import Callable
from dataclasses import dataclass

from storage.records import HealthChange, LinkState, RunChanges


@dataclass(frozen=True, slots=True)
class RunsChanged:
    """Runs appeared, changed status or changed presence."""

    changes: RunChanges


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """Code hosts changed their status; empty changes mean that it was confirmed once more."""

    changes: tuple[HealthChange, ...]


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A poll ended: freshness moved on, or the link went bad or recovered."""

    state: LinkState


@dataclass(frozen=True, slots=True)
class ActionChanged:
    """An action of the ledger moved to another state."""

    action_id: str


@dataclass(frozen=True, slots=True)
class CacheChangedElsewhere:
    """Another process wrote to the cache or the ledger."""


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """Our own files could not be written: what is shown no longer follows the service."""

    message: str
    """What happened and what cures it."""


Event = RunsChanged | HealthChanged | LinkChanged | ActionChanged | CacheChangedElsewhere | StorageFailed
Announce = Callable[[Event], None]
