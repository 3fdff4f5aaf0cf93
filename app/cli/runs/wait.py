"""`runs wait`: until runs have ended, one way or the other."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

import click

from app.api.errors import ApiError, ForbiddenError, NotAuthorizedError, RateLimitedError
from app.cli.context import Invocation
from app.cli.exits import Exit, Failure
from app.cli.options import FactCommand, as_duration
from app.cli.runs.find import Finder
from app.cli.runs.view import COLUMNS, badge, views
from app.cli.times import rfc3339
from storage.records import Run

if TYPE_CHECKING:
    from app.engine import Engine

DEFAULT_TIMEOUT: Final = "30m"
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
GROWTH: Final = 1.3
MOST_LOOK_UPS: Final = 3
"""Runs asked for one by one; for more of them a sweep of all active runs is cheaper."""


@dataclass(frozen=True, slots=True)
class End:
    """What waiting for one run came to."""

    outcome: Literal["ended", "waiting", "lost"]
    run: Run | None


@click.command("wait", cls=FactCommand, short_help="Wait until runs have ended.")
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN_ID...")
@click.option(
    "--timeout",
    callback=as_duration,
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="TIME",
    help="Such as 90s, 30m, 2h.",
)
@click.pass_obj
def wait(invocation: Invocation, *, run_ids: tuple[str, ...], timeout: timedelta) -> int:
    """Wait until all of these runs have ended: exit code 0 if all completed, 1 if one failed, 3 if time ran out."""
    return invocation.run(lambda: _wait(invocation, run_ids, timeout))


async def _wait(invocation: Invocation, run_ids: Sequence[str], patience: timedelta) -> int:
    output = invocation.output
    async with invocation.engine(needs_token=True) as engine:
        finder = Finder(engine)
        named = dict.fromkeys([(await finder.current(text)).run_id for text in run_ids])
        ends = await Waiting(engine, output.note).until_final(list(named), patience)
        shown = await views(engine, [end.run for end in ends.values() if end.run is not None])
        now = engine.clock()
    failure = verdict(ends)
    more: dict[str, object] = {"as_of": rfc3339(now), "source": "live"}
    if failure is not None and failure.exit is not Exit.FAILED:
        more["error"] = failure.as_json()
    output.listing("runs", [view.document() for view in shown], shown, COLUMNS, more=more)
    if failure is None:
        return Exit.DONE
    if not output.format.is_json:
        output.note(f"runwarden: {failure.message}")
    return failure.exit


@dataclass(frozen=True, slots=True)
class Waiting:
    """Asks again and again, at a pace the service can bear, until runs have ended."""

    engine: "Engine"
    tell: Callable[[str], None]
    """For a person, who should see that something is going on."""

    async def until_final(self, run_ids: Sequence[str], patience: timedelta) -> Mapping[str, End]:
        """Waits until each run has ended or is lost, or time is up.

        A passing fault of the network or the service is waited out; a refused token is not.

        Raises:
            NotAuthorized, Forbidden: Waiting longer would change nothing.
        """
        deadline = time.monotonic() + patience.total_seconds()
        statuses: dict[str, str] = {}
        pause_s = FIRST_PAUSE_S
        while True:
            ends = {run_id: await self._look(run_id) for run_id in run_ids}
            self._report(ends, statuses)
            remaining_s = deadline - time.monotonic()
            if all(end.outcome != "waiting" for end in ends.values()) or remaining_s <= 0:
                return ends
            asked_for_s = await self._refresh([run_id for run_id, end in ends.items() if end.outcome == "waiting"])
            await asyncio.sleep(max(0.0, min(max(pause_s, asked_for_s), remaining_s)))
            pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)

    async def _look(self, run_id: str) -> End:
        detail = await self.engine.cache.detail(run_id)
        if detail is None:
            return End("lost", None)
        if detail.run.is_final:
            return End("ended", detail.run)
        return End("lost" if detail.presence == "lost" else "waiting", detail.run)

    async def _refresh(self, run_ids: Sequence[str]) -> float:
        """Asks for each run; returns the seconds that the service wants to be left alone."""
        try:
            if len(run_ids) > MOST_LOOK_UPS:
                await self.engine.runs.refresh()
            else:
                for run_id in run_ids:
                    await Finder(self.engine).current(run_id)
        except (NotAuthorizedError, ForbiddenError):
            raise
        except RateLimitedError as error:
            self.tell(f"Still waiting; {error.message}")
            return error.retry_after_s or LONGEST_PAUSE_S
        except ApiError as error:
            self.tell(f"Still waiting; {error.message}")
            return LONGEST_PAUSE_S
        return 0.0

    def _report(self, ends: Mapping[str, End], statuses: dict[str, str]) -> None:
        for run_id, end in ends.items():
            if end.run is not None and statuses.get(run_id) != end.run.status:
                statuses[run_id] = end.run.status
                self.tell(f"{run_id}  {badge(end.run.status)}")


def verdict(ends: Mapping[str, End]) -> Failure | None:
    """What the ends amount to; None: every run completed."""
    lost = [run_id for run_id, end in ends.items() if end.outcome == "lost"]
    unended = [run_id for run_id, end in ends.items() if end.outcome == "waiting"]
    bad = [run_id for run_id, end in ends.items() if end.run is not None and end.run.status == "failed"]
    if bad:
        return Failure("run_failed", f"Failed: {', '.join(bad)}.", Exit.FAILED, {"run_ids": list(bad)})
    if lost:
        message = f"The service no longer shows {', '.join(lost)}."
        return Failure("not_found", message, Exit.NOT_FOUND, {"run_ids": list(lost)})
    if unended:
        message = f"Time is up; not ended yet: {', '.join(unended)}."
        return Failure("waited_too_long", message, Exit.TIMED_OUT, {"run_ids": list(unended)})
    return None
