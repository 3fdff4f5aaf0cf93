"""Bots killed at any of their SQL statements act at most once and lose no message."""

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
from typing import Any

import pytest

from app.engine.engine import Engine
from app.profiles import Settings
from tests.actions.test_campaign import command, run
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.cli.conftest import CommandLine
from tests.lab import Respond

__all__ = ["service"]
ONCE = ("watch", "--once")
WEB = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}
RULES = ("r", "notes", "tells")
FURTHEST = 400
"""More than the number of SQL statements that a bot executes for one failed run."""
NOTE = """
import os, signal, sys
noted = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_RDWR)
is_first = sys.argv[2] not in os.read(noted, 10**8).decode().split()
os.write(noted, (sys.argv[2] + chr(10)).encode())
if is_first and int(sys.argv[2].removeprefix("run_")) % 4 == 0:
    os.kill(os.getppid(), signal.SIGKILL)
"""
"""Every fourth time it kills the bot that started it, so that its effect is done but not recorded."""


@contextmanager
def console(settings: Settings) -> Iterator[None]:
    """The engine of a console that polls and shares every file of the folder."""
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


def rules(noted: Path, told: Path) -> str:
    """Rules that continue, run a program and notify, by an automation and by `[notify] on`."""
    limit = "limit = { per_hour = 10000, per_day = 10000 }\npause_after = 0"
    note, tell = (
        json.dumps([sys.executable, "-S", "-c", NOTE, str(file), word])
        for file, word in ((noted, "{run.id}"), (told, "{id}"))
    )
    notify = '[notify]\non = ["failed"]\ngroup_wait = "0s"\ngroup_interval = "0s"\n[[notify.rules]]\nroute = "oncall"\n'
    what = dict(zip(RULES, ('{ continue = "go on" }', f"{{ command = {note} }}", '{ notify = "oncall" }'), strict=True))
    # Answers arrive in time even on a slow machine.
    return f"[poll]\ndeadline_s = 600\nruns_s = 1\n{notify}[notify.routes.oncall]\ncommand = {tell}\n" + "".join(
        automation(do, limit).replace('"r"', f'"{name}"') for name, do in what.items()
    )


SHARDS = [pytest.param(100, seed, marks=[pytest.mark.campaign, pytest.mark.timeout(0)]) for seed in range(1, 11)]


@pytest.mark.parametrize(("kills", "seed"), [(4, 0), *SHARDS])
def test_a_kill_at_any_statement_does_nothing_twice(service: Service, tmp_path: Path, kills: int, seed: int) -> None:
    """Each failure is continued and run through a program at most once, even beside a second bot and a console.

    If the outcome is unknown, the journal says so; that includes a continuation that waits for its run. Each failure is
    notified at least once, and duplicates have the same number.
    """
    noted, told = tmp_path / "noted", tmp_path / "told"
    settings = configured(service, tmp_path, rules(noted, told))
    more = {"RUNWARDEN_BASE_URL": "", "RUNWARDEN_DATA_DIR": "", "RUNWARDEN_CONFIG": str(tmp_path / "config.toml")}
    own = CommandLine(tmp_path, more=more).environment
    environment = {name: value for name, value in (own | more).items() if value}
    service.to_post = Respond(201, {**RUN, "run_id": "made", "status": "queued"})

    def logged(log: str, part: str) -> list[dict[str, Any]]:
        (said,) = run(command(environment, (log, "log", "--json", "--limit", "10000")))
        return list(json.loads(said.out)[part])

    run(command(environment, ONCE))
    dice, ended, rounds = random.Random(seed), 0, 0
    with console(settings):
        while ended < kills:
            now = datetime.now(UTC).isoformat()
            new = {**RUN, "run_id": f"run_{rounds}", "created_at": now, "updated_at": now}
            other = {**new, "run_id": f"other_{rounds}", "status": "working", "repository": WEB}
            earlier = service.runs[:40]
            service.runs = [other, *earlier]
            line = ("runs", "continue", other["run_id"], "--when-ended", "--json", f"After {rounds}.")
            (asked,) = run(command(environment, line))
            assert json.loads(asked.out)["state"] == "waiting", asked
            service.runs = [new, {**other, "status": "completed"}, *earlier]
            killed, beside = run(
                command(environment, ONCE, kill_at=dice.randrange(FURTHEST)), command(environment, ONCE)
            )
            assert beside.code in {0, -9}, beside
            ended += (killed.code < 0) + (beside.code < 0)
            rounds += 1
        for _ in range(4):
            run(command(environment, ONCE))

    decisions = [each for each in logged("automations", "decisions") if each["at"]]
    posted = [json.loads(request.body) for request in service.posted]
    sent = [str(body["run_id"]) for body in posted if body["instructions"] == "go on"]
    after = [body["instructions"] for body in posted if body["instructions"] != "go on"]
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
    waited = {each["request"]: each["outcome"] for each in decisions if each["rule"] not in RULES}
    said = {json.loads(request)["body"]["instructions"] for request, outcome in waited.items() if outcome == "done"}
    assert (len(waited), len(after)) == (rounds, len(set(after)))
    assert set(waited.values()) <= {"done", "unknown"}
    assert said <= set(after)
    messages = logged("notify", "deliveries")
    assert {each["outcome"] for each in messages} == {"delivered"}
    assert {str(each["number"]) for each in messages} == set(told.read_text().split())
    for title in ("tells: acme/api failed", "Run failed: acme/api"):
        assert sum(each["count"] for each in messages if each["title"].startswith(title)) == rounds, messages
