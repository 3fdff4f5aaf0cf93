"""Incidents: when a platform was not well, for how long, with short recoveries damped into one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.health.levels import Level, level
from storage.records import HealthSpan


@dataclass(frozen=True, slots=True)
class Incident:
    """One platform's trouble, from its first unwell sample to a recovery that held."""

    platform: str
    start: datetime
    until: datetime
    """Up to here it was surely unwell."""
    words: tuple[str, ...]
    """The statuses it had meanwhile, each once, the last one first."""
    worst: Level
    bad_s: float
    """How long it was worse than impaired."""
    recovered_at: datetime | None = None
    """When it was next seen well. None: not yet."""
    recoveries: int = 0
    """How often it was well for a moment meanwhile: above zero, it flapped."""
    is_over: bool = False
    """The recovery has held."""

    @property
    def lasted(self) -> timedelta:
        """From its start to the recovery, or to what is known so far."""
        return (self.recovered_at or self.until) - self.start

    @property
    def word(self) -> str:
        """The last unwell status."""
        return self.words[0]


def incidents(
    spans: Sequence[HealthSpan], healthy_words: Collection[str], hold: timedelta, *, connected: bool = True
) -> tuple[Incident, ...]:
    """One platform's incidents, newest first.

    Args:
        spans: Its stretches, oldest first.
        healthy_words: Statuses that mean that all is well, in lower case.
        hold: A recovery that is shorter ends nothing.
        connected: Whether the platform is still there; the trouble of one that is gone is over.
    """
    found: list[Incident] = []
    for span in spans:
        how = level(span.status, healthy_words)
        last = found[-1] if found else None
        if how != "well":
            if last is None or (last.recovered_at is not None and span.start - last.recovered_at >= hold):
                found.append(_first(span, how))
            else:
                found[-1] = _longer(last, span, how)
        elif last is not None and last.recovered_at is None:
            found[-1] = replace(last, recovered_at=span.start)
    if not found:
        return ()
    as_of = spans[-1].end
    settled = [replace(one, is_over=True) for one in found[:-1]]
    return (*reversed([*settled, _settled(found[-1], as_of, hold, connected=connected)]),)


def flips(spans: Sequence[HealthSpan], healthy_words: Collection[str], since: datetime) -> int:
    """How often one platform went from well to unwell or back since then."""
    count = 0
    before: bool | None = None
    for span in spans:
        is_well = level(span.status, healthy_words) == "well"
        if before is not None and is_well != before and span.start >= since:
            count += 1
        before = is_well
    return count


def _first(span: HealthSpan, how: Level) -> Incident:
    bad_s = (span.end - span.start).total_seconds() if how == "bad" else 0.0
    return Incident(span.platform, span.start, span.end, (span.status,), how, bad_s)


def _longer(incident: Incident, span: HealthSpan, how: Level) -> Incident:
    return replace(
        incident,
        until=span.end,
        words=(span.status, *(word for word in incident.words if word != span.status)),
        worst="bad" if "bad" in (how, incident.worst) else "impaired",
        bad_s=incident.bad_s + ((span.end - span.start).total_seconds() if how == "bad" else 0.0),
        recovered_at=None,
        recoveries=incident.recoveries + (incident.recovered_at is not None),
    )


def _settled(incident: Incident, as_of: datetime, hold: timedelta, *, connected: bool) -> Incident:
    held = incident.recovered_at is not None and as_of - incident.recovered_at >= hold
    return replace(incident, is_over=held or not connected)
