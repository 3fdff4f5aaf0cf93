"""`runwarden watch`: runs the automations without a screen."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from app.api.network import Network
from app.automations.bot import Bot, Heartbeat, reload_on_hangup
from app.automations.metrics import Snapshot, serve, snapshot
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error, require_extra
from app.cli.options import FactCommand, async_command, reading
from app.engine.times import rfc3339
from app.start.streams import discard_output, remarking

if TYPE_CHECKING:
    from app.profiles import Settings

WATCHDOG_S: Final = 5.0
MAX_PORT: Final = 65_535


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError(f"{text!r} is not an address: write 9464 or 127.0.0.1:9464.")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command("watch", cls=FactCommand)
@click.option("--once", is_flag=True, help="Poll once, decide, act and exit: for cron.")
@click.option("--all-profiles", is_flag=True, help="Watch every configured service.")
@click.option(
    "--metrics",
    callback=reading(_address),
    metavar="[HOST:]PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics; on loopback unless HOST says otherwise.",
)
@async_command
async def watch(invocation: Invocation, /, *, once: bool, all_profiles: bool, metrics: tuple[str, int] | None) -> int:
    """Run the automations of the configuration without a screen.

    Each line on stdout is a JSON object. SIGTERM and ^C finish pending requests, wait for programs of rules, then exit;
    a second signal kills the programs at once. SIGHUP reloads the automations and notification routes; if the file has
    a mistake, the old ones stay in use.
    """
    settings = invocation.settings()
    profiles = settings.profiles if all_profiles else [invocation.profile(settings)]
    bots: list[Bot] = []
    is_stopped = False

    def kill(number: signal.Signals) -> None:
        tasks = [program.task for bot in bots for program in bot.programs.values() if not program.task.done()]
        for task in tasks:
            task.cancel()
        if not tasks:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    invocation.at_second_signal = kill
    try:
        for profile in profiles:
            bot = await Bot.open(settings, profile, say)
            bots.append(bot)
        heartbeat = Heartbeat(bots, say, Network.of(bots[0].engine.profile))
        if once:
            problems = [problem for bot in bots if (problem := await bot.once()) is not None]
            for problem in problems:
                say("not_asked", message=problem)
            await heartbeat.beat()
            return Exit.UNREACHABLE if problems else Exit.DONE
        async with _metrics(metrics, bots, heartbeat):
            await _work(invocation, settings, bots, heartbeat)
    except asyncio.CancelledError:
        is_stopped = True
        programs = [item for bot in bots for item in bot.programs.items()]
        if running := [name for name, program in programs if not program.task.done()]:
            say("stopping", waits_for=running)
        if invocation.stopped_by is not signal.SIGTERM:
            raise
        # Stopping for a service manager counts as success.
        invocation.stopped_by = None
    finally:
        for bot in bots:
            await bot.close()
        if is_stopped:
            say("stopped")
    return Exit.DONE


@asynccontextmanager
async def _metrics(address: tuple[str, int] | None, bots: Sequence[Bot], heartbeat: Heartbeat) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    require_extra("metrics")

    async def snapshots() -> Sequence[Snapshot]:
        return [await snapshot(bot.engine, bot.counts, heartbeat.counts, is_working=bot.is_working) for bot in bots]

    try:
        server = serve(*address, snapshots)
    except OSError as error:
        raise command_error("usage", f"{address[0]}:{address[1]} cannot be used: {error.strerror}.") from error
    try:
        say("metrics", address=f"{address[0]}:{server.server_port}")
        yield
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def say(event: str, **facts: Any) -> None:
    """Write one log line; the bot works on if nobody can read it, as pages matter more."""
    line = {"at": rfc3339(datetime.now(UTC)), "event": event, **facts}
    try:
        sys.stdout.write(f"{json.dumps(line, ensure_ascii=True)}\n")
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            discard_output(sys.stdout)  # A full disk may have room again.
        with remarking(sys.stderr):
            sys.stderr.write(f"runwarden: the log cannot be written ({error.strerror}); the bot works on\n")


async def _work(invocation: Invocation, settings: "Settings", bots: Sequence[Bot], heartbeat: Heartbeat) -> None:
    reload_on_hangup(invocation.settings, bots, say)
    rules = [rule.name for rule in settings.automations if rule.is_on]

    async def watchdog() -> None:
        while True:  # Shows that the event loop is alive.
            notify_systemd("WATCHDOG=1")
            await asyncio.sleep(WATCHDOG_S)

    say("started", profiles=[bot.engine.profile.name for bot in bots], automations=rules)
    notify_systemd("READY=1")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watchdog())
        tasks.create_task(heartbeat.run())
        for bot in bots:
            tasks.create_task(bot.run())


def notify_systemd(state: str) -> None:
    """Report the state to systemd (sd_notify); does nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
