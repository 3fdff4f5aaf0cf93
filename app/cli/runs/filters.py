"""The options that choose runs by status, repository, branch, time and words."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from app.cli.exits import ErrorDetail, failed
from app.query import both, parse
from app.times import parse_period
from storage.records import FINAL_STATUSES, RunFilter

F = TypeVar("F", bound=Callable[..., Any])


def _as_written(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback that checks a time and keeps it as text: the clock it counts from is known only later."""
    try:
        if value is not None:
            parse_period(value, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error
    return value


_OPTIONS: Final = (
    click.option("--status", "statuses", multiple=True, metavar="STATUS", help="Repeatable; !failed means any other."),
    click.option(
        "-R",
        "--repository",
        "repositories",
        multiple=True,
        metavar="REPO",
        help="owner/repo or gitlab:group/project; * and ! work.",
    ),
    click.option("--branch", "branches", multiple=True, metavar="BRANCH", help="A branch; * and ! work."),
    click.option(
        "--from", "since", callback=_as_written, metavar="TIME", help="Created then or later: -2h, -7d, RFC 3339."
    ),
    click.option(
        "--to", "until", callback=_as_written, metavar="TIME", help="Created then or earlier; a date with its day."
    ),
    click.option(
        "--search",
        default="",
        metavar="QUERY",
        help="Words in run id, repository or branch, and conditions: status:failed repo:acme/* -branch:main since:7d.",
    ),
    click.option("--active", is_flag=True, help="Only runs that have not ended."),
)


def filter_options(function: F) -> F:
    """Add the options that `run_filter` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def run_filter(
    *,
    statuses: tuple[str, ...],
    repositories: tuple[str, ...],
    branches: tuple[str, ...],
    since: str | None,
    until: str | None,
    search: str,
    active: bool,
    now: datetime | None = None,
) -> RunFilter:
    """The filter that the options describe; times such as `-2h` count back from `now`. None: from this machine's now.

    Raises:
        CommandFailedError: The time range is empty, or the query means nothing.
    """
    now = now or datetime.now(UTC)
    options = RunFilter(
        statuses=_asked(statuses),
        not_statuses=_excluded(statuses),
        repositories=tuple(_label(name) for name in _asked(repositories)),
        not_repositories=tuple(_label(name) for name in _excluded(repositories)),
        branches=_asked(branches),
        not_branches=_excluded(branches),
        since=None if since is None else parse_period(since, now)[0],
        until=None if until is None else parse_period(until, now)[1],
        active=active,
    )
    asked = both(options, _queried(search, now))
    if asked.since and asked.until and asked.since > asked.until:
        raise failed("usage", "The time range ends before it begins.")
    if contradicted := set(asked.statuses) & set(asked.not_statuses):
        raise failed("usage", f"The status {min(contradicted)} is both asked for and excluded: keep one of the two.")
    if active and asked.statuses and set(asked.statuses) <= FINAL_STATUSES:
        raise failed(
            "usage", f"--active excludes the status {asked.statuses[0]}, which ends a run: keep one of the two."
        )
    return asked


def _queried(text: str, now: datetime) -> RunFilter:
    query = parse(text, now)
    if query.problems:
        problems: list[ErrorDetail] = [
            {"start": p.start, "end": p.end, "message": p.message, "cure": p.cure} for p in query.problems
        ]
        raise failed("usage", f"--search, {query.problems[0]}", problems=problems)
    return query.filter


def _asked(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value for value in values if not value.startswith("!"))


def _excluded(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value[1:] for value in values if value.startswith("!"))


def _label(name: str) -> str:
    if "://" in name:
        # No run's repository is named by an address: the list would be empty, without a reason.
        raise failed("usage", f"{name!r} is an address: write owner/repo, or gitlab:group/project.", field="repository")
    # Labels of GitHub repositories have no prefix.
    return name.removeprefix("github:")
