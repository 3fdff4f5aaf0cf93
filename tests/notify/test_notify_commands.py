"""The commands for notifications, from a failed run to its delivery."""

import asyncio
import sys
from datetime import UTC, datetime

from app.profiles import STATE_FILE, Settings, data_folder
from storage.records.alert import Message, Plan
from storage.state import State
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_watch_command import cli
from tests.cli.conftest import CommandLine

__all__ = ["cli", "service"]


def told(service: Service, cli: CommandLine, text: str) -> list[str]:
    """What a program received when a run failed under these rules and routes, after two polls."""
    out = cli.home / "out"
    program = f"import sys; open({str(out)!r}, 'a').write(sys.argv[1] + chr(10))"
    command = f'command = [{sys.executable!r}, "-S", "-c", "{program}", "{{title}} -> {{body}}"]'
    configured(service, cli.home, f"[notify.routes.oncall]\n{command}\n{text}")
    for runs in (0, 1, 1):
        # Failures before the bot's first poll are history.
        RUN.update(
            dict.fromkeys(("created_at", "updated_at"), datetime.now(UTC).isoformat()) if not service.runs else {}
        )
        service.runs = [RUN] * runs
        assert cli("watch", "--once").code == 0
    return out.read_text().splitlines() if out.exists() else []


def test_a_failure_is_notified_and_acknowledged(service: Service, cli: CommandLine) -> None:
    """`[[notify.rules]]` notifies once without an automation; the log and `ack` list the message."""
    (line,) = told(service, cli, '[[notify.rules]]\nroute = "oncall"\n')
    assert line.startswith("Run failed")
    assert line.endswith("· run_1 · acme [1]")

    (delivery,) = cli("notify", "log", "--json").json()["deliveries"]
    assert (delivery["outcome"], delivery["groups"]) == ("delivered", ["failed:acme/api"])
    assert cli("notify", "ack", "1", "--json").json() == {"groups": ["failed:acme/api"]}
    assert cli("inbox", "list", "--json").json()["items"] == []
    assert cli("notify", "ack", "9").code == 7


def test_an_automation_and_notify_each_notify_once(service: Service, cli: CommandLine) -> None:
    """Without rules only automations notify; one that a user triggers notifies at once."""
    text = automation('{ notify = "oncall", title = "Look" }')
    assert told(service, cli, text) == ["Look -> fix/x · run_1 · acme [1]"]

    for _ in range(2):
        assert cli("automations", "run", "r", "--run", "run_1").code == 0
    lines = (cli.home / "out").read_text().splitlines()
    assert lines == [f"Look -> fix/x · run_1 · acme [{number}]" for number in (1, 2, 3)]


def test_an_undelivered_message_is_in_the_inbox(service: Service, cli: CommandLine) -> None:
    """The inbox item says how to fix it; the fallback message has the same number."""
    asyncio.run(fall_back(configured(service, cli.home, "")))

    items = cli("inbox", "list", "--json").json()["items"]
    (item,) = [item for item in items if item["kind"] == "undelivered"]
    assert (item["fix"], "Run failed" in item["title"]) == ("runwarden notify test oncall", True)


async def fall_back(settings: Settings) -> None:
    """A message whose delivery failed."""
    message = Message("oncall", ":failed", "new", "error", "Run failed", "", ())
    async with await State.open(data_folder(settings, settings.profile()) / STATE_FILE) as state:
        assert await state.apply_plan(Plan((message,)), state.clock(), 0)
        (delivery,) = await state.recent_deliveries()
        await state.settle_delivery(delivery, "failed", state.clock(), error="gone", fallback="default")
        newest, _ = await state.recent_deliveries()
    assert (newest.number, newest.message.route) == (delivery.number, "default")
