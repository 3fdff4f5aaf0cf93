"""`runwarden health`: the code hosts, in the convention of monitoring plugins."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import click

from app.api.errors import ApiError, NotFoundError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import WRONG_ADDRESS, CommandFailedError, of_api_error
from app.cli.options import FactCommand, async_command
from app.cli.output import Column, Output
from app.cli.output import facts as facts_of
from app.engine.times import clocks_apart, exact_ago, rfc3339
from app.health.facts import HealthLevel, unobserved_since
from app.health.facts import level as level_of
from app.runs.document import as_received
from storage.records import PlatformHealth

if TYPE_CHECKING:
    from app.engine.engine import Engine


class ExitLevel(IntEnum):
    """A monitoring plugin's result, which is its exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


LEVELS: Final[Mapping[HealthLevel | None, ExitLevel]] = {
    "well": ExitLevel.OK,
    "impaired": ExitLevel.WARNING,
    "bad": ExitLevel.CRITICAL,
    None: ExitLevel.UNKNOWN,
}
_WORST_LAST: Final = (ExitLevel.OK, ExitLevel.UNKNOWN, ExitLevel.WARNING, ExitLevel.CRITICAL)
"""A host that is known to be unhealthy counts more than one whose status is unknown."""


@click.command(cls=FactCommand)
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def health(invocation: Invocation, /, *, cached: bool) -> int:
    """Check the health of the code hosts: exit code 0 ok, 1 warning, 2 critical, 3 unknown.

    The result is also unknown if the service does not answer, and for a day after it stopped naming a host that was
    unhealthy. With --cached, it is unknown if health could not be read for 15 minutes.
    """
    invocation.is_plugin = True
    async with invocation.engine(needs_token=not cached, is_live=not cached) as engine:
        if not cached:
            await _refresh(engine)
        links = await engine.cache.links()
        now = engine.clock()
        ahead = engine.client.budget.clock_ahead
        ok_words = engine.settings.console.health_ok
        since = unobserved_since(links, now)
        hosts = dict[PlatformHealth, ExitLevel]()
        for platform in await engine.cache.health():
            how = level_of(platform.status, ok_words)
            if platform.connected:
                hosts[platform] = LEVELS[how if since is None else None]
            elif how in {"impaired", "bad"} and now - platform.since < timedelta(days=1):
                # It was unhealthy when the service stopped naming it.
                hosts[platform] = ExitLevel.UNKNOWN
    level = max(hosts.values(), key=_WORST_LAST.index, default=ExitLevel.UNKNOWN)
    output = invocation.output
    # The platform's object as received (spec 2.7), and our observations.
    facts = {
        host.platform: {
            "status": host.status,
            **as_received(host.raw_json),
            "observed": {"level": rating.name.lower(), **facts_of(host, "since checked_at connected")},
        }
        for host, rating in hosts.items()
    }
    checked_at = next((link.last_ok_at for link in links if link.subject == "health"), None)
    match output.format:
        case Format.JSON:
            document: dict[str, object] = {
                "status": level.name.lower(),
                "code_hosting": facts,
                "clock_ahead_s": ahead.total_seconds(),
                "as_of": rfc3339(checked_at),
                "source": "cache" if cached else "live",
            }
            output.record(document, ())
        case Format.TABLE:
            statuses = ", ".join(
                f"{host.platform} {host.status if host.connected else 'no longer connected'}" for host in hosts
            )
            if since is not None:
                statuses = f"code hosts unobserved since {exact_ago(since, now)}; when last seen: {statuses}"
            elif cached and checked_at is not None:
                statuses = f"as of {exact_ago(checked_at, now)}: {statuses}"
            output.text(f"RUNWARDEN {level.name} - {statuses or 'no code host is connected'}")
            for host in hosts:
                output.text(detail(host, now))
            if ahead:
                output.text(clocks_apart(ahead))
        case Format.NDJSON | Format.CSV:
            entries = [{"platform": name, **about} for name, about in facts.items()]
            columns: tuple[Column[PlatformHealth], ...] = (
                Column("platform", lambda h: h.platform, "platform"),
                Column("status", lambda h: h.status, "status"),
                Column("level", lambda h: hosts[h].name.lower(), "level"),
                Column("host", lambda h: h.host or "", "host"),
                Column("group", lambda h: h.group or "", "group"),
                Column("since", lambda h: exact_ago(h.since, now), "since", lambda h: rfc3339(h.since)),
            )
            output.listing("code_hosting", entries, columns, list(hosts))
    return level


async def _refresh(engine: "Engine") -> None:
    """Ask for the health; without a code host, also make sure that the address is right."""
    try:
        await engine.health.refresh()
    except ApiError as error:
        raise of_api_error(error, hint="Show earlier results with --cached.") from error
    if not await engine.cache.health():
        # Without a code host the health is 404, as it is at a wrong address, which has no list of runs either.
        try:
            await engine.client.list_runs(page_size=1)
        except NotFoundError as error:
            raise of_api_error(error, hint=WRONG_ADDRESS) from error
        except ApiError:
            pass  # This failure is no reason to doubt the health.


def print_unknown(output: Output, failure: CommandFailedError) -> int:
    """Report as a plugin that the health is unknown: on stdout, with exit code 3."""
    if output.format.is_json:
        output.failure(failure, {"status": "unknown", "code_hosting": {}})
    else:
        output.text(f"RUNWARDEN UNKNOWN - {failure.message}")
        output.flush()
    return ExitLevel.UNKNOWN


def detail(host: PlatformHealth, now: datetime) -> str:
    """A host's line: its status, how long it has lasted, and its address."""
    label = "".join(f" {part}" for part in (host.host, host.group) if part)
    if not host.connected:
        return f"{host.platform}: no longer connected since {exact_ago(host.since, now)}, {host.status} before"
    since = ", since when is not known yet"
    if host.since < host.checked_at:
        since = f" since {exact_ago(host.since, now)}"
    elif host.before:
        # The status was seen only once, so its start is unknown.
        since = f", {host.before} when last asked"
    return f"{host.platform}: {host.status}{since}{label and ','}{label}"
