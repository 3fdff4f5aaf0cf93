"""The options that say which runs are wanted."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from app.cli.exits import ErrorDetail, failed
from app.cli.options import as_last_moment, as_moment
from app.query import both, parse
from storage.records import RunFilter

F = TypeVar("F", bound=Callable[..., Any])

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
        "--from", "since", callback=as_moment, metavar="TIME", help="Created then or later: -2h, -7d, RFC 3339."
    ),
    click.option(
        "--to", "until", callback=as_last_moment, metavar="TIME", help="Created then or earlier; a date with its day."
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
    """Adds the options that `wanted` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def wanted(
    *,
    statuses: tuple[str, ...],
    repositories: tuple[str, ...],
    branches: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    search: str,
    active: bool,
) -> RunFilter:
    """The filter that the options describe.

    Raises:
        CommandFailed: The time range is empty, or the query means nothing.
    """
    options = RunFilter(
        statuses=_asked(statuses),
        not_statuses=_excluded(statuses),
        repositories=tuple(_label(name) for name in _asked(repositories)),
        not_repositories=tuple(_label(name) for name in _excluded(repositories)),
        branches=_asked(branches),
        not_branches=_excluded(branches),
        since=since,
        until=until,
        active=active,
    )
    asked = both(options, _queried(search))
    if asked.since and asked.until and asked.since > asked.until:
        raise failed("usage", "The time range ends before it begins: no run can be in between.")
    return asked


def _queried(text: str) -> RunFilter:
    query = parse(text, datetime.now(UTC))
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
        # No label holds one: the list would be empty, and look as if there were no runs.
        raise failed("usage", f"{name!r} is an address: write owner/repo, or gitlab:group/project.", field="repository")
    # A repository's label leaves GitHub's name out; whoever writes it means the same.
    return name.removeprefix("github:")
