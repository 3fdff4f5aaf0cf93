"""`runs list` and `runs export`: many runs at once."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.api.errors import ApiError, NotFoundError
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed, of_api_error
from app.cli.options import FactCommand
from app.cli.output import Format, Output
from app.cli.runs.filters import filter_options, wanted
from app.cli.runs.view import COLUMNS, RunView, views
from app.cli.times import age, rfc3339
from app.streams import NotPrintedError
from storage.records import Coverage, Run, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine import Engine

DEFAULT_LIMIT: Final = 50
CACHED_HINT: Final = "What was seen earlier is shown with --cached."
VERSION_HINT: Final = "Check the base address: it ends with the version, as in https://api.example.com/v1."


@click.command("list", cls=FactCommand, short_help="List runs, newest first.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT_LIMIT, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@click.option("--cached", is_flag=True, help="Only what was seen before; the network is not touched.")
@click.pass_obj
def list_runs(invocation: Invocation, /, *, limit: int, everything: bool, cached: bool, **filters: Any) -> int:
    """List runs, newest first: asks the service, and remembers what it says."""
    asked = wanted(**filters)
    return invocation.run(lambda: _list(invocation, asked, None if everything else limit, cached=cached))


@click.command("export", cls=FactCommand, short_help="Write every run that matches to a file.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=None, help="At most so many. Default: all.")
@click.option("--cached", is_flag=True, help="Only what was seen before; the network is not touched.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Into a file, all or nothing."
)
@click.pass_obj
def export(invocation: Invocation, /, *, limit: int | None, cached: bool, out: Path | None, **filters: Any) -> int:
    """Write every run that matches, as NDJSON unless --output says otherwise."""
    asked = wanted(**filters)
    if invocation.format is Format.TABLE:
        invocation.format = Format.NDJSON
    return invocation.run(lambda: _export(invocation, asked, limit, out, cached=cached))


async def _list(invocation: Invocation, asked: RunFilter, limit: int | None, *, cached: bool) -> int:
    async with invocation.engine(needs_token=not cached) as engine:
        shown, more = await _collect(engine, asked, limit, cached=cached)
        now = engine.clock()
        coverage = await engine.cache.coverage()
    output = invocation.output
    _print(output, shown, more)
    if output.format is Format.TABLE:
        output.note(_remark(shown, limit, more, coverage, now))
    return Exit.DONE


async def _export(
    invocation: Invocation, asked: RunFilter, limit: int | None, out: Path | None, *, cached: bool
) -> int:
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
    engine: "Engine", asked: RunFilter, limit: int | None, *, cached: bool
) -> tuple[tuple[RunView, ...], dict[str, object]]:
    if asked.stuck and not cached:
        raise failed("usage", "is:stuck is what was observed here, not the service's word: add --cached.")
    runs = await (_seen(engine, asked, limit) if cached else _fetched(engine, asked, limit))
    shown = await views(engine, runs)
    coverage = await engine.cache.coverage()
    more: dict[str, object] = {
        "as_of": rfc3339(await _confirmed_at(engine, shown) if cached else engine.clock()),
        "complete_since": rfc3339(coverage.complete_since),
        "source": "cache" if cached else "live",
    }
    return shown, more


async def _seen(engine: "Engine", asked: RunFilter, limit: int | None) -> tuple[Run, ...]:
    return await engine.cache.runs(asked, RunSort(), limit=limit)


async def _fetched(engine: "Engine", asked: RunFilter, limit: int | None) -> tuple[Run, ...]:
    try:
        return await engine.listing.fetch(asked, limit=limit)
    except ApiError as error:
        # The list itself is always there, empty or not: 404 means that the address does not lead to the API.
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
    if more["source"] == "cache":
        seen = more["as_of"]
        when = age(datetime.fromisoformat(seen), now) if isinstance(seen, str) else "never"
        since = "the beginning" if coverage.whole else rfc3339(coverage.complete_since) or "no known time"
        parts.append(f"From the cache, last confirmed {when}; complete since {since}.")
    return " ".join(parts)


@contextmanager
def _replacing(path: Path, like: Output) -> Iterator[Output]:
    # Written beside it and moved into place: a reader never finds half a file, a failure leaves the old one.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            partial.chmod(0o600)
            yield replace(like, stdout=file, width=None, colour=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise failed("usage", f"{path} cannot be written: {error.strerror}.") from error
    except NotPrintedError as error:
        raise failed("usage", f"{path} cannot be written: {error.reason}.") from error
    finally:
        partial.unlink(missing_ok=True)
