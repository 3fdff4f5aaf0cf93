"""`runwarden runs list` and `runs export`: runs by any filter, printed as they come."""

import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from msgspec.structs import asdict

from app.api.errors import ApiError, NotFoundError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import WRONG_ADDRESS, CommandFailedError, Exit, command_error, of_api_error
from app.cli.options import COUNT, OUT_OPTION, FactCommand, async_command, completion_of, options_of, reading
from app.cli.output import Bar, Rows
from app.engine.text import closest, plural
from app.engine.times import exact_ago, parse_period, rfc3339
from app.runs.command_rows import CACHED_HINT, CHUNK, COLUMNS, EXPORTED, RunDocument, continued_from, run_documents
from storage.records import FINAL_STATUSES, KNOWN_STATUSES, Coverage, CoverageGap, Run, RunFilter, link_of

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.engine.files import ProfileFiles

F = TypeVar("F", bound=Callable[..., Any])


def _time(text: str) -> str:
    parse_period(text, datetime.now(UTC))
    return text  # The clock that relative times use is known only later.


def _label(text: str) -> str:
    if "://" in text:  # The list would be empty without an explanation.
        raise ValueError(f"{text!r} is an address: write owner/repo, or gitlab:group/project.")
    # Labels of GitHub repositories have no prefix.
    if text.startswith(("github:", "!github:")):
        return text.replace("github:", "", 1)
    return text


def _limit(flag: str, name: str, text: str) -> Callable[[F], F]:
    return click.option(flag, name, callback=reading(_time), metavar="TIME", help=text)


FILTERS: Final = options_of(
    click.option(
        "--status",
        "statuses",
        multiple=True,
        metavar="STATUS",
        shell_complete=completion_of("statuses"),
        help="Repeatable; !failed means any other.",
    ),
    click.option(
        "-R",
        "--repository",
        "repositories",
        multiple=True,
        callback=reading(_label),
        metavar="REPO",
        shell_complete=completion_of("repositories"),
        help="owner/repo or gitlab:group/project; * matches anything, ! inverts.",
    ),
    click.option("--branch", "branches", multiple=True, metavar="BRANCH", help="* matches anything, ! inverts."),
    _limit("--from", "since", "Created at or after this time: -2h, -7d, RFC 3339."),
    _limit("--to", "until", "Created at or before this time; a date includes its day."),
    click.option(
        "--search",
        default="",
        metavar="QUERY",
        help="Words, and conditions: status:failed repo:acme/* -branch:main agent:claude finding:blocker since:7d.",
    ),
    click.option("--active", is_flag=True, help="Only runs that have not ended."),
)


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
    lists: dict[str, Any] = {}
    for name, values in (("statuses", statuses), ("repositories", repositories), ("branches", branches)):
        lists[name] = tuple(value for value in values if not value.startswith("!"))
        lists[f"not_{name}"] = tuple(value[1:] for value in values if value.startswith("!"))
    earliest = None if since is None else parse_period(since, now)[0]
    latest = None if until is None else parse_period(until, now)[1]
    condition = RunFilter(**lists, since=earliest, until=latest, active=active)
    if search:
        from app.runs.query import combine_filters, parse

        query = parse(search, now)
        if query.problems:
            raise command_error("usage", f"--search, {query.problems[0]}", problems=[*map(asdict, query.problems)])
        condition = combine_filters(condition, query.filter)
    if condition.since and condition.until and condition.since > condition.until:
        raise command_error("usage", "The time range ends before it begins.")
    if contradicted := set(condition.statuses) & set(condition.not_statuses):
        problem = f"The status {min(contradicted)} is both asked for and excluded: keep one of the two."
        raise command_error("usage", problem)
    if active and condition.statuses and set(condition.statuses) <= FINAL_STATUSES:
        problem = f"--active excludes the status {condition.statuses[0]}, which ends a run: keep one of the two."
        raise command_error("usage", problem)
    return condition


def _unknown(status: str, known: Collection[str]) -> CommandFailedError:
    from app.runs.query import unknown_status

    return command_error("usage", " ".join(unknown_status(status, known)))


DEFAULT_LIMIT: Final = 50


@click.command("list", cls=FactCommand)
@FILTERS
@click.option("--limit", type=COUNT, default=None, help=f"Maximum number of runs.  [default: {DEFAULT_LIMIT}]")
@click.option("--all", "everything", is_flag=True, help="No maximum.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def list_runs(
    invocation: Invocation, /, *, limit: int | None, everything: bool, cached: bool, **filters: Any
) -> int:
    """List runs from the service, newest first, and cache them."""
    if everything and limit is not None:
        raise command_error("usage", "--limit and --all contradict each other: use one of them.")
    limit_or_all = None if everything else limit or DEFAULT_LIMIT
    async with _open_list(invocation, filters, limit_or_all, is_cached=cached) as listing:
        with invocation.exporting(None, "runs", COLUMNS) as rows:
            await listing.print(rows)
        more = await listing.more()
        remark = await listing.remark(rows.count)
    rows.end(more, empty="No run matches.")
    if invocation.output.format is not Format.JSON:
        invocation.output.note(remark)
    return Exit.DONE


@click.command("export", cls=FactCommand)
@FILTERS
@click.option("--limit", type=COUNT, default=None, help="Maximum number of runs. Default: all.")
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@OUT_OPTION
@async_command
async def export(
    invocation: Invocation, /, *, limit: int | None, cached: bool, out: Path | None, **filters: Any
) -> int:
    """Write every run that matches, as NDJSON unless --output says otherwise."""
    invocation.asked_format = invocation.asked_format or Format.NDJSON
    async with _open_list(invocation, filters, limit, is_cached=cached) as listing:
        with invocation.exporting(out, "runs", EXPORTED) as rows:
            await listing.print(rows)
            rows.end(await listing.more())
        remark = listing.left_out()
    if invocation.output.format is not Format.JSON:
        invocation.output.note(remark)
    return Exit.DONE


@asynccontextmanager
async def _open_list(
    invocation: Invocation, filters: dict[str, Any], limit: int | None, *, is_cached: bool
) -> "AsyncIterator[_RunList]":
    run_filter(**filters)  # Mistakes are reported before anything is opened.
    async with invocation.files() if is_cached else invocation.engine(needs_token=True, is_live=True) as engine:
        # Relative times use the service's clock, as far as its offset is known.
        condition = run_filter(**filters, now=engine.clock() + (await engine.cache.budget()).clock_ahead)
        yield _RunList(engine, condition, limit, is_cached)


@dataclass(slots=True)
class _RunList:
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
        condition = self.condition
        cache = self.engine.cache
        only_cached = {
            "is:stuck": condition.stuck,
            "is:followed": condition.followed,
            "agent:": condition.agents or condition.not_agents,
            "finding:": condition.findings or condition.not_findings,
        }
        if not self.is_cached and (term := next((term for term, is_set in only_cached.items() if is_set), "")):
            raise command_error("usage", f"{term} is only known to the cache: add --cached.")
        statuses = KNOWN_STATUSES | set(await cache.known_statuses())
        for status in condition.not_statuses:
            if status not in statuses and closest(status, statuses):
                raise _unknown(status, statuses)
        self.asked_at = self.engine.clock()
        # Read at the first row, because other processes continue to fill the cache.
        self.coverage = await self.engine.cache.coverage()
        continued = await continued_from(self.engine)
        # On a terminal, the rows themselves show the progress.
        with closing(Bar(sys.stderr if rows.output.width is None and not self.is_cached else None)) as bar:
            async for runs in self._read_pages() if self.is_cached else self._fetch_pages():
                documents = await run_documents(self.engine, runs, continued)
                if times := [view.detail.last_seen_at for view in documents if view.detail]:
                    confirmed_from = self.asked_at - self.engine.settings.history.confirmed_for
                    self.long_ago += sum(time < confirmed_from for time in times)
                    self.seen_at = min(*(self.seen_at or times), *times), max(*(self.seen_at or times), *times)
                rows.add((view.document() for view in documents), documents)
                rows.output.flush()
                bar.note(plural(rows.count, "run"))
        # The service may use statuses that were never seen here: a status is called unknown only if no run has it.
        for status in condition.statuses:
            if not rows.count and status not in statuses:
                raise _unknown(status, statuses)

    async def _read_pages(self) -> AsyncIterator[Sequence[Run]]:
        self.dropped = self.coverage.dropped
        left = self.limit
        last = None
        while left != 0:
            if not (runs := await self.engine.cache.runs(self.condition, min(CHUNK, left or CHUNK), last)):
                return
            yield runs
            last = runs[-1]
            left = None if left is None else left - len(runs)

    async def _fetch_pages(self) -> AsyncIterator[Sequence[Run]]:
        try:
            async for page in cast("Engine", self.engine).listing.pages(self.condition, limit=self.limit):
                self.dropped += page.dropped
                yield page.runs
        except ApiError as error:
            raise of_api_error(
                error, hint=WRONG_ADDRESS if isinstance(error, NotFoundError) else CACHED_HINT
            ) from error
        self.coverage = await self.engine.cache.coverage()

    async def _as_of(self) -> datetime | None:
        if not self.is_cached or self.coverage.as_of is not None:
            return self.coverage.as_of if self.is_cached else self.asked_at
        link = link_of(await self.engine.cache.links(), "runs")
        polled = [link.last_ok_at] if link is not None and link.last_ok_at else []
        return max([*polled, *(self.seen_at or ())], default=None)

    async def more(self) -> dict[str, object]:
        as_of = await self._as_of()
        coverage = self.coverage
        # `complete_since` holds only if nothing is missing from then until `as_of`.
        is_current = as_of is not None and coverage.is_current(as_of)
        newest = coverage.ranges[0].end if coverage.ranges else None
        gaps = coverage.gaps if is_current else (CoverageGap(newest, None), *coverage.gaps)
        return {
            "as_of": rfc3339(as_of),
            "complete_since": rfc3339(coverage.complete_since) if is_current else None,
            "complete": [
                {"from": rfc3339(held.start), "to": rfc3339(held.end)} for held in coverage.ranges if held.end
            ],
            "missing": [{"from": rfc3339(gap.after), "to": rfc3339(gap.before)} for gap in gaps],
            "confirmed_since": rfc3339(self.seen_at[0]) if self.seen_at else None,
            "source": "cache" if self.is_cached else "live",
            **({"dropped": self.dropped} if self.dropped else {}),
        }

    def left_out(self) -> str:
        remark = f"Left out {self.dropped} entries of the service's list: they have no usable run id."
        return remark if self.dropped else ""

    async def remark(self, count: int) -> str:
        parts = []
        if self.limit is not None and count == self.limit:
            parts.append(f"The newest {self.limit}; --limit N or --all shows more.")
        parts += [self.left_out()] if self.dropped else []
        if not self.is_cached:
            return " ".join(parts)
        if (undecided := self.condition.undecided) and (unknown := await self.engine.cache.count(undecided)):
            parts.append(f"Whether {plural(unknown, 'other run')} match is not known.")
        as_of = await self._as_of()
        since = rfc3339(self.coverage.complete_since)
        extent = f"complete since {since}" if since else "runs may be missing"
        if self.coverage.is_disordered:
            extent = "this service's list is out of order: completeness unknown"
        elif self.coverage.whole:
            extent = "complete since the beginning"
        fetched = "Nothing was fetched yet"
        if as_of:
            fetched = f"From the cache, as of {exact_ago(as_of, self.asked_at)}"
        parts.append(f"{fetched}; {extent}.")
        if self.long_ago and self.seen_at:
            are = "1 of them was" if self.long_ago == 1 else f"{self.long_ago:,} of them were"
            days = f"{self.engine.settings.history.confirmed_for / timedelta(days=1):g} days"
            parts.append(f"{are} last confirmed more than {days} ago, the oldest on {self.seen_at[0]:%Y-%m-%d}.")
        if not count and not self.coverage.whole:
            cached = await self.engine.cache.count(RunFilter())
            parts.append(f"Searched only the {cached:,} cached runs. Leave out --cached to ask the service.")
        return " ".join(parts)
