"""History on demand: any number of ended runs over a span of time, the same for the same seed."""

import itertools
import math
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from pydantic import BaseModel, Field, model_validator

from service import ids
from service.agents.options import DEFAULT_NAME
from service.api.errors import HttpError, bad_request
from service.clock import CENTURY_MICROS, DAY_MICROS, SECOND_MICROS, Micros, parse_duration, parse_rfc3339
from service.reference import default_branch
from service.store import organizations, repositories
from service.store.database import Database
from service.store.repositories import Repository
from service.store.schema import runs, turns
from service.store.turns import MADE_UP

_BATCH: Final = 10_000
_TEAM_RUNS: Final = 100_000
_FAILED_SHARE: Final = 0.12
_AGAIN_SHARE: Final = 0.15
_BRANCH_SHARE: Final = 0.4
_TYPICAL_S: Final = 240
_MAX_S: Final = 3600
_TASKS: Final = (
    *("Fix the flaky retry", "Review the login", "Bump the parser", "Explain the cache", "Tidy the imports"),
    *("Add dark mode", "Find dead code", "Harden the upload", "Speed up the search", "Document the API"),
)

_REFS: Final = ("main", "fix/login-timeout", "feature/invoices", "feature/search", "chore/dependencies", "release/2.4")
_REQUESTERS: Final = ("ada", "grace", "linus", "margaret", "nightly")

# A team: office hours, quiet weekends, a bad night, and an incident of a code host.
_HOUR: Final = 3600 * SECOND_MICROS
_BAD_NIGHT_AGO: Final = 6 * DAY_MICROS
"""The bad night, from midnight to four, begins this long before the last midnight of the history."""
_TUESDAY: Final = 1
_SATURDAY: Final = 5
_TEAM_FAILED_SHARE: Final = 0.06
_BAD_NIGHT_SHARE: Final = 0.8
_NIGHT_HOURS: Final = range(4)
_HOUR_WEIGHTS: Final = ((range(8, 18), 1.0), (range(6, 22), 0.25))
"""How many runs begin in an hour of the day, the first that fits; at night fewer."""
_INCIDENT_HOURS: Final = range(13, 15)
_REASONS: Final = (
    "the tests failed: 2 of 41",
    "no output for 300 s: ended as idle",
    "the branch moved while the agent worked",
    "the agent exited with status 1",
)
_NIGHT_REASON: Final = "the model answered 529: overloaded, after 5 tries"

Row = tuple[dict[str, Any], list[dict[str, object]]]


class HistoryRequest(BaseModel, strict=True, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Body of POST /_lab/runs."""

    organization: str
    """The organization's slug or id."""
    runs: Annotated[int, Field(ge=1, le=10_000_000)]
    seed: int = 1
    span: str = "90d"
    until: str | None = None
    """The end of the history, as RFC 3339; None: now."""
    active: Annotated[int, Field(ge=0)] = 0
    """How many of the newest runs stay queued or working: they are never executed."""
    repositories: Annotated[int, Field(ge=1, le=99)] = 12
    agents: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(min_length=1, max_length=20)] = [
        DEFAULT_NAME
    ]
    """The agents of a team's runs; those of the even rhythm have the reviewer."""
    rhythm: Literal["even", "team"] = "even"
    """A team's days, nights and weekends, or runs that come evenly."""

    @model_validator(mode="after")
    def check_rhythm(self) -> "HistoryRequest":
        if self.rhythm == "team" and (self.active or self.runs > _TEAM_RUNS):
            raise ValueError(f"the rhythm of a team has no active runs, and at most {_TEAM_RUNS:,}")
        return self


def make(database: Database, spec: HistoryRequest, now: Micros) -> dict[str, object]:
    """Insert the runs with their turns and return the counts and the duration.

    Raises:
        HttpError: The span cannot be read, there is no such organization, or the same runs exist.
    """
    began = time.monotonic()
    try:
        span = parse_duration(spec.span)
        until = now if spec.until is None else parse_rfc3339(spec.until, round_up=False)
    except ValueError as error:
        raise bad_request("invalid_request", str(error)) from error
    if until <= span:
        raise bad_request("invalid_request", "the span begins before 1970")
    if until > now + CENTURY_MICROS:
        raise bad_request("invalid_request", "until: more than 100 years from now")
    with database.read() as connection:
        owner = organizations.by_slug(connection, spec.organization)
        if owner is None:
            raise HttpError(404, "organization_not_found", f"there is no organization {spec.organization!r}")
        connected = repositories.of(connection, owner.id)
    # The configured repositories come first, then ones that exist in name only.
    names = [f"lab/service-{number:02d}" for number in range(1, spec.repositories + 1)]
    made_up = [Repository(name, "github", name, f"https://lab.invalid/{name}.git") for name in names]
    history = _team_rows if spec.rhythm == "team" else _rows
    rows = history(spec, owner.id, [*connected, *made_up][: spec.repositories], until - span, until)
    made = 0
    while batch := list(itertools.islice(rows, _BATCH)):
        try:
            # One transaction for each batch: other writers wait for a moment, not for the whole history.
            with database.write() as connection:
                connection.execute(sa.insert(runs), [run for run, _ in batch])
                connection.execute(sa.insert(turns), [turn for _, taken in batch for turn in taken])
        except sa.exc.IntegrityError as error:
            text = "these very runs are there; choose another seed, or reset the lab"
            raise HttpError(409, "made_already", text) from error
        made += len(batch)
    return {"runs": made, "organization_id": owner.id, "took_s": round(time.monotonic() - began, 3)}


def unmake(database: Database) -> int:
    removed = 0
    while True:
        with database.write() as connection:
            batch = sa.select(turns.c.run_id).where(turns.c.executor == MADE_UP).limit(_BATCH)
            count = connection.execute(sa.delete(runs).where(runs.c.id.in_(batch.scalar_subquery()))).rowcount
        removed += count
        if count == 0:
            return removed


def _rows(spec: HistoryRequest, owner: str, repos: list[Repository], since: int, until: int) -> Iterator[Row]:
    rng = random.Random(spec.seed)
    for number in range(spec.runs):
        created_at = until - int((until - since) * (1 - (number + rng.random()) / spec.runs))
        # Some repositories have far more runs than others.
        repository = repos[int(len(repos) * rng.random() ** 2)]
        lasted = int(min(_TYPICAL_S * math.exp(rng.gauss(0, 1)), _MAX_S) * SECOND_MICROS)
        status = "failed" if rng.random() < _FAILED_SHARE else "completed"
        if number >= spec.runs - spec.active:
            status, lasted = ("working", min(lasted, SECOND_MICROS)) if rng.random() < 1 / 2 else ("queued", 0)
        run_id = f"run_{ids.ulid(created_at, rng.getrandbits)}"
        task = _TASKS[int(len(_TASKS) * rng.random())]
        yield _row(owner, repository, run_id, task, status, created_at, lasted)


def _hour(at: int, until: int) -> tuple[float, bool, bool]:
    """Weigh the hour that begins at an instant, and return whether it is in the bad night or in the incident.

    The weight is how many runs begin in it, compared with other hours.
    """
    begins = datetime.fromtimestamp(at // SECOND_MICROS, UTC)
    hour, weekday = begins.hour, begins.weekday()
    midnight = until - until % DAY_MICROS
    night = hour in _NIGHT_HOURS and midnight - _BAD_NIGHT_AGO <= at < midnight - _BAD_NIGHT_AGO + DAY_MICROS
    incident = weekday == _TUESDAY and hour in _INCIDENT_HOURS and until - 8 * DAY_MICROS <= at < until - DAY_MICROS
    weight = next((weight for hours, weight in _HOUR_WEIGHTS if hour in hours), 0.08)
    weight *= 0.15 if weekday >= _SATURDAY else 1
    if incident:
        weight = 3.0
    if night:
        weight = 1.6
    return weight, night, incident


def _team_rows(spec: HistoryRequest, owner: str, repos: list[Repository], since: int, until: int) -> Iterator[Row]:
    rng = random.Random(spec.seed)
    hours = {at: _hour(at, until) for at in range(since, until - _HOUR + 1, _HOUR)}
    picked = rng.choices([*hours], [weight for weight, _, _ in hours.values()], k=spec.runs)
    for at, hour in sorted((hour + rng.randrange(_HOUR), hour) for hour in picked):
        repository = rng.choices(repos, [1 / (1 + rank) for rank in range(len(repos))])[0]
        _, is_bad_night, is_incident = hours[hour]
        failure = None
        if is_incident and repository.platform == "gitlab":
            failure = "the repository could not be cloned: the requested URL returned error: 503"
        elif rng.random() < (_BAD_NIGHT_SHARE if is_bad_night else _TEAM_FAILED_SHARE):
            failure = _NIGHT_REASON if is_bad_night else rng.choice(_REASONS)
        lasted = int(min(_TYPICAL_S * math.exp(rng.gauss(0, 1)), _MAX_S) * SECOND_MICROS)
        lasted = min(lasted, max(SECOND_MICROS, until - at))  # Every run of a team ends within the history.
        run_id = f"run_{ids.ulid(at, rng.getrandbits)}"
        task = rng.choice(_TASKS)
        status = "completed" if failure is None else "failed"
        run, taken = _row(owner, repository, run_id, f"{task}.", status, at, lasted)
        run |= {"agent": rng.choice(spec.agents), "metadata": {"requested_by": rng.choice(_REQUESTERS)}}
        if rng.random() < _BRANCH_SHARE:
            run["branch"] = rng.choice(_REFS)
        (turn,) = taken
        turn["inputs"] = {} if run["agent"] == DEFAULT_NAME else {"instructions": turn["instructions"]}
        turn["summary"] = f"{task}: done (seeded by the lab)." if failure is None else None
        turn["failure"] = None if failure is None else f"{failure} (seeded by the lab)"
        if failure is None and rng.random() < _AGAIN_SHARE:
            half = at + lasted // 2
            again = turn | {"number": 2, "instructions": "And the tests?", "inputs": {}, "accepted_at": half}
            again |= {"dispatched_at": half, "started_at": half}
            turn["finished_at"], run["turn"] = half, 2
            taken.append(again)
        yield run, taken


def _row(
    owner: str, repository: Repository, run_id: str, task: str, status: str, created_at: Micros, lasted: int
) -> Row:
    ended_at = created_at + lasted if status in {"completed", "failed"} else None
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
        "organization_id": owner,
        "status": status,
        "instructions": task,
        "inputs": {},
        "attempt": 1,
        "executor": MADE_UP,
        "accepted_at": created_at,
        "dispatched_at": created_at,
        "started_at": created_at,
        "finished_at": ended_at,
        "summary": task if status == "completed" else None,
        "failure": "made up by the lab" if status == "failed" else None,
    }
    return run, [turn]
