"""`runwarden runs`: listing, showing, starting, waiting for and exporting runs."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.api.errors import ApiError, NotFoundError
from app.cli.context import Invocation
from app.cli.documents import COLUMNS, RunView, action_document, badge, views
from app.cli.exits import CommandFailedError, ErrorDetail, Exit, failed, of_api_error
from app.cli.options import CommandGroup, FactCommand, as_last_moment, as_moment, async_command
from app.cli.output import Format, Output
from app.cli.run_start import continue_run, start
from app.cli.run_wait import RunLookup, wait
from app.query import both, parse
from app.streams import NotPrintedError
from app.text import safe_block
from app.times import exact_ago, rfc3339, span
from storage.records import FINAL_STATUSES, Action, Coverage, CoverageGap, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine import Engine
    from app.sync.listing import Listed


@click.group(cls=CommandGroup)
def runs() -> None:
    """List, show, start, continue, wait for and export runs."""


for command in (start, continue_run, wait):
    runs.add_command(command)

DEFAULT_LIMIT: Final = 50
CACHED_HINT: Final = "Show earlier results with --cached."
VERSION_HINT: Final = "Check the base address: it ends with the version, as in https://api.example.com/v1."
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
    """Add the options that `run_filter` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def run_filter(
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
        CommandFailedError: The time range is empty, or the query means nothing.
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
        raise failed("usage", "The time range ends before it begins.")
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
        # No label holds an address: the list would be empty without a reason.
        raise failed("usage", f"{name!r} is an address: write owner/repo, or gitlab:group/project.", field="repository")
    # A repository's label leaves GitHub's name out; with the name it means the same.
    return name.removeprefix("github:")


@runs.command("list", cls=FactCommand, short_help="List runs, newest first.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT_LIMIT, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def list_runs(invocation: Invocation, /, *, limit: int, everything: bool, cached: bool, **filters: Any) -> int:
    """List runs from the service, newest first, and cache them."""
    asked = run_filter(**filters)
    most = None if everything else limit
    async with invocation.engine(needs_token=not cached) as engine:
        shown, more = await _collect(engine, asked, most, cached=cached)
        now = engine.clock()
        coverage = await engine.cache.coverage()
    output = invocation.output
    _print(output, shown, more)
    if output.format is Format.TABLE:
        output.note(_remark(shown, most, more, coverage, now))
    return Exit.DONE


@runs.command("export", cls=FactCommand, short_help="Write every run that matches to a file.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Maximum number of runs. Default: all.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Into a file, all or nothing."
)
@async_command
async def export(
    invocation: Invocation, /, *, limit: int | None, cached: bool, out: Path | None, **filters: Any
) -> int:
    """Write every run that matches, as NDJSON unless --output says otherwise."""
    asked = run_filter(**filters)
    if invocation.format is Format.TABLE:
        invocation.format = Format.NDJSON
    async with invocation.engine(needs_token=not cached) as engine:
        shown, more = await _collect(engine, asked, limit, cached=cached)
    if out is None or str(out) == "-":
        _print(invocation.output, shown, more)
        return Exit.DONE
    with _replacing(out, invocation.output) as output:
        _print(output, shown, more)
    invocation.output.note(f"{len(shown)} runs written to {out}")
    return Exit.DONE


async def _collect(
    engine: "Engine", condition: RunFilter, limit: int | None, *, cached: bool
) -> tuple[tuple[RunView, ...], dict[str, object]]:
    if condition.stuck and not cached:
        raise failed("usage", "is:stuck is known to the cache only: add --cached.")
    cache, asked_at = engine.cache, engine.clock()
    coverage = await cache.coverage()
    if cached:
        runs, dropped = await cache.runs(condition, RunSort(), limit=limit), coverage.dropped
    else:
        listed = await _fetched(engine, condition, limit)
        runs, dropped, coverage = listed.runs, listed.dropped, await cache.coverage()
    shown = await views(engine, runs)
    as_of = (coverage.as_of or await _confirmed_at(engine, shown)) if cached else asked_at
    more = {"as_of": rfc3339(as_of), **_extent(coverage, as_of), "source": "cache" if cached else "live"}
    return shown, {**more, "dropped": dropped} if dropped else more


def _extent(coverage: Coverage, as_of: datetime | None) -> dict[str, object]:
    """How much of the history is held: `complete_since` only where nothing is missing from then until `as_of`."""
    is_current = as_of is not None and coverage.is_current(as_of)
    newest = coverage.ranges[0].end if coverage.ranges else None
    gaps = coverage.gaps if is_current else (CoverageGap(newest, None), *coverage.gaps)
    return {
        "complete_since": rfc3339(coverage.complete_since) if is_current else None,
        "complete": [{"from": rfc3339(each.start), "to": rfc3339(each.end)} for each in coverage.ranges if each.end],
        "missing": [{"from": rfc3339(each.after), "to": rfc3339(each.before)} for each in gaps],
    }


async def _fetched(engine: "Engine", condition: RunFilter, limit: int | None) -> "Listed":
    try:
        return await engine.listing.fetch(condition, limit=limit)
    except ApiError as error:
        # The list always exists, so 404 means that the address does not lead to the API.
        hint = VERSION_HINT if isinstance(error, NotFoundError) else CACHED_HINT
        raise CommandFailedError(of_api_error(error, hint=hint)) from error


async def _confirmed_at(engine: "Engine", shown: Sequence[RunView]) -> datetime | None:
    polled = [link.last_ok_at for link in await engine.cache.links() if link.subject == "runs" and link.last_ok_at]
    return max([*polled, *(view.detail.last_seen_at for view in shown if view.detail)], default=None)


def _print(output: Output, shown: Sequence[RunView], more: dict[str, object]) -> None:
    output.listing("runs", [view.document() for view in shown], shown, COLUMNS, more=more, empty="No run matches.")


def _remark(
    shown: Sequence[RunView], limit: int | None, more: dict[str, object], coverage: Coverage, now: datetime
) -> str:
    parts = []
    if limit is not None and len(shown) == limit:
        parts.append(f"The newest {limit}; --limit N or --all shows more.")
    if "dropped" in more:
        parts.append(f"Left out {more['dropped']} entries of the service's list: they have no usable run id.")
    if more["source"] == "cache":
        seen = more["as_of"]
        when = exact_ago(datetime.fromisoformat(seen), now) if isinstance(seen, str) else "never"
        since = "the beginning" if coverage.whole else rfc3339(coverage.complete_since) or "no known time"
        parts.append(f"From the cache, as of {when}; complete since {since}.")
    return " ".join(parts)


@contextmanager
def _replacing(path: Path, like: Output) -> Iterator[Output]:
    from app.atomic_file import replacing

    try:
        with replacing(path) as file:
            yield replace(like, stdout=file, width=None, colour=False)
    except OSError as error:
        raise failed("usage", f"{path} cannot be written: {error.strerror}.") from error
    except NotPrintedError as error:
        raise failed("usage", f"{path} cannot be written: {error.reason}.") from error


@runs.command("show", cls=FactCommand, short_help="Show everything known about one run.")
@click.argument("run_id")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def show(invocation: Invocation, *, run_id: str, cached: bool) -> int:
    """Show one run: its fields, its observed timeline, and the instructions sent from here.

    RUN_ID may be abbreviated, as long as it is unique.
    """
    async with invocation.engine(needs_token=not cached) as engine:
        view = await _view(engine, run_id, cached=cached)
        said = await engine.ledger.for_run(view.run.run_id)
    document = {
        "run": view.document(),
        "conversation": [_turn(action) for action in said],
        "as_of": rfc3339(view.detail.last_seen_at if view.detail else view.now - view.ahead),
        "source": "cache" if cached else "live",
    }
    output = invocation.output
    output.record(document, _pairs(view, for_people=output.format is Format.TABLE))
    _tell_story(output, view, said)
    return Exit.DONE


async def _view(engine: "Engine", run_id: str, *, cached: bool) -> RunView:
    lookup = RunLookup(engine)
    try:
        run = await lookup.cached(run_id) if cached else await lookup.current(run_id)
    except ApiError as error:
        raise CommandFailedError(of_api_error(error, hint=CACHED_HINT)) from error
    return (await views(engine, [run]))[0]


def _pairs(view: RunView, *, for_people: bool) -> list[tuple[str, str]]:
    run = view.run
    pairs = [
        ("run_id", run.run_id),
        ("status", badge(run.status) if for_people else run.status),
        ("repository", run.repository.label),
        ("branch_name", run.branch_name),
        ("created_at", rfc3339(run.created_at) or "unreadable"),
        ("updated_at", rfc3339(run.updated_at) or "unreadable"),
        ("took", view.took),
        ("state", view.presence + (", stuck" if view.stuck else "")),
    ]
    if view.detail:
        seen_at = view.detail.last_seen_at
        ago = exact_ago(seen_at + view.ahead, view.now)
        pairs.append(("last seen", ago) if for_people else ("last_seen_at", rfc3339(seen_at) or ""))
    if view.continues:
        pairs.append(("continues", view.continues))
    return pairs


def _turn(action: Action) -> dict[str, object]:
    return {**action_document(action), "instructions": json.loads(action.body_json).get("instructions")}


def _tell_story(output: Output, view: RunView, said: Sequence[Action]) -> None:
    if output.format is not Format.TABLE:
        return
    transitions = view.detail.transitions if view.detail else ()
    if transitions:
        output.text("")
        output.text("timeline, as observed")
    ends = [each.at for each in transitions[1:]] + [view.now]
    for each, end in zip(transitions, ends, strict=True):
        took = span((end - each.at).total_seconds(), pads_hours=False)
        lasted = "" if each.new in FINAL_STATUSES and end is view.now else f" for {took}"
        output.text(f"  {rfc3339(each.at)}  {badge(each.new)}{lasted}")
    if said:
        output.text("")
        output.text("conversation, as sent from here")
    for action in said:
        output.text(f"  {rfc3339(action.created_at)}  {action.kind}  {action.state}  {action.action_id}")
        for line in safe_block(json.loads(action.body_json).get("instructions") or ""):
            output.text(f"    {line}")
