"""Repositories that an organization configured by name (spec 4.4) or onboarded."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase

import sqlalchemy as sa

from service import ids
from service.agents.options import RepositorySetup
from service.clock import Micros
from service.rules import TriggerRule
from service.store.database import lock_subject
from service.store.rows import (
    delete,
    insert_new,
    optional_filter,
    record_of,
    records_by_owner,
    records_of,
    replace_rows,
    update,
)
from service.store.runs import InactiveOrganizationError
from service.store.schema import default_branches, organizations, repositories, schedules


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository whose clone address is known."""

    name: str
    platform: str
    path: str
    url: str
    """The address for git: a URL or an absolute path."""
    project_id: int | None = None
    webhook_configured: bool = False
    protected: tuple[str, ...] | None = None
    """Patterns of branches that no run may work on; None protects only the default branch."""
    triggers: tuple[TriggerRule, ...] = ()
    webhook_secret_env: str | None = None
    """The variable with its webhook's secret; None for the one that all repositories of the platform share."""
    setup: RepositorySetup | None = None


def is_protected(branch: str, default: str | None, patterns: tuple[str, ...] | None) -> bool:
    """Whether a branch matches one of the patterns; if `patterns` is None, whether it is the default branch."""
    if patterns is None:
        return branch == default
    return any(fnmatchcase(branch, pattern) for pattern in patterns)


def default_branch(connection: sa.Connection, url: str) -> str | None:
    """Return a repository's last known default branch; None if it was never looked up."""
    return connection.scalar(sa.select(default_branches.c.branch).where(default_branches.c.url == url))


def note_default_branch(connection: sa.Connection, url: str, branch: str) -> None:
    """Store a repository's default branch if its name is text: git allows any bytes, runs do not."""
    is_text = not any("\ud800" <= mark <= "\udfff" for mark in branch)
    if not is_text or default_branch(connection, url) == branch:
        return
    if not insert_new(connection, default_branches, {"url": url, "branch": branch}):
        update(connection, default_branches, default_branches.c.url == url, branch=branch)


def save(connection: sa.Connection, organization_id: str, repository: Repository, now: Micros) -> None:
    """Add a repository, or replace the one with its platform and path (`ValueError`: another one has the name)."""
    lock_subject(connection, "repositories", organization_id)
    owner = sa.select(organizations.c.id).where(organizations.c.id == organization_id)
    if connection.execute(owner.with_for_update(read=True, key_share=True)).first() is None:
        raise InactiveOrganizationError(organization_id)
    is_own = repositories.c.organization_id == organization_id
    same = sa.and_(is_own, *_at(repository.platform, repository.path))
    others = sa.select(repositories.c.path).where(is_own, repositories.c.name == repository.name, sa.not_(same))
    if (namesake := connection.scalar(others)) is not None:
        raise name_taken(repository.name, namesake)
    put_all(connection, [(organization_id, repository)], now)


def name_taken(name: str, path: str) -> ValueError:
    """Return the error that another repository, at a path, has the name."""
    return ValueError(f"the name {name!r} belongs to {path}; choose another name")


def put_all(connection: sa.Connection, configured: Sequence[tuple[str, Repository]], now: Micros) -> None:
    """Add or replace repositories, given with organization ids; no other transaction changes them, no name is taken."""
    rows = [
        asdict(repository)
        | {"id": f"repo_{ids.ulid(now)}", "organization_id": owner, "path_key": repository.path.lower()}
        for owner, repository in configured
    ]
    keys = [repositories.c.organization_id, repositories.c.platform, repositories.c.path_key]
    # An unchanged rule keeps its time, even a missed one; others are due from now on.
    owners = {owner for owner, _ in configured}
    before = all_schedules(connection, owners.pop() if len(owners) == 1 else None, is_locked=True)
    columns = {
        (old.organization_id, old.repository.platform, old.repository.path, old.rule): old.due_at for old in before
    }
    replace_rows(connection, repositories, rows, keys)
    due = []
    for (owner, repository), row in zip(configured, rows, strict=True):
        for index, rule in enumerate(repository.triggers):
            if rule.schedule is not None:
                at = columns.get((owner, repository.platform, repository.path, rule)) or rule.next_time(now)
                due.append({"repository_id": row["id"], "index": index, "due_at": at})
    if due:
        connection.execute(sa.insert(schedules), due)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A rule with a schedule, and when it is due next."""

    organization_id: str
    repository: Repository
    index: int
    """The position of the rule, from 0."""
    due_at: Micros

    @property
    def rule(self) -> TriggerRule:
        return self.repository.triggers[self.index]

    @property
    def next_times(self) -> list[int]:
        """Its next three times; the first may have passed, if no worker runs."""
        return [self.due_at, (second := self.rule.next_time(self.due_at)), self.rule.next_time(second)]


def all_schedules(
    connection: sa.Connection, organization_id: str | None, *also: sa.ColumnElement[bool], is_locked: bool = False
) -> list[Schedule]:
    """Return the schedules of an organization, or of all (None), next due first; `is_locked`: others wait for them."""
    columns = [repositories.c[field.name] for field in fields(Repository)]
    query = sa.select(repositories.c.organization_id, schedules.c.index, schedules.c.due_at, *columns)
    query = query.join(schedules, schedules.c.repository_id == repositories.c.id)
    query = query.where(optional_filter(repositories.c.organization_id, organization_id), *also)
    query = query.order_by(schedules.c.due_at)
    rows = connection.execute(query.with_for_update(of=schedules) if is_locked else query)
    return [Schedule(owner, Repository(*rest), index, due) for owner, index, due, *rest in rows]


def begin_due(connection: sa.Connection, key: str, now: Micros) -> Schedule | None:
    """Return a due schedule, which is due next at its first time after `now`; None: it is not due any longer."""
    repository_id, _, index = key.partition("/")
    conditions = (
        schedules.c.repository_id == repository_id,
        schedules.c.index == int(index),
        schedules.c.due_at <= now,
    )
    schedule = next(iter(all_schedules(connection, None, *conditions, is_locked=True)), None)
    if schedule is not None:
        update(connection, schedules, *conditions, due_at=schedule.rule.next_time(now))
    return schedule


def remove(connection: sa.Connection, organization_id: str, name: str) -> bool:
    """Remove the repository with a name, but not its runs; False if there is none."""
    return delete(connection, repositories, organization_id=organization_id, name=name) > 0


def of(connection: sa.Connection, organization_id: str) -> list[Repository]:
    by_name = [repositories.c.name]
    return records_of(connection, Repository, repositories, organization_id=organization_id, order=by_name)


def by_path(connection: sa.Connection, organization_id: str, platform: str, path: str) -> Repository | None:
    """Return the repository at a path, ignoring case as code hosts do."""
    return record_of(connection, Repository, repositories, *_at(platform, path), organization_id=organization_id)


def by_name(connection: sa.Connection, organization_id: str, text: str) -> Repository | None:
    """Return the repository configured under a name, otherwise one that is cloned from that URL."""
    has_name = repositories.c.name == text
    either = has_name | (repositories.c.url == text)
    order = [sa.desc(has_name)]
    return record_of(connection, Repository, repositories, either, organization_id=organization_id, order=order)


def everywhere(connection: sa.Connection, platform: str, path: str) -> list[tuple[str, Repository]]:
    """Return the repository at a path as each organization configured it, with that organization's id."""
    return records_by_owner(connection, Repository, repositories, *_at(platform, path))


def webhook_variables(connection: sa.Connection, platform: str | None = None) -> set[str]:
    """Return the environment variables that hold the secrets of webhooks."""
    query = sa.select(repositories.c.webhook_secret_env).where(optional_filter(repositories.c.platform, platform))
    return {name for name in connection.scalars(query.distinct()) if name}


def _at(platform: str, path: str) -> tuple[sa.ColumnElement[bool], ...]:
    return repositories.c.platform == platform, repositories.c.path_key == path.lower()
