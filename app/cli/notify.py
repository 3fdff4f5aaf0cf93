"""`runwarden notify`: the routes that automations tell people by."""

from datetime import UTC, datetime

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command


@click.group(cls=CommandGroup)
def notify() -> None:
    """Try the routes of notifications."""


@notify.command("test", cls=FactCommand)
@click.argument("route", default="default")
@async_command
async def test(invocation: Invocation, /, *, route: str) -> int:
    """Send a test notification over ROUTE, one of [notify.routes], or over the channels of [notify] itself."""
    from app.automations.telling import DEFAULT, Telling
    from app.rules.rule import DoNotify
    from storage.records.decision import Decision, Occurrence

    settings = invocation.settings()
    names = [DEFAULT, *(each.name for each in settings.notify.routes)]
    if route not in names:
        raise failed("not_found", f"There is no route {route!r}. There are: {', '.join(names)}.")
    if route == DEFAULT and not (settings.notify.desktop or settings.notify.command):
        raise failed("usage", "The channels of [notify] are off: set notify.desktop or notify.command, or add a route.")
    now, profile = datetime.now(UTC), invocation.profile(settings)
    decision = Decision(0, "test", Occurrence("test", now), now, "acting", "")
    do = DoNotify(route, "Runwarden: this is a test", "Sent by `runwarden notify test`")
    trouble = await Telling(settings.notify, profile.name).tell(do, decision, {})
    if trouble is not None:
        raise failed("not_delivered", trouble, route=route)
    invocation.output.record({"route": route, "delivered": True}, [("delivered", route)])
    return Exit.DONE
