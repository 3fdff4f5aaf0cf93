"""Commands that are killed at any moment, several at once: nothing sent twice, nothing forgotten."""

import asyncio
import json
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.actions import peer as plays
from tests.actions.accounts import Accounts
from tests.actions.forks import command, environment, forks
from tests.actions.peer import FaultyPeer

AT_ONCE = 3
STATEMENTS = 26
"""Somewhat more than a command's SQL statements on files that exist."""
FIRST_STATEMENTS = 110
"""As above, where it makes the files."""
ROUNDS_A_FOLDER = 8
PLAYED = (plays.succeed, plays.succeed, plays.succeed, plays.odd_success, plays.truncate, plays.finish_silently)


def start(mark: str, *more: str, **kill: Any) -> dict[str, Any]:
    return command("runs", "start", "-R", "acme/api", mark, "--json", *more, **kill)


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(50, 1, id="50"),
        pytest.param(5_000, None, id="5000", marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)]),
    ],
)
async def test_commands_killed_at_any_statement_leave_three_accounts_that_agree(
    tmp_path: Path, kills: int, seed: int | None, record_testsuite_property: Callable[..., None]
) -> None:
    """Three at once on one ledger: some killed as their n-th SQL statement begins, some after a while, some not."""
    rng = random.Random(seed)
    peer = FaultyPeer(rng, PLAYED, unread=0.05)
    accounts = Accounts(peer)
    killed, number = 0, count()
    folders: list[Path] = []
    async with peer.listening() as address:
        while killed < kills:
            folders.append(tmp_path / f"folder-{len(folders)}")
            folders[-1].mkdir()
            with forks(environment(folders[-1], address)) as forked:
                for round_ in range(ROUNDS_A_FOLDER):
                    most = STATEMENTS if round_ else FIRST_STATEMENTS
                    marks = [f"mark-{next(number)}" for _ in range(AT_ONCE)]
                    first = start(marks[0], kill_at=rng.randrange(most))
                    second = start(marks[1], kill_after_s=rng.uniform(0, 0.3))
                    third = start(marks[2]) if round_ % 2 else start(marks[2], kill_at=rng.randrange(most))
                    results = await asyncio.to_thread(forked.run, first, second, third)
                    killed += sum(result["code"] == -9 for result in results)
                    for mark, result in zip(marks, results, strict=True):
                        if result["code"] >= 0:
                            accounts.hear(mark, result["code"], json.loads(result["out"]))
    ledgers = [file for folder in folders for file in folder.rglob("ledger.sqlite3")]
    contradictions = await accounts.contradictions(*ledgers, ours=False)

    figures = f"{killed} kills; {dict(accounts.states)}; executed {peer.executed.total()}"
    record_testsuite_property("kills", figures)
    print(figures)  # noqa: T201 — the figures are what one runs the campaign for
    assert contradictions == []


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, id="3"),
        pytest.param(10_000, id="10000", marks=[pytest.mark.campaign, pytest.mark.timeout(28_800)]),
    ],
)
async def test_one_key_in_eight_processes_is_sent_once(tmp_path: Path, rounds: int) -> None:
    """At the same moment, whatever the service answers: one send, and eight reports of the same result."""
    peer = FaultyPeer(random.Random(rounds), (plays.succeed, plays.succeed_late, plays.odd_success), unread=0)
    async with peer.listening() as address:
        with forks(environment(tmp_path, address)) as forked:
            for number in range(rounds):
                mark = f"mark-{number}"
                results = await asyncio.to_thread(forked.run, *[start(mark, "--key", mark)] * 8)

                reports = [(json.loads(result["out"]), result["code"]) for result in results]
                assert peer.received[mark] == 1
                ((_, state, _),) = {(document["action_id"], document["state"], code) for document, code in reports}
                assert state in {"confirmed", "unknown"}
