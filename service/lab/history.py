"""History on demand: any number of ended runs over a span of time, the same for the same seed."""

import itertools
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from service import ids
from service.clock import SECOND_MICROS
from service.errors import ServiceError
from service.reference import default_branch
from service.store import organizations, repositories
from service.store.agents import DEFAULT_NAME
from service.store.database import Database
from service.store.repositories import Repository
from service.store.schema import runs, turns
from service.store.turns import MADE_UP

_BATCH: Final = 10_000
_FAILED_SHARE: Final = 0.12
_AGAIN_SHARE: Final = 0.15
_BRANCH_SHARE: Final = 0.4
_TYPICAL_S: Final = 240
_LONGEST_S: Final = 3600
_TASKS: Final = (
    *("Fix the flaky retry", "Review the login", "Bump the parser", "Explain the cache", "Tidy the imports"),
    *("Add dark mode", "Find dead code", "Harden the upload", "Speed up the search", "Document the API"),
)

_BRANCHES: Final = (
    "main",
    "fix/login-timeout",
    "feature/invoices",
    "feature/search",
    "chore/dependencies",
    "release/2.4",
)
_REQUESTERS: Final = ("ada", "grace", "linus", "margaret", "nightly")

# A team: office hours, quiet weekends, a bad night, and an incident of a code host.
_HOUR: Final = 3600 * SECOND_MICROS
_DAY: Final = 24 * _HOUR
_BAD_NIGHT_AGO: Final = 6 * _DAY
"""The bad night, from midnight to four, begins this long before the last midnight of the history."""
_TUESDAY: Final = 1
_SATURDAY: Final = 5
_TEAM_FAILED_SHARE: Final = 0.06
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

Row = tuple[dict[str, Any], list[dict[str, object]]]
"""A run and its turns."""


class UnknownOrganizationError(ServiceError):
    """The organization that the history is for does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no organization {name!r}")


class HistoryExistsError(ServiceError):
    """The same history was generated before."""

    def __init__(self) -> None:
        super().__init__("these very runs are there; choose another seed, or reset the lab")


@dataclass(frozen=True, slots=True)
class HistorySpec:
    """The history to generate."""

    organization: str
    """Its slug or id."""
    runs: int
    seed: int
    span_micros: int
    until: int
    """The end of the span, in microseconds since 1970."""
    active: int
    """How many of the newest runs stay queued or working: they are never executed."""
    repositories: int
    agents: tuple[str, ...] = (DEFAULT_NAME,)
    """The names of the runs' agents."""
    team: bool = False
    """Whether the runs follow a team's days, nights and weekends instead of coming evenly."""


def make(database: Database, spec: HistorySpec) -> dict[str, object]:
    """Insert the runs with their turns and return what was made and how long it took.

    Raises:
        UnknownOrganizationError: There is no such organization; nothing was inserted.
        HistoryExistsError: The same runs exist; nothing was inserted.
    """
    began = time.monotonic()
    with database.read() as connection:
        owner = organizations.by_slug(connection, spec.organization)
        if owner is None:
            raise UnknownOrganizationError(spec.organization)
        known = repositories.of(connection, owner.id)
    targets = _generated_repositories(known, spec.repositories)
    rows = _team_rows(spec, owner.id, targets) if spec.team else _rows(spec, owner.id, targets)
    made = 0
    while batch := list(itertools.islice(rows, _BATCH)):
        _insert(database, batch)
        made += len(batch)
    return {"runs": made, "organization_id": owner.id, "took_s": round(time.monotonic() - began, 3)}


def _insert(database: Database, batch: list[Row]) -> None:
    try:
        # One transaction for each batch: other writers wait for a moment, not for the whole history.
        with database.write() as connection:
            connection.execute(sa.insert(runs), [run for run, _ in batch])
            connection.execute(sa.insert(turns), [turn for _, taken in batch for turn in taken])
    except sa.exc.IntegrityError as error:
        raise HistoryExistsError from error


def unmake(database: Database) -> int:
    """Remove every generated run; return how many there were."""
    removed = 0
    while True:
        with database.write() as connection:
            mine = sa.select(turns.c.run_id).where(turns.c.executor == MADE_UP).limit(_BATCH)
            gone = connection.execute(sa.delete(runs).where(runs.c.id.in_(mine.scalar_subquery()))).rowcount
        removed += gone
        if gone == 0:
            return removed


def _generated_repositories(known: list[Repository], wanted: int) -> list[Repository]:
    """Return `wanted` repositories: the configured ones first, then ones that exist in name only."""
    names = (f"lab/service-{number:02d}" for number in range(1, wanted + 1))
    made_up = [Repository(name, "github", name, f"https://lab.invalid/{name}.git") for name in names]
    return [*known, *made_up][:wanted]


def _rows(spec: HistorySpec, owner: str, repositories: list[Repository]) -> Iterator[Row]:
    rng = random.Random(spec.seed)
    for number in range(spec.runs):
        fraction = (number + rng.random()) / spec.runs
        created_at = spec.until - int(spec.span_micros * (1 - fraction))
        # Some repositories see far more runs than others.
        repository = repositories[int(len(repositories) * rng.random() ** 2)]
        lasted = int(min(_TYPICAL_S * math.exp(rng.gauss(0, 1)), _LONGEST_S) * SECOND_MICROS)
        status = "failed" if rng.random() < _FAILED_SHARE else "completed"
        if number >= spec.runs - spec.active:
            status, lasted = ("working", min(lasted, SECOND_MICROS)) if rng.random() < 1 / 2 else ("queued", 0)
        run_id = f"run_{ids.ulid(created_at, rng.getrandbits)}"
        task = _TASKS[int(len(_TASKS) * rng.random())]
        yield _row(owner, repository, run_id, task, status, created_at, lasted)


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a run of a team begins, and whether that is in its bad night or in the incident."""

    at: int
    """In microseconds since 1970."""
    is_bad_night: bool
    is_incident: bool

    def failure(self, platform: str, rng: random.Random) -> str | None:
        """Why a run that begins at this moment fails; None: it succeeds."""
        if self.is_incident and platform == _INCIDENT_PLATFORM:
            return f"{_INCIDENT_REASON} (seeded by the lab)"
        share = _BAD_NIGHT_SHARE if self.is_bad_night else _TEAM_FAILED_SHARE
        if rng.random() >= share:
            return None
        return f"{_NIGHT_REASON if self.is_bad_night else rng.choice(_REASONS)} (seeded by the lab)"


def _moments(rng: random.Random, since: int, until: int, count: int) -> Iterator[_Moment]:
    """Yield the moments at which `count` runs begin, oldest first."""
    hours = [_moment_of_hour(at, until) for at in range(since, until - _HOUR + 1, _HOUR)]
    picked = rng.choices(hours, [weight for _, weight in hours], k=count)
    for at, moment in sorted((moment.at + rng.randrange(_HOUR), moment) for moment, _ in picked):
        yield _Moment(at, moment.is_bad_night, moment.is_incident)


def _moment_of_hour(at: int, until: int) -> tuple[_Moment, float]:
    """The beginning of an hour, and the weight of the hour: how many runs begin in it, compared with other hours."""
    begins = datetime.fromtimestamp(at // SECOND_MICROS, UTC)
    hour, weekday = begins.hour, begins.weekday()
    midnight = until - until % _DAY
    night = hour in _NIGHT_HOURS and midnight - _BAD_NIGHT_AGO <= at < midnight - _BAD_NIGHT_AGO + _DAY
    incident = weekday == _TUESDAY and hour in _INCIDENT_HOURS and until - 8 * _DAY <= at < until - _DAY
    weight = 1.0 if hour in range(8, 18) else 0.25 if hour in range(6, 22) else 0.08
    weight *= 0.15 if weekday >= _SATURDAY else 1
    return _Moment(at, night, incident), 1.6 if night else 3.0 if incident else weight


def _team_rows(spec: HistorySpec, owner: str, repositories: list[Repository]) -> Iterator[Row]:
    rng = random.Random(spec.seed)
    for moment in _moments(rng, spec.until - spec.span_micros, spec.until, spec.runs):
        repository = rng.choices(repositories, [1 / (1 + rank) for rank in range(len(repositories))])[0]
        yield _team_row(spec, owner, repository, moment, rng)


def _team_row(spec: HistorySpec, owner: str, repository: Repository, moment: _Moment, rng: random.Random) -> Row:
    failure = moment.failure(repository.platform, rng)
    lasted = int(min(_TYPICAL_S * math.exp(rng.gauss(0, 1)), _LONGEST_S) * SECOND_MICROS)
    lasted = min(lasted, max(SECOND_MICROS, spec.until - moment.at))  # Every run of a team ends within the history.
    run_id = f"run_{ids.ulid(moment.at, rng.getrandbits)}"
    task, status = rng.choice(_TASKS), "completed" if failure is None else "failed"
    run, taken = _row(owner, repository, run_id, f"{task}.", status, moment.at, lasted)
    run |= {"agent": rng.choice(spec.agents), "metadata": {"requested_by": rng.choice(_REQUESTERS)}}
    if rng.random() < _BRANCH_SHARE:
        run["branch"] = rng.choice(_BRANCHES)
    (turn,) = taken
    turn |= {"summary": f"{task}: done (seeded by the lab)." if failure is None else None, "failure": failure}
    if failure is None and rng.random() < _AGAIN_SHARE:
        half = moment.at + lasted // 2
        again = turn | {"number": 2, "instructions": "And the tests?", "accepted_at": half}
        again |= {"dispatched_at": half, "started_at": half}
        turn["finished_at"], run["turn"] = half, 2
        taken.append(again)
    return run, taken


def _row(owner: str, repository: Repository, run_id: str, task: str, status: str, created_at: int, lasted: int) -> Row:
    ended = created_at + lasted if status in {"completed", "failed"} else None
    run = {
        "id": run_id,
        "organization_id": owner,
        "agent": DEFAULT_NAME,
        "status": status,
        "branch": default_branch(task, run_id),
        "platform": repository.platform,
        "path": repository.path,
        "path_key": repository.path.lower(),
        "url": repository.url,
        "metadata": None,
        "turn": 1,
        "created_at": created_at,
        "updated_at": created_at + lasted,
    }
    turn = {
        "run_id": run_id,
        "number": 1,
        "status": status,
        "instructions": task,
        "inputs": {},
        "attempt": 1,
        "executor": MADE_UP,
        "accepted_at": created_at,
        "dispatched_at": created_at,
        "started_at": created_at,
        "finished_at": ended,
        "summary": task if status == "completed" else None,
        "failure": "made up by the lab" if status == "failed" else None,
    }
    return run, [turn]
