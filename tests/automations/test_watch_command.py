"""`runwarden watch` and `runwarden automations`, as processes of their own."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.cli.conftest import CommandLine, Inside
from tests.program import Program
from tests.waiting import eventually

__all__ = ["service"]


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Everything comes from the configuration in this folder."""
    config = str(tmp_path / "config.toml")
    return Inside(tmp_path, more={"RUNWARDEN_BASE_URL": "", "RUNWARDEN_DATA_DIR": "", "RUNWARDEN_CONFIG": config})


@contextmanager
def watching(cli: CommandLine, *arguments: str, **environment: str) -> Iterator[Program]:
    env = {name: value for name, value in {**cli.environment, **environment}.items() if value}
    process = Program(("watch", *arguments), env, cwd=cli.home)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: Program, event: str) -> dict[str, object]:
    """The next line of the log about this event."""
    assert process.stdout is not None
    for text in process.stdout:
        said = json.loads(text)
        if said["event"] == event:
            return dict(said)
    raise AssertionError(f"ended with {process.wait()} before {event}")


def test_it_works_reloads_and_ends_as_asked(service: Service, cli: CommandLine) -> None:
    """Ready is said to systemd; a bad configuration is refused, and the old one kept; SIGTERM ends it with 0."""
    configured(service, cli.home, automation('{ continue = "go on" }'))
    config, good = cli.home / "config.toml", (cli.home / "config.toml").read_text()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(cli.home / "s"))
        with watching(cli, NOTIFY_SOCKET=str(cli.home / "s")) as bot:
            assert line(bot, "started")["automations"] == ["r"]
            assert systemd.recv(100) == b"READY=1"
            config.write_text(good.replace("failed", 'failed" x'))
            bot.send_signal(signal.SIGHUP)
            assert "config.toml:" in str(line(bot, "reload_refused")["message"])
            config.write_text(good + automation('{ notify = "default" }').replace('"r"', '"s"'))
            bot.send_signal(signal.SIGHUP)
            assert line(bot, "reloaded")["automations"] == ["r", "s"]
            bot.send_signal(signal.SIGTERM)
            assert line(bot, "stopped")
            assert bot.wait(60) == 0


@contextmanager
def running_a_program(service: Service, cli: CommandLine) -> Iterator[tuple[Program, int]]:
    """A bot whose rule's program runs until the fifo is written to; and the program's process."""
    fifo, place = cli.home / "fifo", cli.home / "pid"
    os.mkfifo(fifo)
    os.mkfifo(place)
    script = f"echo $$ > {place}; read x < {fifo}"
    configured(service, cli.home, automation(f"{{ command = {json.dumps(['sh', '-c', script])} }}"))
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise the bot would wait until the lease of the first look expires.
        patch.setattr("app.automations.bot.LEASE_S", 0.0)
        assert cli("watch", "--once").code == 0
    service.runs = [RUN]
    with watching(cli) as bot:
        number = int(place.read_text())
        bot.send_signal(signal.SIGTERM)
        assert line(bot, "stopping")["waits_for"] == ["r"]
        yield bot, number


def test_a_rules_program_may_end_before_the_bot_does(service: Service, cli: CommandLine) -> None:
    """SIGTERM waits for it, and the journal has its outcome."""
    with running_a_program(service, cli) as (bot, _):
        (cli.home / "fifo").write_text("go on\n")
        assert line(bot, "decision")["outcome"] == "done"
        assert bot.wait(60) == 0


def test_a_second_sigterm_kills_a_rules_program(service: Service, cli: CommandLine) -> None:
    """At once, and the bot ends; what became of it is not known."""
    with running_a_program(service, cli) as (bot, number):
        bot.send_signal(signal.SIGTERM)
        assert line(bot, "stopped")
        assert bot.wait(60) == 0

    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert cli("watch", "--once").code == 0
    assert cli("automations", "log", "--json").json()["decisions"][0]["outcome"] == "interrupted"


def test_only_one_of_two_works_and_the_other_takes_over(service: Service, cli: CommandLine) -> None:
    """They share a folder; when the first ends, which is said, the second goes on."""
    configured(service, cli.home, automation('{ continue = "go on" }'))
    with watching(cli) as first:
        line(first, "working")
        with watching(cli) as second:
            line(second, "started")
            first.send_signal(signal.SIGINT)
            assert line(first, "stopped")
            assert first.wait(60) in {-signal.SIGINT, 128 + signal.SIGINT}
            line(second, "working")


def test_prometheus_reads_what_it_did(service: Service, cli: CommandLine) -> None:
    """By its own parser; a hostile status breaks nothing."""
    configured(service, cli.home, automation('{ continue = "go on" }'))
    service.runs = [{**RUN, "status": 'a"\nb'}]
    with watching(cli, "--metrics", "0") as bot:
        origin = f"http://{line(bot, 'metrics')['address']}"
        line(bot, "working")
        families = {each.name: each for each in _scraped(origin, "runwarden_runs", "runwarden_automation_paused")}

    (runs,) = families["runwarden_runs"].samples
    assert runs.labels == {"profile": "acme", "status": 'a"\nb'}
    assert families["runwarden_bot_working"].samples[0].value == 1
    assert families["runwarden_automation_paused"].samples[0].labels["automation"] == "r"


def _scraped(origin: str, *wanted: str) -> list[Metric]:
    found: list[Metric] = []

    def is_there() -> bool:
        with urlopen(f"{origin}/metrics") as answer:
            found[:] = text_string_to_metric_families(answer.read().decode())
        return {each.name for each in found if each.samples} >= {*wanted}

    eventually(is_there, ", ".join(wanted))
    return found


def test_a_restored_backup_fires_nothing_twice(service: Service, cli: CommandLine) -> None:
    """The drill: act, copy, lose the folder, put the copy back; the fetched history sets nothing off again."""
    configured(service, cli.home, automation('{ continue = "go on" }'))
    for runs in ([], [RUN]):
        service.runs = list(runs)
        assert cli("watch", "--once").code == 0

    copied = cli("backup", str(cli.home / "copy"), "--json").json()["files"]
    assert [Path(file).name for file in copied] == ["ledger.sqlite3", "state.sqlite3"]
    assert cli("backup", str(cli.home / "copy")).code == 2
    shutil.rmtree(cli.home / "data")
    shutil.copytree(cli.home / "copy", cli.home / "data")
    assert cli("watch", "--once").code == 0

    assert len(service.posted) == 1


def test_the_commands_explain_what_was_decided(service: Service, cli: CommandLine) -> None:
    """List, check with a replay, log, pause, resume; JSON holds the same."""
    configured(service, cli.home, automation('{ continue = "go on" }', 'overlap = "allow"'))
    # The service's clock is ahead: by its time, this run failed after the rule began.
    began, failed = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    old_run = {**RUN, "run_id": "run_0", "created_at": began.isoformat(), "updated_at": failed.isoformat()}
    for runs in ([old_run], [RUN, old_run]):
        service.runs = list(runs)
        assert cli("watch", "--once").code == 0

    check = cli("automations", "check", "--replay", "1d")
    assert "When a run fails, continue it: “go on”." in check.out
    assert "replay   1 done" in check.out
    assert "It can trigger itself" in check.out
    (listed,) = cli("automations", "list", "--json").json()["automations"]
    assert (listed["state"], listed["last"]) == ("on", "done")
    (decision,) = cli("automations", "log", "--json").json()["decisions"]
    assert (decision["outcome"], decision["result_id"]) == ("done", "run_2")
    log = cli("automations", "log")
    assert ("history" in log.out, "Not listed: 1 from before a rule was active" in log.err) == (False, True)
    old = cli("automations", "log", "--outcome", "history", "--json")
    assert [each["set_off_by"][:9] for each in old.json()["decisions"]] == ["run:run_0"]
    assert old.err == ""
    assert cli("automations", "pause", "R").code == 0
    assert cli("automations", "list", "--json").json()["automations"][0]["state"] == "paused"
    assert cli("automations", "resume", "r", "--json").json() == {"name": "r", "changed": True}
    assert cli("automations", "run", "r").code == 2
    asked = cli("automations", "run", "r", "--run", "run_1", "--json").json()
    assert (asked["outcome"], asked["set_off_by"].split(":")[0], len(service.posted)) == ("done", "asked", 2)
    missing = cli("automations", "check", "nope")
    assert (missing.code, "There are: r." in missing.err) == (7, True)
    assert next(cli.home.rglob("state.sqlite3")).stat().st_mode & 0o77 == 0
