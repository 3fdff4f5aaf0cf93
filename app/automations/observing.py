"""Observing: what cache and ledger hold that may set a rule off."""

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.automations.occurrences import Seen
from app.notify.incidents import IncidentReader
from app.run_document import as_received
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records.following import Watermark

log = logging.getLogger(__name__)

MOST_CHANGES: Final = 20_000
"""Changes of status that are decided on at a time, the newest; a team's days of suspend are fewer."""
LOOK_BACK: Final = timedelta(days=31)
"""Runs that are first seen, and are older than this, are history."""


MOST_QUESTIONS: Final = 20
"""Reasons asked of the service at one look: a storm of failures must not become one of requests."""
NO_REASON: Final = "no reason given"
"""The value of `{run.reason}` if the service does not tell."""
_REASONS: Final = ("reason", "failure_reason", "status_reason", "error", "error_message", "message")
"""Keys in which a service may give a reason, though the API specifies none; text, or an object with one of these."""
_LONGEST_REASON: Final = 1_000


@dataclass(slots=True)
class RunFacts:
    """Facts of a run beyond its row: why it ended, and its labels."""

    cache: Cache
    ledger: Ledger
    tell_reason: Callable[[str], Awaitable[str]] | None = None
    """Asks the service for a reason that its list does not have; empty: it does not tell."""
    questions: int = MOST_QUESTIONS
    """How many more reasons may be asked for."""

    async def reason(self, run_id: str) -> str:
        """Why the run ended, as the service says it in its list, or in its results.

        Raises:
            StorageError: The cache cannot be read.
        """
        reason = reason_of(await self._received(run_id))
        if not reason and self.questions and self.tell_reason is not None:
            self.questions -= 1
            reason = await self.tell_reason(run_id)
        return reason[:_LONGEST_REASON] or NO_REASON

    async def labels(self, run_id: str) -> dict[str, str]:
        """The run's metadata: as the service shows it, else as this machine's ledger sent it.

        Raises:
            StorageError: Cache or ledger cannot be read.
        """
        metadata = (await self._received(run_id)).get("metadata")
        if not isinstance(metadata, dict):
            turn = await self.ledger.last_turn(run_id)
            metadata = as_received(turn.body_json).get("metadata") if turn is not None else None
        given = metadata if isinstance(metadata, dict) else {}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}

    async def _received(self, run_id: str) -> dict[str, object]:
        held = await self.cache.detail(run_id)
        return {} if held is None else as_received(held.run.raw_json)


def reason_of(received: dict[str, object]) -> str:
    """Why a run ended, as the service says it in the run; empty: it does not."""
    for name in _REASONS:
        match received.get(name):
            case str(text) if text.strip():
                return text.strip()
            case dict(inner) if found := reason_of(inner):
                return found
    return ""


@dataclass(slots=True)
class Observer:
    """Reads one profile's cache and ledger; changes of status only since the `passed` watermark."""

    run_facts: RunFacts
    incidents: IncidentReader
    _watermark: Watermark = field(default_factory=Watermark)
    _file: int = 0
    """Which of the cache's files the watermark belongs to."""

    async def observe(self, now: datetime) -> Seen:
        """The possible triggers of rules now.

        Raises:
            StorageError: Cache or ledger cannot be read.
        """
        cache = self.run_facts.cache
        if self._file != cache.opened:
            self._file, self._watermark = cache.opened, Watermark()
        self.run_facts.questions = MOST_QUESTIONS
        ahead = await cache.run_clock_ahead()
        found = await cache.following.changes(self._watermark, since=now + ahead - LOOK_BACK, limit=MOST_CHANGES)
        if len(found.changes) >= MOST_CHANGES:
            log.warning("more than %s runs changed at once: the oldest were passed over", MOST_CHANGES)
        return Seen(
            now,
            found.changes,
            ahead,
            await cache.following.stuck_runs(),
            await self.incidents.read(now),
            await self.run_facts.ledger.unresolved(),
            found.watermark,
        )

    def passed(self, seen: Seen) -> None:
        """Everything seen then was decided on: the next look begins after it."""
        self._watermark = seen.watermark
