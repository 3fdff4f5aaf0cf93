"""The situation: alerts to tell, told ones, and the current problems. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from storage.records.alert import Alert, Silence, ToldProblem
from storage.records.inbox import Mark

ENDING: Final = frozenset({"failed", "host", "stuck", "action", "link"})
"""Kinds of alerts about problems, which end. All other alerts are about single events."""
_GITHUB: Final = "github"


@dataclass(frozen=True, slots=True)
class Present:
    """The current problems, as far as known."""

    unwell: frozenset[str] = frozenset()
    """Code hosts whose incident is not over."""
    bad: frozenset[str] = frozenset()
    """The unwell code hosts that are worse than impaired."""
    stuck: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    """Actions whose outcome is unknown."""
    failing: frozenset[str] = frozenset()
    """Subjects of failing polls: their problems cannot be known."""
    completed: Mapping[str, datetime] = field(default_factory=dict)
    """When a run last completed, by its repository's label."""

    def has(self, group: str, newest_at: datetime) -> bool | None:
        """Whether this problem is still there; None: that cannot be known now."""
        kind, _, what = group.partition(":")
        match kind:
            case "link":
                return what in self.failing
            case "action":
                return what in self.unknown
            case "host":
                return None if "health" in self.failing else what in self.unwell
            case _ if "runs" in self.failing:
                return None
            case "failed":
                return self.completed.get(what, newest_at) <= newest_at
            case _:
                return what in self.stuck


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that the next messages depend on, at one moment."""

    now: datetime
    present: Present = field(default_factory=Present)
    waiting: tuple[Alert, ...] = ()
    told: tuple[ToldProblem, ...] = ()
    last_made: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """When the last message was made, by route and batch."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Marks on the inbox's items, by group."""
    silences: tuple[Silence, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    """Keys of alerts that a console told over the same channels."""

    def is_silenced(self, one: Alert | ToldProblem) -> bool:
        """Whether it is not told now: it is silenced, or snoozed in the inbox since its last event."""
        at = one.newest_at if isinstance(one, ToldProblem) else one.at
        is_snoozed = any(mark.hides(at, self.now) for mark in self._marks(one))
        return is_snoozed or any(silence.covers(key) for silence in self.silences for key in one.keys)

    def is_muted(self, one: Alert | ToldProblem) -> bool:
        """Whether a person never wants to hear of it again."""
        return any(mark.is_muted for mark in self._marks(one))

    def is_acknowledged(self, problem: ToldProblem) -> bool:
        """Whether all that was told of it is acknowledged."""
        # A run that is stuck, and a write, are one thing each; a repository fails again and again.
        since = datetime.min.replace(tzinfo=UTC) if problem.kind in {"stuck", "action"} else problem.newest_at
        done = (mark.done_until for mark in self._marks(problem))
        return self.is_muted(problem) or any(until is not None and until >= since for until in done)

    def _marks(self, one: Alert | ToldProblem) -> list[Mark]:
        return [self.marks[key] for key in one.keys if key in self.marks]

    def inhibitor(self, alert: Alert) -> str | None:
        """The group of the bad code host that explains why this run failed."""
        if alert.kind != "failed":
            return None
        label = alert.group.partition(":")[2]
        platform = label.partition(":")[0] if ":" in label else _GITHUB
        return next((f"host:{host}" for host in self.present.bad if host.casefold() == platform.casefold()), None)
