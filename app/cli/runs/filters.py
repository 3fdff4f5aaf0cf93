"""The options that say which runs are wanted."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from app.cli.exits import failed
from app.cli.options import as_moment
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
    click.option("--to", "until", callback=as_moment, metavar="TIME", help="Created then or earlier."),
    click.option("--search", default="", metavar="WORDS", help="All words occur in run id, repository or branch."),
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
        CommandFailed: The time range is empty.
    """
    if since and until and since > until:
        raise failed("usage", "--from is later than --to: no run can be in between.")
    return RunFilter(
        statuses=_asked(statuses),
        not_statuses=_excluded(statuses),
        repositories=tuple(_label(name) for name in _asked(repositories)),
        not_repositories=tuple(_label(name) for name in _excluded(repositories)),
        branches=_asked(branches),
        not_branches=_excluded(branches),
        since=since,
        until=until,
        search=search.strip(),
        active=active,
    )


def _asked(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value for value in values if not value.startswith("!"))


def _excluded(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value[1:] for value in values if value.startswith("!"))


def _label(name: str) -> str:
    # A repository's label leaves GitHub's name out; whoever writes it means the same.
    return name.removeprefix("github:")
