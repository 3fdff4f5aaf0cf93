"""Bots killed as any of their SQL statements begins, beside others: acts at most once, and loses no message."""

import asyncio
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.profiles import Settings
from tests.actions.forks import command, run
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.cli.conftest import CommandLine

__all__ = ["service"]
ONCE = ("watch", "--once")
LIMIT = "limit = { per_hour = 10000, per_day = 10000 }\npause_after = 0"
NOTE = """
import os, signal, sys
os.write(os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY), f"{sys.argv[2]}\\n".encode())
if int(sys.argv[2].removeprefix("run_")) % 4 == 0:
    os.kill(os.getppid(), signal.SIGKILL)
"""
"""Every fourth time it ends the bot that started it: what it did is done, and not entered yet."""
FURTHEST = 260
"""More SQL statements than a bot makes for one failed run."""
NUMBERED = """
import os, signal, sys
noted = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_RDWR)
is_first = sys.argv[2] not in os.read(noted, 10**8).decode().split()
os.write(noted, (sys.argv[2] + chr(10)).encode())
if is_first and int(sys.argv[2]) % 3 == 0:
    os.kill(os.getppid(), signal.SIGKILL)
"""
"""Every third message ends the bot that sends it: it is sent, and not entered as delivered."""
FURTHEST_TOLD = 150
"""About as many SQL statements as a bot makes for one failed run."""


@contextmanager
def console(settings: Settings) -> Iterator[None]:
    """A console's engine at work on the same folder: it polls, and shares every file."""
    opened, closing = threading.Event(), threading.Event()

    async def work() -> None:
        async with await Engine.open(settings, settings.profile(), actor="console") as engine:
            engine.start_polling()
            opened.set()
            await asyncio.to_thread(closing.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert opened.wait(60)
        yield
    finally:
        closing.set()
        thread.join()


SHARDS = [pytest.param(100, seed, marks=[pytest.mark.campaign, pytest.mark.timeout(0)]) for seed in range(1, 11)]


@pytest.mark.parametrize(("kills", "seed"), [(4, 0), *SHARDS])
def test_a_kill_at_any_statement_does_nothing_twice(service: Service, tmp_path: Path, kills: int, seed: int) -> None:
    """Each failure is continued once, and noted once by a program, or a line of the journal says that it may not be.

    Beside a second bot and a console.
    """
    noted = tmp_path / "noted"
    argv = json.dumps([sys.executable, "-S", "-c", NOTE, str(noted), "{run.id}"])
    notes = automation(f"{{ command = {argv} }}", LIMIT).replace('"r"', '"notes"')
    # However slow the machine, an answer comes in time.
    poll = "[poll]\ndeadline_s = 600\nruns_s = 1\n"
    settings = configured(service, tmp_path, poll + automation('{ continue = "go on" }', LIMIT) + notes)
    environment = environment_of(tmp_path)
    run(command(environment, ONCE))
    dice, ended, rounds = random.Random(seed), 0, 0
    with console(settings):
        while ended < kills:
            now = datetime.now(UTC).isoformat()
            service.runs = [
                {**RUN, "run_id": f"run_{rounds}", "created_at": now, "updated_at": now},
                *service.runs[:20],
            ]
            killed, beside = run(
                command(environment, ONCE, kill_at=dice.randrange(FURTHEST)), command(environment, ONCE)
            )
            assert beside.code in {0, -9}, beside
            ended += (killed.code < 0) + (beside.code < 0)
            rounds += 1
        run(command(environment, ONCE))

    (log,) = run(command(environment, ("automations", "log", "--json", "--limit", str(10 * rounds))))
    decisions = [each for each in json.loads(log.out)["decisions"] if each["at"]]
    sent = [str(json.loads(request.body)["run_id"]) for request in service.posted]
    lines = noted.read_text().split()
    expected = {f"run_{number}" for number in range(rounds)}
    assert len(sent) == len(set(sent))
    assert len(lines) == len(set(lines))
    for rule, done in (("r", sent), ("notes", lines)):
        mine = {each["set_off_by"].split(":")[1]: each["outcome"] for each in decisions if each["rule"] == rule}
        assert mine.keys() == expected
        assert {run for run, outcome in mine.items() if outcome == "done"} <= set(done)
        assert {mine[run] for run in expected - set(done)} <= {"interrupted"}
        assert {"acting", "queued"}.isdisjoint(mine.values())
        print(f"{rule}: {ended} kills in {rounds} rounds; {Counter(mine.values())}")


def environment_of(folder: Path) -> dict[str, str]:
    """The environment of a command with the configuration in this folder."""
    more = {"RUNWARDEN_BASE_URL": "", "RUNWARDEN_DATA_DIR": "", "RUNWARDEN_CONFIG": str(folder / "config.toml")}
    return {name: value for name, value in (CommandLine(folder, more=more).environment | more).items() if value}


@pytest.mark.parametrize("kills", [4, pytest.param(500, marks=[pytest.mark.campaign, pytest.mark.timeout(0)])])
def test_every_failure_is_told_at_least_once(service: Service, tmp_path: Path, kills: int) -> None:
    """By a rule and by `[notify] on`, with two bots at once; what was sent twice has one number."""
    noted = tmp_path / "noted"
    argv = json.dumps([sys.executable, "-S", "-c", NUMBERED, str(noted), "{id}"])
    notify = '[notify]\non = ["failed"]\ngroup_wait = "0s"\ngroup_interval = "0s"\n[[notify.rules]]\nroute = "oncall"\n'
    rule = automation('{ notify = "oncall" }', "limit = { per_hour = 10000, per_day = 10000 }")
    route = f"[notify.routes.oncall]\ncommand = {argv}\n"
    configured(service, tmp_path, f"[poll]\ndeadline_s = 600\n{notify}{route}{rule}")
    environment = environment_of(tmp_path)
    run(command(environment, ONCE))
    dice, ended = random.Random(kills), 0
    for number in range(kills):
        now = datetime.now(UTC).isoformat()
        service.runs = [{**RUN, "run_id": f"run_{number}", "created_at": now, "updated_at": now}, *service.runs[:20]]
        killed, beside = run(
            command(environment, ONCE, kill_at=dice.randrange(FURTHEST_TOLD)), command(environment, ONCE)
        )
        assert beside.code in {0, -9}, beside
        ended += killed.code < 0
    for _ in range(4):
        run(command(environment, ONCE))

    (log,) = run(command(environment, ("notify", "log", "--json", "--limit", "10000")))
    messages = json.loads(log.out)["deliveries"]
    assert ended > kills / 6
    assert {each["outcome"] for each in messages} == {"delivered"}
    assert {str(each["number"]) for each in messages} == set(noted.read_text().split())
    for title in ("r: acme/api failed", "Run failed: acme/api"):
        counts = [each["count"] for each in messages if each["title"].startswith(title)]
        assert sum(counts) == kills, title
