"""Bots killed as any of their SQL statements begins, and between sending and noting it: no message is lost."""

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.actions.forks import Forks, command, forks
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_kills import environment_of

__all__ = ["service"]
ONCE = ("watch", "--once")
NOTE = """
import os, signal, sys
noted = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_RDWR)
is_first = sys.argv[2] not in os.read(noted, 10**8).decode().split()
os.write(noted, (sys.argv[2] + chr(10)).encode())
if is_first and int(sys.argv[2]) % 3 == 0:
    os.kill(os.getppid(), signal.SIGKILL)
"""
"""Every third message ends the bot that sends it: it is sent, and not entered as delivered."""
FURTHEST = 150
"""About as many SQL statements as a bot makes for one failed run."""


@pytest.fixture(scope="module")
def forked() -> Iterator[Forks]:
    with forks() as process:
        yield process


@pytest.mark.parametrize("kills", [4, pytest.param(500, marks=[pytest.mark.campaign, pytest.mark.timeout(0)])])
def test_every_failure_is_told_at_least_once(service: Service, forked: Forks, tmp_path: Path, kills: int) -> None:
    """By a rule and by `[notify] on`, with two bots at once; what was sent twice has one number."""
    noted = tmp_path / "noted"
    argv = json.dumps([sys.executable, "-S", "-c", NOTE, str(noted), "{id}"])
    notify = '[notify]\non = ["failed"]\ngroup_wait = "0s"\ngroup_interval = "0s"\n[[notify.rules]]\nroute = "oncall"\n'
    rule = automation('{ notify = "oncall" }', "limit = { per_hour = 10000, per_day = 10000 }")
    route = f"[notify.routes.oncall]\ncommand = {argv}\n"
    configured(service, tmp_path, f"[poll]\ndeadline_s = 600\n{notify}{route}{rule}")
    environment = environment_of(tmp_path)
    forked.run(command(environment, ONCE))
    dice, ended = random.Random(kills), 0
    for number in range(kills):
        now = datetime.now(UTC).isoformat()
        service.runs = [{**RUN, "run_id": f"run_{number}", "created_at": now, "updated_at": now}, *service.runs[:20]]
        (killed,), (beside,) = forked.run(
            command(environment, ONCE, kill_at=dice.randrange(FURTHEST)), command(environment, ONCE)
        )
        assert beside["code"] in {0, -9}, beside
        ended += killed["code"] < 0
    for _ in range(4):
        forked.run(command(environment, ONCE))

    ((log,),) = forked.run(command(environment, ("notify", "log", "--json", "--limit", "10000")))
    messages = json.loads(log["out"])["deliveries"]
    assert ended > kills / 6
    assert {each["outcome"] for each in messages} == {"delivered"}
    assert {str(each["number"]) for each in messages} == set(noted.read_text().split())
    for title in ("r: acme/api failed", "Run failed: acme/api"):
        counts = [each["count"] for each in messages if each["title"].startswith(title)]
        assert sum(counts) == kills, title
