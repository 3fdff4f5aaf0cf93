"""When a team's runs begin, and why some fail: office hours, quiet weekends, a bad night, a code host's incident."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from service.clock import SECOND_MICROS

_HOUR: Final = 3600 * SECOND_MICROS
_DAY: Final = 24 * _HOUR
_BAD_NIGHT_AGO: Final = 6 * _DAY
"""From midnight to four, so many days before the end."""
_TUESDAY: Final = 1
_SATURDAY: Final = 5
_FAILED_SHARE: Final = 0.06
_BAD_NIGHT_SHARE: Final = 0.8
_NIGHT_HOURS: Final = range(4)
_INCIDENT_HOURS: Final = range(13, 15)
_REASONS: Final = (
    "the tests failed: 2 of 41",
    "no output for 300 s: ended as idle",
    "the branch moved while the agent worked",
    "the agent ended with status 1",
)
_NIGHT_REASON: Final = "the model answered 529: overloaded, after 5 tries"
_INCIDENT_REASON: Final = "the repository could not be cloned: the requested URL returned error: 503"
_INCIDENT_PLATFORM: Final = "gitlab"


@dataclass(frozen=True, slots=True)
class Moment:
    """When a run begins."""

    at: int
    """In microseconds since 1970."""
    is_bad_night: bool
    is_incident: bool

    def failure(self, platform: str, rng: random.Random) -> str | None:
        """Why a run of that moment failed; None: it did not."""
        if self.is_incident and platform == _INCIDENT_PLATFORM:
            return f"{_INCIDENT_REASON} (seeded by the lab)"
        share = _BAD_NIGHT_SHARE if self.is_bad_night else _FAILED_SHARE
        if rng.random() >= share:
            return None
        return f"{_NIGHT_REASON if self.is_bad_night else rng.choice(_REASONS)} (seeded by the lab)"


def moments(rng: random.Random, since: int, until: int, count: int) -> Iterator[Moment]:
    """Yield the beginnings of that many runs, oldest first."""
    hours = [_hour(at, until) for at in range(since, until - _HOUR + 1, _HOUR)]
    picked = rng.choices(hours, [weight for _, weight in hours], k=count)
    for at, moment in sorted((moment.at + rng.randrange(_HOUR), moment) for moment, _ in picked):
        yield Moment(at, moment.is_bad_night, moment.is_incident)


def _hour(at: int, until: int) -> tuple[Moment, float]:
    """An hour's moment, and how busy it is."""
    begins = datetime.fromtimestamp(at // SECOND_MICROS, UTC)
    hour, weekday = begins.hour, begins.weekday()
    midnight = until - until % _DAY
    night = hour in _NIGHT_HOURS and midnight - _BAD_NIGHT_AGO <= at < midnight - _BAD_NIGHT_AGO + _DAY
    incident = weekday == _TUESDAY and hour in _INCIDENT_HOURS and until - 8 * _DAY <= at < until - _DAY
    weight = 1.0 if hour in range(8, 18) else 0.25 if hour in range(6, 22) else 0.08
    weight *= 0.15 if weekday >= _SATURDAY else 1
    return Moment(at, night, incident), 1.6 if night else 3.0 if incident else weight
