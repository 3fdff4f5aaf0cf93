"""`runwarden watch` and `runwarden automations`, run as processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch
from urllib.request import urlopen

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.automations.bot import hand_over
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.cli.conftest import CommandLine
from tests.program import Program
from tests.waiting import eventually

__all__ = ["service"]


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A command line that only reads the configuration in this folder."""
    config = str(tmp_path / "config.toml")
    return CommandLine(tmp_path, more={"RUNWARDEN_BASE_URL": "", "RUNWARDEN_DATA_DIR": "", "RUNWARDEN_CONFIG": config})


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


def test_a_bot_reloads_hands_over_and_ends_as_asked(service: Service, cli: CommandLine) -> None:
    """The bot reports ready to systemd, refuses a bad configuration, and a second bot takes over when it exits.

    Prometheus can scrape it even if a run has a hostile status.
    """
    configured(service, cli.home, automation('{ continue = "go on" }'))
    service.runs = [{**RUN, "status": 'a"\nb'}]
    config, good = cli.home / "config.toml", (cli.home / "config.toml").read_text()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, ExitStack() as stack:
        systemd.bind(str(cli.home / "s"))
        bot = stack.enter_context(watching(cli, "--metrics", "0", NOTIFY_SOCKET=str(cli.home / "s")))
        address = line(bot, "metrics")["address"]
        assert line(bot, "started")["automations"] == ["r"]
        assert systemd.recv(100) == b"READY=1"
        line(bot, "working")

        def figures() -> dict[str, Metric]:
            with urlopen(f"http://{address}/metrics") as answer:
                text = answer.read().decode()
            found = {each.name: each for each in text_string_to_metric_families(text) if each.samples}
            return found if {"runwarden_runs", "runwarden_automation_paused"} <= found.keys() else {}

        families = eventually(figures, "the runs and rules are counted")
        config.write_text(good.replace("failed", 'failed" x'))
        bot.send_signal(signal.SIGHUP)
        assert "config.toml:" in str(line(bot, "reload_refused")["message"])
        config.write_text(good + automation('{ notify = "default" }').replace('"r"', '"s"'))
        bot.send_signal(signal.SIGHUP)
        assert line(bot, "reloaded")["automations"] == ["r", "s"]
        with watching(cli) as second:
            line(second, "started")
            bot.send_signal(signal.SIGTERM)
            assert line(bot, "stopped")
            assert bot.wait(60) == 0
            line(second, "working")
            assert second.stdout is not None
            assert second.stderr is not None
            second.stdout.close()
            second.stdout = None
            second.send_signal(signal.SIGHUP)
            assert "the bot works on" in second.stderr.readline()
            second.send_signal(signal.SIGINT)
            assert second.wait(60) in {-signal.SIGINT, 128 + signal.SIGINT}

    (runs,) = families["runwarden_runs"].samples
    assert runs.labels == {"profile": "acme", "status": 'a"\nb'}
    assert families["runwarden_bot_working"].samples[0].value == 1
    assert families["runwarden_automation_paused"].samples[0].labels["automation"] == "r"


@pytest.mark.parametrize("ends", [True, False])
def test_a_rules_program_may_end_before_the_bot_does(service: Service, cli: CommandLine, *, ends: bool) -> None:
    """SIGTERM waits for the program and journals its outcome; a second SIGTERM kills it and the outcome is unknown."""
    fifo, place = cli.home / "fifo", cli.home / "pid"
    os.mkfifo(fifo)
    os.mkfifo(place)
    script = f"echo $$ > {place}; read x < {fifo}"
    configured(service, cli.home, automation(f"{{ command = {json.dumps(['sh', '-c', script])} }}"))
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise the bot would wait until the lease of the first poll expires.
        patch.setattr("app.automations.bot.LEASE_S", 0.0)
        assert cli("watch", "--once").code == 0
    service.runs = [RUN]
    with watching(cli) as bot:
        number = int(place.read_text())
        bot.send_signal(signal.SIGTERM)
        assert line(bot, "stopping")["waits_for"] == ["r"]
        if ends:
            fifo.write_text("go on\n")
            assert line(bot, "decision")["outcome"] == "done"
        else:
            bot.send_signal(signal.SIGTERM)
        assert line(bot, "stopped")
        assert bot.wait(60) == 0

    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert cli("watch", "--once").code == 0
    outcome = cli("automations", "log", "--json").json()["decisions"][0]["outcome"]
    assert outcome == ("done" if ends else "interrupted")


def test_a_restored_backup_fires_nothing_twice(service: Service, cli: CommandLine) -> None:
    """After a restored backup, the refetched history triggers no rule a second time."""
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
    """The commands list, check with a replay, show the log, pause and resume; their JSON has the same facts."""
    configured(service, cli.home, automation('{ continue = "go on" }', 'overlap = "allow"'))
    # The service's clock is ahead, so by its time this run failed after the rule started.
    began, failed = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    old_run = {**RUN, "run_id": "run_0", "created_at": began.isoformat(), "updated_at": failed.isoformat()}
    for runs in ([old_run], [RUN, old_run]):
        service.runs = list(runs)
        assert cli("watch", "--once").code == 0

    assert "replay   1 done" in cli("automations", "check", "--replay", "1d").out
    (listed,) = cli("automations", "list", "--json").json()["automations"]
    assert (listed["state"], listed["last"]) == ("on", "done")
    (decision,) = cli("automations", "log", "--json").json()["decisions"]
    assert (decision["outcome"], decision["result_id"]) == ("done", "run_2")
    old = cli("automations", "log", "--outcome", "history", "--json")
    assert [each["set_off_by"][:9] for each in old.json()["decisions"]] == ["run:run_0"]
    # A container's user may have no name.
    with patch("getpass.getuser", side_effect=KeyError):
        assert cli("automations", "pause", "R").code == 0
    (listed,) = cli("automations", "list", "--json").json()["automations"]
    assert (listed["state"], listed["paused"]) == ("paused", f"by {os.getuid()}")
    assert cli("automations", "resume", "r", "--json").json() == {"name": "r", "changed": True}
    assert cli("automations", "run", "r").code == 2
    asked = cli("automations", "run", "r", "--run", "run_1", "--json").json()
    assert (asked["outcome"], asked["set_off_by"].split(":")[0], len(service.posted)) == ("done", "asked", 2)
    assert cli("automations", "check", "nope").code == 7
    assert next(cli.home.rglob("state.sqlite3")).stat().st_mode & 0o77 == 0


def test_an_automation_of_another_profile_is_not_called_missing(service: Service, cli: CommandLine) -> None:
    """The commands name the profile that it is for."""
    other = '[profiles.other]\nbase_url = "https://other.example/v1"\n'
    configured(service, cli.home, other + automation('{ continue = "go on" }', 'profile = "other"'))

    every = cli("automations", "check", "--profile", "acme")
    named = cli("automations", "run", "r", "--profile", "acme")

    assert (every.code, every.out, named.code) == (0, "", 7)
    assert "Not shown: automations of other profiles. Add --profile: other." in every.err
    assert "The automation 'r' is for the profile other: add --profile." in named.err
    assert cli("automations", "check", "r", "--profile", "other").out.startswith("r\n")


# Not `sigwait`: while it waits, the kernel does not list the signal as handled.
HOLDS = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
print(end=".", flush=True)
while not signal.sigpending():
    time.sleep(0.01)
print("heard")
"""
WAITS = "import sys; print(end='.', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("argv", "code", "is_told"),
    [
        (["/usr/bin/runwarden", "--profile", "acme", "watch"], HOLDS, True),
        (["app", "watch", "--once"], HOLDS, False),
        (["/usr/bin/watch", "ls"], HOLDS, False),
        # The process does not handle the signal yet, so the default action would kill it.
        (["-m", "app.demo.live", "/tmp/demo"], WAITS, False),
    ],
)
def test_only_a_bot_is_told_of_new_rules(argv: list[str], code: str, is_told: bool) -> None:
    """The reload signal goes to running bots only, since it would kill any other process, including a one-shot bot."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, *argv], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "."
        was_told = hand_over(process.pid)
        if not was_told:
            assert process.poll() is None
            process.kill()
        heard, _ = process.communicate()

    assert (was_told, heard) == (is_told, "heard\n" if is_told else "")
    assert not hand_over(process.pid)
