"""The inbox has one item for each cause, until it is handled, and shows it again when something new happens."""

import re
import socket
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.engine.files import login
from app.engine.times import day
from storage.values import utc_now
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_watch_command import cli
from tests.cli.conftest import CommandLine
from tests.lab import Lab, Received, Respond

__all__ = ["cli", "service"]


def at(minutes: float) -> str:
    """The time in this many minutes."""
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


def sync(service: Service, cli: CommandLine, *runs: dict[str, object]) -> None:
    service.runs = list(runs)
    assert cli("watch", "--once").code == 0


def items(cli: CommandLine, *options: str, kind: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("inbox", "list", "--json", *options).json()["items"]
    return [item for item in found if kind in ("", item["kind"])]


def keys(cli: CommandLine, *options: str) -> list[str]:
    return [item["key"] for item in items(cli, *options)]


def test_an_item_stays_until_done_and_returns(service: Service, cli: CommandLine) -> None:
    """Two failures in one repository are one item; a new one brings it back alone.

    One undo restores everything that was put away together.
    """
    configured(service, cli.home, "")
    old = datetime.now(UTC) - timedelta(days=9)
    first = {**RUN, "run_id": "run_2", "updated_at": old.isoformat()}
    second = {**RUN, "updated_at": at(-1)}
    sync(service, cli, first, second)

    (item,) = items(cli)
    assert (item["key"], item["count"], item["fix"]) == ("failed:acme/api", 2, "runwarden runs view run_1")
    assert item["title"] == f"2 runs failed in acme/api, since {day(old, datetime.now(UTC))}"
    for how in (("mute",), ("snooze", "--for", "2h")):
        assert cli("inbox", *how, "all").code == 0
        assert keys(cli) == []
        assert cli("inbox", "undo", "--json").json() == {"keys": ["failed:acme/api"]}
        assert keys(cli) == ["failed:acme/api"]
    assert cli("inbox", "undo", "--json").json() == {"keys": []}
    assert cli("inbox", "done", "failed:acme/api").code == 0
    assert keys(cli) == []
    assert keys(cli, "--all") == ["failed:acme/api"]
    sync(service, cli, first, second, {**RUN, "run_id": "run_3", "updated_at": at(0)})
    assert [item["title"] for item in items(cli)] == ["A run failed in acme/api"]


def test_the_inbox_lists_what_automations_need(service: Service, cli: CommandLine, tmp_path: Path) -> None:
    """An approval, a paused rule, a rule that is held back and a missing bot are items of the inbox."""
    text = automation('{ continue = "go on" }', "approval = true")
    configured(
        service,
        tmp_path,
        text
        + automation("{ retry = true }", "pause_after = 1").replace('"r"', '"p"')
        + automation('{ notify = "default" }', "limit = { per_hour = 1 }").replace('"r"', '"l"'),
    )
    sync(service, cli)
    sync(service, cli, RUN, {**RUN, "run_id": "run_2"})

    found = {item["kind"]: item for item in items(cli)}

    assert set(found) == {"failed", "approval", "paused", "limited"}
    assert found["approval"]["fix"].startswith("runwarden automations approve ")
    number = found["approval"]["fix"].split()[-1]
    approved = cli("automations", "approve", number, "--json").json()
    assert (approved["outcome"], approved["request"]["method"]) == ("approved", "POST")
    (waiting,) = cli("automations", "log", "--outcome", "approved", "--json").json()["decisions"]
    assert waiting["answered_by"] == approved["answered_by"] == f"{login()}@{socket.gethostname()}"
    assert waiting["answered_at"] == approved["answered_at"] > waiting["decided_at"]
    assert approved["request"]["path"] == "/external/runs"
    assert approved["request"]["body"]["instructions"] == "go on"
    assert "not sent from this machine" in found["paused"]["title"]
    assert found["limited"]["title"] == "l reached its limit, 1 time: 1 in the last hour: limit.per_hour"
    with closing(sqlite3.connect(next(cli.home.rglob("state.sqlite3")))) as state, state:
        state.execute("UPDATE leases SET until_us = until_us - 3600000000")
    assert keys(cli)[-1] == "bot"


def test_an_outage_is_one_item_with_a_retry_command(tmp_path: Path) -> None:
    """The item says since when and until when the host is down, and how many runs failed."""
    with Lab(clock=utc_now, health={"github": {"status": "down"}}) as lab:
        inside = CommandLine(tmp_path, lab.base_url)

        for repository in ("acme/api", "acme/web", "acme/api"):
            inside("runs", "start", "-R", repository, "Fix it.")
        inside("health")
        for run_id in ("run_00000", "run_00001"):
            lab.move(run_id, "failed")
        inside("runs", "list")
        (while_down,) = items(inside)
        lab.move("run_00002", "failed")
        inside("runs", "list")
        lab.health = {"github": {"status": "ok"}}
        inside("health")
        (over,) = items(inside)
        dry = inside("inbox", "retry", over["key"], "--dry-run", "--json").json()["rows"]
        retried = inside("inbox", "retry", over["key"], "--yes", "--json").json()["rows"]
        nothing = inside("inbox", "retry", "all", "--yes")

    assert re.fullmatch(r"github down since [\d:]{8}, 2 runs failed", while_down["title"])
    assert (while_down["count"], while_down["fix"]) == (2, "runwarden health")
    assert re.fullmatch(r"github down from [\d:]{8} to [\d:]{8}, 3 runs failed", over["title"])
    assert over["fix"] == f"runwarden inbox retry {over['key']}"
    assert {each["outcome"] for each in dry} == {"to_send"}
    assert {each["run_id"]: each["outcome"] for each in retried} == dict.fromkeys(over["runs"], "sent")
    assert len(over["runs"]) == 3
    assert (nothing.code, "no failed runs" in nothing.err) == (7, True)


def test_a_retried_failure_leaves_the_inbox(service: Service, cli: CommandLine) -> None:
    """A failure that a rule or user retried leaves the inbox, and is not retried a second time."""
    configured(service, cli.home, automation("{ retry = true }"))

    def tells(request: Received) -> Respond:
        turns = {"run_id": "run_1", "turns": [{"number": 1, "instructions": "Fix it"}]}
        return Respond(200, turns) if request.path.endswith("/runs/run_1") else service.answer(request)

    service.server.otherwise = tells
    sync(service, cli)
    sync(service, cli, RUN)

    again = cli("runs", "retry", "run_1", "--yes", "--json").json()["rows"]

    assert [row["outcome"] for row in again] == ["sent_before"]
    assert len(service.posted) == 1
    assert keys(cli) == []


def test_a_rules_requests_are_one_item(service: Service, cli: CommandLine, tmp_path: Path) -> None:
    """A rule's requests are rejected together or not at all.

    Those marked as done are excluded from count and command.
    """
    configured(service, tmp_path, automation('{ continue = "go on\\nand on" }', "approval = true\noverlap = 'allow'"))
    sync(service, cli)
    sync(service, cli, RUN, {**RUN, "run_id": "run_2"})

    (item,) = items(cli, kind="approval")
    numbers = item["fix"].split()[3:]
    assert (item["title"], item["by"], item["count"]) == ("2 requests of r wait for approval", "r", 2)
    assert set(item["runs"]) == {"run_1", "run_2"}
    assert cli("automations", "reject", *numbers, "99", "--json").code == 7
    assert items(cli, kind="approval") == [item]
    rejected = cli("automations", "reject", *numbers, "--json").json()["decisions"]
    assert [str(each["decision"]) for each in rejected] == numbers
    assert {(each["outcome"], each["request"]["body"]["instructions"]) for each in rejected} == {
        ("rejected", "go on\nand on")
    }
    assert items(cli, kind="approval") == []
    assert {each["answer"] for each in cli("automations", "log", "--json").json()["decisions"]} == {"rejected"}

    sync(service, cli, {**RUN, "run_id": "run_3", "updated_at": at(0)})
    cli("inbox", "done", "approval:r")
    sync(service, cli, *({**RUN, "run_id": f"run_{n}", "updated_at": at(0)} for n in (4, 5)))
    (item,) = items(cli, kind="approval")
    assert item["count"] == 2
    approved = cli(*item["fix"].split()[1:], "--json").json()["decisions"]
    assert [each["outcome"] for each in approved] == ["approved"] * 2


def test_without_the_state_marks_are_unknown(service: Service, cli: CommandLine) -> None:
    """Without the state file, a done item is listed again but not presented as new."""
    configured(service, cli.home, "")
    sync(service, cli, RUN)
    cli("inbox", "done", "all")
    known = cli("inbox", "--json")
    next(cli.home.rglob("state.sqlite3")).write_bytes(b"not a database" * 100)

    table, document = cli("inbox"), cli("inbox", "--json")

    assert (known.json()["items"], "marks" in known.json()) == ([], False)
    assert ("failed:acme/api" in table.out, table.err.startswith("Marks unknown: ")) == (True, True)
    assert document.json()["marks"] == "unknown"
