"""Commands that are killed at any moment, several at once: nothing sent twice, nothing forgotten."""

import asyncio
import json
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.actions import peer as plays
from tests.actions.accounts import Accounts
from tests.actions.forks import Forks, command, environment, forks
from tests.actions.peer import FaultyPeer, seeded

AT_ONCE = 3
STATEMENTS = 26
"""Somewhat more than a command's SQL statements on files that exist."""
FIRST_STATEMENTS = 110
"""As above, where it makes the files."""
ROUNDS_A_FOLDER = 8
ROUNDS_A_PROCESS = 20
PLAYED = (plays.succeed, plays.succeed, plays.succeed, plays.odd_success, plays.truncate, plays.end_silently)


@pytest.fixture(scope="module")
def forked() -> Iterator[Forks]:
    with forks() as each:
        yield each


def start(mark: str, *more: str) -> tuple[str, ...]:
    return ("runs", "start", "-R", "acme/api", mark, "--json", *more)


def three(rng: random.Random, given: dict[str, str], marks: list[str], round_: int) -> list[dict[str, Any]]:
    """One killed at a statement, one after a while, and one of many kinds, in the last round the program itself."""
    most = STATEMENTS if round_ else FIRST_STATEMENTS
    third: dict[str, Any] = {} if round_ % 2 else {"kill_at": rng.randrange(most)}
    if round_ == ROUNDS_A_FOLDER - 1:
        third = {"is_program": True, "kill_after_s": rng.choice([0, rng.uniform(0.1, 1.0)])}
    return [
        command(given, start(marks[0]), kill_at=rng.randrange(most)),
        command(given, start(marks[1]), kill_after_s=rng.uniform(0.001, 0.3)),
        command(given, start(marks[2]), **third),
    ]


@pytest.mark.parametrize("size", [8, pytest.param(5_000, marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)])])
async def test_commands_killed_at_any_statement_leave_three_accounts_that_agree(
    tmp_path: Path, forked: Forks, size: int
) -> None:
    """Three at once on one ledger: some killed as their n-th SQL statement begins, some after a while, some not."""
    peer, marks, kills = FaultyPeer(rng := seeded(size), PLAYED, unread=0.05), count(), 0
    accounts = Accounts(peer)
    folders: list[Path] = []
    async with peer.listening() as address:
        while kills < size:
            folders.append(tmp_path / f"{len(folders)}")
            folders[-1].mkdir()
            given = environment(folders[-1], address)
            for round_ in range(ROUNDS_A_FOLDER):
                names = [f"mark-{next(marks)}" for _ in range(AT_ONCE)]
                results = await asyncio.to_thread(forked.run, *three(rng, given, names, round_))
                for mark, (result,) in zip(names, results, strict=True):
                    kills += result["code"] < 0
                    if result["code"] >= 0:
                        accounts.hear(mark, result["code"], json.loads(result["out"]))
    ledgers = [file for folder in folders for file in folder.rglob("ledger.sqlite3")]

    assert await accounts.contradictions(*ledgers, ours=False) == []


@pytest.mark.parametrize("size", [1, pytest.param(10_000, marks=[pytest.mark.campaign, pytest.mark.timeout(28_800)])])
async def test_one_key_in_eight_processes_is_sent_once(tmp_path: Path, forked: Forks, size: int) -> None:
    """At the same moment, whatever the service answers: one send, and eight reports of the same result."""
    peer = FaultyPeer(seeded(size), (plays.succeed, plays.succeed_late, plays.odd_success), unread=0)
    async with peer.listening() as address:
        given = environment(tmp_path, address)
        for first in range(0, size, ROUNDS_A_PROCESS):
            marks = [f"mark-{number}" for number in range(first, min(size, first + ROUNDS_A_PROCESS))]
            asked = command(given, *(start(mark, "--key", mark) for mark in marks))
            # For the first key, a ninth one is the program itself.
            results = await asyncio.to_thread(forked.run, *[asked] * 8, asked | {"is_program": True})

            for n, mark in enumerate(marks):
                reports = [(json.loads(lines[n]["out"]), lines[n]["code"]) for lines in results if n < len(lines)]
                assert peer.received[mark] == 1
                ((_, state, _),) = {(document["action_id"], document["state"], code) for document, code in reports}
                assert state in {"confirmed", "unknown"}
