"""`runwarden runs list` and `runs export`: runs by any filter, printed as they come."""

import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from app.api.errors import ApiError, NotFoundError
from app.cli.context import Invocation
from app.cli.documents import CHUNK, COLUMNS, RunDocument, continued_from, views
from app.cli.exits import CommandFailedError, ErrorDetail, Exit, failed, of_api_error
from app.cli.options import COUNT, OUT_OPTION, FactCommand, async_command, closest_word
from app.cli.output import Format, Rows
from app.cli.progress import Bar
from app.query import both, parse, unknown_status
from app.text import plural
from app.times import exact_ago, parse_period, rfc3339
from storage.records import ACTIVE_STATUSES, FINAL_STATUSES, Coverage, CoverageGap, Run, RunFilter

if TYPE_CHECKING:
    from app.engine import Engine
    from app.files import ProfileFiles

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


DEFAULT_LIMIT: Final = 50
CACHED_HINT: Final = "Show earlier results with --cached."
VERSION_HINT: Final = "Check the base address: it ends with the version, as in https://api.example.com/v1."


async def _by_service_clock(engine: "Engine | ProfileFiles", filters: dict[str, Any]) -> RunFilter:
    """The filter, whose relative times count by the service's clock, as far as its offset is known."""
    return run_filter(**filters, now=engine.clock() + await engine.cache.run_clock_ahead())


@click.command("list", cls=FactCommand)
@filter_options
@click.option("--limit", type=COUNT, default=None, help=f"At most so many.  [default: {DEFAULT_LIMIT}]")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def list_runs(
    invocation: Invocation, /, *, limit: int | None, everything: bool, cached: bool, **filters: Any
) -> int:
    """List runs from the service, newest first, and cache them."""
    run_filter(**filters)  # Mistakes are reported before anything is opened.
    if everything and limit is not None:
        raise failed("usage", "--limit and --all contradict each other: keep one of them.")
    most = None if everything else limit or DEFAULT_LIMIT
    rows = invocation.begin_rows("runs", COLUMNS)
    async with invocation.files() if cached else invocation.engine(needs_token=True) as engine:
        listing = _RunList(engine, await _by_service_clock(engine, filters), most, is_cached=cached)
        await listing.print(rows)
        more, remark = await listing.more(), await listing.remark(rows.count)
    rows.end(more, empty="No run matches.")
    if invocation.format is Format.TABLE:
        invocation.output.note(remark)
    return Exit.DONE


@click.command("export", cls=FactCommand)
@filter_options
@click.option("--limit", type=COUNT, default=None, help="Maximum number of runs. Default: all.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@OUT_OPTION
@async_command
async def export(
    invocation: Invocation, /, *, limit: int | None, cached: bool, out: Path | None, **filters: Any
) -> int:
    """Write every run that matches, as NDJSON unless --output says otherwise."""
    run_filter(**filters)  # Mistakes are reported before anything is opened.
    invocation.asked_format = invocation.asked_format or Format.NDJSON
    async with invocation.files() if cached else invocation.engine(needs_token=True) as engine:
        listing = _RunList(engine, await _by_service_clock(engine, filters), limit, is_cached=cached)
        with invocation.exporting(out, "runs", COLUMNS) as rows:
            await listing.print(rows)
            rows.end(await listing.more())
    return Exit.DONE


@dataclass(slots=True)
class _RunList:
    """One listing, from the service or from the cache, with its remarks."""

    engine: "Engine | ProfileFiles"
    """An engine, unless the cache alone is asked."""
    condition: RunFilter
    limit: int | None
    is_cached: bool
    dropped: int = 0
    asked_at: datetime = field(init=False)
    coverage: Coverage = field(default_factory=Coverage)
    seen_at: tuple[datetime, datetime] | None = None
    """The earliest and the latest time at which the service showed a run of this list."""
    long_ago: int = 0
    """The number of its runs that were not confirmed for too long to count as live."""

    async def print(self, rows: Rows[RunDocument]) -> None:
        """Print the runs, page by page.

        Raises:
            CommandFailedError: A request failed, or the cache alone can answer.
        """
        if self.condition.stuck and not self.is_cached:
            raise failed("usage", "is:stuck is known to the cache only: add --cached.")
        known = FINAL_STATUSES | set(ACTIVE_STATUSES) | set(await self.engine.cache.known_statuses())
        for status in self.condition.not_statuses:
            if status not in known and closest_word(status, known):
                raise _unknown_status(status, known)
        self.asked_at = self.engine.clock()
        # Read at the first row, because other processes go on filling the cache.
        self.coverage = await self.engine.cache.coverage()
        continued = await continued_from(self.engine)
        # Rows on a terminal are progress enough.
        with closing(Bar(sys.stderr if rows.output.width is None and not self.is_cached else None)) as bar:
            async for runs in self._held() if self.is_cached else self._fetched():
                shown = await views(self.engine, runs, continued)
                self._note_times(shown)
                rows.add((view.document() for view in shown), shown)
                rows.flush()
                bar.note(plural(rows.count, "run"))
        # The service may use statuses that were never seen here: a status is called unknown only if no run has it.
        unknown = [] if rows.count else [status for status in self.condition.statuses if status not in known]
        if unknown:
            raise _unknown_status(unknown[0], known)

    async def _held(self) -> AsyncIterator[Sequence[Run]]:
        self.dropped = self.coverage.dropped
        left, last = self.limit, None
        while left != 0:
            runs = await self.engine.cache.runs(self.condition, min(CHUNK, left or CHUNK), last)
            if not runs:
                return
            yield runs
            last = runs[-1]
            left = None if left is None else left - len(runs)

    async def _fetched(self) -> AsyncIterator[Sequence[Run]]:
        try:
            async for page in cast("Engine", self.engine).listing.pages(self.condition, limit=self.limit):
                self.dropped += page.dropped
                yield page.runs
        except ApiError as error:
            # The list always exists, so 404 means that the address does not lead to the API.
            hint = VERSION_HINT if isinstance(error, NotFoundError) else CACHED_HINT
            raise CommandFailedError(of_api_error(error, hint=hint)) from error
        self.coverage = await self.engine.cache.coverage()

    def _note_times(self, shown: Sequence[RunDocument]) -> None:
        times = [view.detail.last_seen_at for view in shown if view.detail]
        self.long_ago += sum(time < self.asked_at - self._confirmed_for for time in times)
        if times:
            self.seen_at = min(*(self.seen_at or times), *times), max(*(self.seen_at or times), *times)

    @property
    def _confirmed_for(self) -> timedelta:
        return self.engine.settings.history.confirmed_for

    async def _as_of(self) -> datetime | None:
        if not self.is_cached or self.coverage.as_of is not None:
            return self.coverage.as_of if self.is_cached else self.asked_at
        links = await self.engine.cache.links()
        polled = [link.last_ok_at for link in links if link.subject == "runs" and link.last_ok_at]
        return max([*polled, *(self.seen_at or ())], default=None)

    async def more(self) -> dict[str, object]:
        """The document's keys besides the runs."""
        as_of = await self._as_of()
        more: dict[str, object] = {
            "as_of": rfc3339(as_of),
            **_extent(self.coverage, as_of),
            "confirmed_since": rfc3339(self.seen_at[0]) if self.seen_at else None,
            "source": "cache" if self.is_cached else "live",
        }
        return {**more, "dropped": self.dropped} if self.dropped else more

    async def remark(self, count: int) -> str:
        """The remark below the table."""
        parts = []
        if self.limit is not None and count == self.limit:
            parts.append(f"The newest {self.limit}; --limit N or --all shows more.")
        if self.dropped:
            parts.append(f"Left out {self.dropped} entries of the service's list: they have no usable run id.")
        if self.is_cached:
            parts.append(f"From the cache, as of {await self._age()}; {self._extent_text()}.")
        if self.is_cached and self.long_ago and self.seen_at:
            are = "1 of them was" if self.long_ago == 1 else f"{self.long_ago:,} of them were"
            days = f"{self._confirmed_for / timedelta(days=1):g} days"
            parts.append(f"{are} last confirmed more than {days} ago, the oldest on {self.seen_at[0]:%Y-%m-%d}.")
        if self.is_cached and not count and not self.coverage.whole:
            held = await self.engine.cache.count(RunFilter())
            parts.append(f"Looked only among the {held:,} runs that are here. Leave out --cached to ask the service.")
        return " ".join(parts)

    async def _age(self) -> str:
        as_of = await self._as_of()
        return exact_ago(as_of, self.asked_at) if as_of else "never"

    def _extent_text(self) -> str:
        if self.coverage.is_disordered:
            return "this service's list is out of order: completeness unknown"
        if self.coverage.whole:
            return "complete since the beginning"
        since = rfc3339(self.coverage.complete_since)
        return f"complete since {since}" if since else "runs may be missing"


def _unknown_status(status: str, known: Collection[str]) -> CommandFailedError:
    return failed("usage", " ".join(unknown_status(status, known)))


def _extent(coverage: Coverage, as_of: datetime | None) -> dict[str, object]:
    """How much of the history is held: `complete_since` only if nothing is missing from then until `as_of`."""
    is_current = as_of is not None and coverage.is_current(as_of)
    newest = coverage.ranges[0].end if coverage.ranges else None
    gaps = coverage.gaps if is_current else (CoverageGap(newest, None), *coverage.gaps)
    return {
        "complete_since": rfc3339(coverage.complete_since) if is_current else None,
        "complete": [{"from": rfc3339(each.start), "to": rfc3339(each.end)} for each in coverage.ranges if each.end],
        "missing": [{"from": rfc3339(each.after), "to": rfc3339(each.before)} for each in gaps],
    }
