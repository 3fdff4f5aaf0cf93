"""Runs: accepting, continuing, listing and counting them (spec 2.4, 4.2, 4.3)."""

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Final

import sqlalchemy as sa

from service import ids
from service.clock import Micros, rfc3339
from service.errors import ServiceError
from service.reference import MADE_BRANCHES, Reference, default_branch, is_made_for
from service.store.rows import exists, optional_filter, record_of, records_of, update
from service.store.schema import organizations, runs, turns

FINAL: Final = ("completed", "failed")
OPEN: Final = ("queued", "working")
"""The statuses of active runs, listed because an index cannot serve the condition "not final"."""
EXACT_BELOW: Final = 10_000
"""Counts below this are exact; larger ones may be a few seconds old."""
_KEPT_S_PER_RUN: Final = 5e-6
"""Counting takes about 0.1 µs per run, so it costs at most a fiftieth of the time."""
_MAX_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class Run:
    """A run (spec 2.4)."""

    id: str
    organization_id: str
    agent: str
    status: str
    branch: str
    platform: str
    path: str
    url: str
    turn: int
    created_at: Micros
    updated_at: Micros
    head_ref: str | None = None
    """A ref to check out instead of the branch, such as `refs/pull/7/head`; then nothing is pushed."""
    head_sha: str | None = None
    """The only commit of `head_ref` that may be checked out."""
    is_restricted: bool | None = None
    """Whether its agent runs without secrets and without network access."""

    @property
    def body(self) -> dict[str, object]:
        """The run as the API shows it (spec 2.4)."""
        repository = Reference(self.platform, self.path).body
        body = {"run_id": self.id, "status": self.status, "branch_name": self.branch, "repository": repository}
        return {**body, "created_at": rfc3339(self.created_at), "updated_at": rfc3339(self.updated_at)}


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A caller's request: a first turn or a further one."""

    organization_id: str
    agent: str
    platform: str
    path: str
    url: str
    branch: str | None
    instructions: str
    inputs: dict[str, object] = field(default_factory=dict)
    metadata: dict[str, object] | None = None
    trace_parent: str | None = None
    """The caller's span (W3C traceparent), which the turn continues."""
    caller: str | None = None
    head_ref: str | None = None
    head_sha: str | None = None
    is_restricted: bool | None = None
    from_turn: int | None = None
    """The turn whose unpushed change a further turn starts from."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which runs to list; a filter of None is not applied."""

    organization_id: str | None
    """The organization; None only for the operator."""
    status: str | None = None
    platform: str | None = None
    path: str | None = None
    date_from: int | None = None
    date_to: int | None = None
    """The end of the period in microseconds; both ends are inclusive (spec 4.2)."""


class InactiveOrganizationError(ServiceError):
    """The organization may not have runs or repositories."""

    def __init__(self, organization_id: str) -> None:
        super().__init__(f"the organization {organization_id} is not active, or was deleted")


def has_more_active(connection: sa.Connection, organization_id: str, limit: int) -> bool:
    active = (runs.c.organization_id == organization_id, runs.c.status.in_(OPEN))
    return connection.execute(sa.select(runs.c.id).where(*active).offset(limit).limit(1)).first() is not None


def accept(connection: sa.Connection, request: TurnRequest, now: Micros) -> Run:
    """Store a new run with its first turn, which will be executed (`InactiveOrganizationError`: it may have none)."""
    # The lock makes `created_at` increase strictly in commit order, so that a page never misses a run accepted in the
    # same microsecond, or a moment earlier by another process.
    _hold_organization(connection, request.organization_id)
    latest = sa.select(sa.func.max(runs.c.created_at)).where(runs.c.organization_id == request.organization_id)
    created_at = max(now, (connection.scalar(latest) or 0) + 1)
    run_id = f"run_{ids.ulid(created_at)}"
    shared = {field.name: getattr(request, field.name) for field in fields(Run) if hasattr(request, field.name)}
    shared |= {"branch": request.branch or default_branch(request.instructions, run_id)}
    run = Run(id=run_id, status="queued", turn=1, created_at=created_at, updated_at=created_at, **shared)
    more = {"path_key": run.path.lower(), "metadata": request.metadata}
    connection.execute(sa.insert(runs).values(asdict(run) | more))
    _add_turn(connection, run, request, created_at)
    return run


def resume(connection: sa.Connection, run: Run, request: TurnRequest, now: Micros) -> Run | None:
    """Give a finished run its next turn as `accept` does; None if another request was first, and it is active."""
    _hold_organization(connection, run.organization_id)
    # The repository's address may have changed since the last turn.
    values = {"status": "queued", "turn": runs.c.turn + 1, "updated_at": _later(now), "url": request.url}
    values |= {} if request.metadata is None else {"metadata": request.metadata}
    has_ended = (runs.c.id == run.id, runs.c.status.in_(FINAL), runs.c.turn == run.turn)
    if not update(connection, runs, *has_ended, **values):
        return None
    resumed = by_id(connection, run.id)
    if resumed is not None:
        _add_turn(connection, resumed, request, now)
    return resumed


def on_own_branches(connection: sa.Connection, organization_id: str, since: Micros, before: Micros) -> list[Run]:
    """Return an organization's inactive runs on generated branches that ended since `since` and before `before`."""
    is_active = sa.case((runs.c.status.in_(FINAL), 0), else_=1)
    latest = sa.func.max(runs.c.updated_at)
    of_branch = (
        sa.select(sa.func.min(runs.c.id))
        .where(runs.c.organization_id == organization_id, runs.c.branch.startswith(MADE_BRANCHES, autoescape=True))
        .group_by(runs.c.url, runs.c.branch)
        .having(latest >= since, latest < before, sa.func.max(is_active) == 0)
    )
    oldest = records_of(connection, Run, runs, runs.c.id.in_(of_branch), order=[runs.c.id])
    return [run for run in oldest if is_made_for(run.branch, run.id)]


def is_worked_on(connection: sa.Connection, url: str, branch: str) -> bool:
    active = sa.select(turns.c.run_id).where(turns.c.status.in_(OPEN))
    conditions = (runs.c.url == url, runs.c.branch == branch, runs.c.id.in_(active))
    return exists(connection, runs, *conditions)


def commits_on(connection: sa.Connection, run: Run) -> frozenset[str]:
    """Return the commits that runs of the same organization pushed to a run's branch."""
    same = (runs.c.organization_id == run.organization_id, runs.c.path_key == run.path.lower())
    query = sa.select(turns.c.commit_sha).join(runs).where(*same, runs.c.url == run.url, runs.c.branch == run.branch)
    return frozenset(connection.scalars(query.where(turns.c.commit_sha.is_not(None))))


def _hold_organization(connection: sa.Connection, organization_id: str) -> None:
    query = sa.select(organizations.c.active).where(organizations.c.id == organization_id)
    if not connection.scalar(query.with_for_update(key_share=True)):
        raise InactiveOrganizationError(organization_id)


def by_id(connection: sa.Connection, run_id: str) -> Run | None:
    if "\0" in run_id:
        # Ids come from URLs and may hold NUL, which PostgreSQL refuses as a parameter.
        return None
    return record_of(connection, Run, runs, id=run_id)


def by_ids(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, Run]:
    return {run.id: run for run in records_of(connection, Run, runs, runs.c.id.in_(run_ids))}


def page(connection: sa.Connection, filters: Filters, after: tuple[int, str] | None, size: int | None) -> list[Run]:
    """Return up to `size` runs, newest first; `after` is (created_at, id) of the previous page's last run."""
    matching = conditions(filters)
    if after is not None:
        matching.append(sa.tuple_(runs.c.created_at, runs.c.id) < sa.tuple_(*map(sa.literal, after)))
    return records_of(connection, Run, runs, *matching, order=[runs.c.created_at.desc(), runs.c.id.desc()], limit=size)


def active(connection: sa.Connection, filters: Filters, limit: int | None) -> list[Run]:
    """Return the newest active runs that match, at most `limit` of each status."""
    statuses = [status for status in OPEN if filters.status in {None, status}]
    return [run for status in statuses for run in page(connection, replace(filters, status=status), None, limit)]


def count(connection: sa.Connection, filters: Filters, *, only_active: bool = False) -> int:
    among = [runs.c.status.in_(OPEN)] if only_active else []
    query = sa.select(sa.func.count()).select_from(runs).where(*conditions(filters), *among)
    return connection.execute(query).scalar_one()


def counts_by_status(connection: sa.Connection) -> dict[str, int]:
    return dict(connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status)).all())


def touch(connection: sa.Connection, run_id: str, now: Micros, **values: object) -> None:
    """Set columns of a run and mark it as changed, so that clients reload it; `updated_at` never goes back."""
    update(connection, runs, runs.c.id == run_id, updated_at=_later(now), **values)


def _later(now: Micros) -> sa.ColumnElement[int]:
    return sa.case((runs.c.updated_at >= now, runs.c.updated_at + 1), else_=now)


def _add_turn(connection: sa.Connection, run: Run, request: TurnRequest, now: Micros) -> None:
    names = ("instructions", "inputs", "trace_parent", "caller", "from_turn")
    shared = {name: getattr(request, name) for name in names}
    key = {"run_id": run.id, "number": run.turn, "organization_id": run.organization_id}
    connection.execute(sa.insert(turns).values(key | shared | {"status": "queued", "attempt": 0, "accepted_at": now}))


def conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    return [
        optional_filter(runs.c.organization_id, filters.organization_id),
        optional_filter(runs.c.status, filters.status),
        optional_filter(runs.c.platform, filters.platform),
        optional_filter(runs.c.path_key, None if filters.path is None else filters.path.lower()),
        optional_filter(runs.c.created_at, filters.date_from, operator.ge),
        optional_filter(runs.c.created_at, filters.date_to, operator.le),
    ]


@dataclass(eq=False)
class RunCounter:
    """Counts the runs that match filters; a count of 10,000 or more is cached for 5 s per million."""

    _monotonic: Callable[[], float] = time.monotonic
    _counts: dict[tuple[str | int | None, ...], tuple[int, float]] = field(default_factory=dict)
    """Values of filters to their count and the monotonic second at which it expires."""

    def count(self, connection: sa.Connection, filters: Filters) -> int:
        # Filters compare in Python, where another thread may empty the dictionary under the lookup, which can crash.
        key = astuple(filters)
        number, good_until = self._counts.get(key, (0, 0.0))
        if self._monotonic() < good_until:
            return number
        number = count(connection, filters)
        if number >= EXACT_BELOW:
            if len(self._counts) >= _MAX_KEPT:
                self._counts.clear()
            self._counts[key] = number, self._monotonic() + number * _KEPT_S_PER_RUN
        return number
