"""`runwarden runs sync`: fetching the history that is missing, in the foreground."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

import click

from app.api.errors import ApiError, RateLimitedError
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import FactCommand, async_command
from app.events import BackfillMoved, Event
from app.times import rfc3339, span
from storage.records import RunFilter

if TYPE_CHECKING:
    from app.engine import Engine
    from storage.records.backfill import BackfillProgress

BAR: Final = 24
"""Cells."""
WAIT_S: Final = 10.0
"""After a refusal that does not say how long to wait."""


@click.command("sync", cls=FactCommand, short_help="Fetch the history that is missing.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, max=36_500),
    metavar="N",
    help="So many days before the newest run. Default: as the configuration says (history.days, history.runs).",
)
@async_command
async def sync(invocation: Invocation, /, *, days: float | None) -> int:
    """Fetch the history that is missing, newest first; what is held already is not fetched again.

    It may be ended at any time: the next one, or a console, goes on from there.
    """
    async with invocation.engine(needs_token=True) as engine:
        try:
            with progress_bar(engine) as bar:
                await _fill(engine, days, bar)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error, hint="What was fetched before is kept.")) from error
        coverage = await engine.cache.coverage()
        done, held = engine.backfill.progress.done_runs, await engine.cache.count(RunFilter())
        dropped = engine.backfill.progress.dropped
    document: dict[str, object] = {
        "fetched": done,
        "held": held,
        "complete_since": rfc3339(coverage.complete_since),
        "whole": coverage.whole,
        "as_of": rfc3339(coverage.as_of),
        **({"dropped": dropped} if dropped else {}),
    }
    since = "the beginning" if coverage.whole else rfc3339(coverage.complete_since) or "no known time"
    facts = [("fetched", f"{done:,} runs"), ("held", f"{held:,} runs"), ("complete since", since)]
    if dropped:
        facts.append(("left out", f"{dropped:,} entries without a usable run id"))
    invocation.output.record(document, facts)
    return Exit.DONE


async def _fill(engine: "Engine", days: float | None, bar: "Bar") -> None:
    """Fill until nothing is missing; a rate limit is waited out."""
    begun = False
    while True:
        try:
            if not begun:
                await engine.runs.refresh()
                begun = True
            await engine.backfill.run(days=days, is_asked=True)
        except RateLimitedError as error:
            wait_s = WAIT_S if error.retry_after_s is None else error.retry_after_s
            bar.note(f"the service asks to wait; {span(wait_s, pads_hours=False)} left")
            await asyncio.sleep(wait_s)
        else:
            return


@contextmanager
def progress_bar(engine: "Engine", title: str = "") -> Iterator["Bar"]:
    """Show on stderr how far the engine's backfill is, after a title where its end is not known."""
    bar = Bar(sys.stderr, title)
    stop = engine.subscribe(bar.hear)
    try:
        yield bar
    finally:
        stop()
        bar.close()


class Bar:
    """One line on a terminal; into a file, or without a stream, nothing."""

    def __init__(self, stream: TextIO | None, title: str = "") -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._title = title
        self._is_drawn = False

    def hear(self, event: Event) -> None:
        """Show how far the backfill is."""
        if not isinstance(event, BackfillMoved) or event.progress.phase != "running":
            return
        if self._title:
            self.note(f"{self._title} · {line(replace(event.progress, estimated_runs=None, seconds_left=None))}")
        else:
            self.note(line(event.progress))

    def note(self, text: str) -> None:
        """Replace the line."""
        if self._stream is not None:
            self._is_drawn = True
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the line empty."""
        if self._is_drawn:
            self.note("")


def line(progress: "BackfillProgress") -> str:
    """The progress as one line: a bar where the end is known, the runs fetched, the time left."""
    parts = [f"{progress.done_runs:,} runs"]
    if progress.estimated_runs:
        share = min(1.0, progress.done_runs / progress.estimated_runs)
        filled = round(share * BAR)
        parts = [
            f"{'█' * filled}{'░' * (BAR - filled)} {share:4.0%}",
            f"{parts[0]} of about {progress.estimated_runs:,}",
        ]
    if progress.oldest is not None:
        parts.append(f"back to {progress.oldest:%Y-%m-%d %H:%M}")
    if progress.seconds_left is not None:
        parts.append(f"{span(progress.seconds_left, pads_hours=False)} left")
    return " · ".join(parts)
