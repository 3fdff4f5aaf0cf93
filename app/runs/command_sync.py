"""`runwarden runs sync`: fetching the history that is missing, in the foreground."""

import asyncio
from typing import Final

import click

from app.api.errors import ApiError, RateLimitedError
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import FactCommand, async_command
from app.cli.progress import progress_bar
from app.engine.text import plural
from app.engine.times import rfc3339, span
from storage.records import RunFilter

WAIT_S: Final = 10.0
"""Seconds to wait after a rate limit that names no time."""


@click.command("sync", cls=FactCommand)
@click.option(
    "--days",
    type=click.FloatRange(min=0, max=36_500),
    metavar="N",
    help="Days before the newest run. Default: history.days and history.runs of the configuration.",
)
@async_command
async def sync(invocation: Invocation, /, *, days: float | None) -> int:
    """Fetch the missing history, newest first; cached runs are not fetched again.

    It may be stopped at any time: the next one, or a console, continues from there.
    """
    async with invocation.engine(needs_token=True) as engine:
        try:
            with progress_bar(engine) as bar:
                is_begun = False
                while True:
                    try:
                        if not is_begun:
                            await engine.runs.refresh()
                            is_begun = True
                        await engine.backfill.run(days=days, is_asked=True)
                        break
                    except RateLimitedError as error:
                        wait_s = WAIT_S if error.retry_after_s is None else error.retry_after_s
                        bar.note(f"waiting as the service asked; {span(wait_s, pads_hours=False)} left")
                        await asyncio.sleep(wait_s)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error, hint="The runs fetched so far are kept.")) from error
        coverage = await engine.cache.coverage()
        done = engine.backfill.progress.done_runs
        held = await engine.cache.count(RunFilter())
        dropped = engine.backfill.progress.dropped
    # Without a walk from the newest run, newer ones may be missing.
    complete_since = coverage.complete_since if coverage.as_of else None
    document: dict[str, object] = {
        "fetched": done,
        "held": held,
        "complete_since": rfc3339(complete_since),
        "whole": coverage.whole and complete_since is not None,
        "as_of": rfc3339(coverage.as_of),
        **({"dropped": dropped} if dropped else {}),
    }
    since = "the beginning" if document["whole"] else rfc3339(complete_since) or "no known time"
    if coverage.is_disordered:
        since = "unknown: this service's list is out of order"
    facts = [("fetched", plural(done, "run")), ("held", plural(held, "run")), ("complete since", since)]
    if dropped:
        facts.append(("left out", f"{dropped:,} entries without a usable run id"))
    invocation.output.record(document, facts)
    return Exit.DONE
