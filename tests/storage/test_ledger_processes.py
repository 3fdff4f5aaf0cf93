"""The ledger between processes: one of many claims wins, and dead processes' actions are settled by others."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from storage import claims
from storage.claims import Owner, is_dead, this_process
from storage.errors import SubjectBlockedError
from storage.ledger import Ledger
from storage.records import Action
from tests.lab import Clock
from tests.program import ROOT
from tests.storage.conftest import race

Prepare = Callable[..., Awaitable[Action]]

CLAIM = """
key, subject = more
async with await Ledger.open(Path(path)) as ledger:
    await start()
    try:
        action = await ledger.prepare(entry(key.replace("NUMBER", number), subject))
        print("prepared", action.action_id)
    except (KeyTakenError, SubjectBlockedError) as refusal:
        print(type(refusal).__name__, refusal.existing.action_id)
"""

SENDER = """
import asyncio, sys
from pathlib import Path
from storage.ledger import Ledger
from tests.storage.conftest import entry

async def main():
    ledger = await Ledger.open(Path(sys.argv[1]))
    for state in sys.argv[2:]:
        action = await ledger.prepare(entry(state, state))
        if state == "sending":
            await ledger.sending(action.action_id)
    print("there", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("key", "subject", "refusal"),
    [("one key", "", "KeyTakenError"), ("key NUMBER", "ann@acme.test", "SubjectBlockedError")],
)
def test_exactly_one_of_many_claims_is_prepared(ledger_path: Path, key: str, subject: str, refusal: str) -> None:
    """The claims may share the key, or the subject under different keys; the losers get the winner's action."""
    answers = race(CLAIM, 4, str(ledger_path), key, subject)

    winners = [answer.split()[1] for answer in answers if answer.startswith("prepared")]
    assert len(winners) == 1
    assert sorted(answers) == sorted([f"{refusal} {winners[0]}"] * 3 + [f"prepared {winners[0]}"])


def sending_process(path: Path) -> Popen[str]:
    """A real process, not a fork of another one, that waits after recording two actions."""
    argv = [sys.executable, "-c", SENDER, str(path), "prepared", "sending"]
    return Popen(argv, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)


async def test_a_killed_senders_actions_are_resolved(ledger: Ledger, ledger_path: Path, prepare: Prepare) -> None:
    """Prepared becomes not sent, and sending becomes unknown and blocks, even for a zombie.

    A living owner settles its own.
    """
    await prepare("ours", subject="ours")
    with sending_process(ledger_path) as sender:
        assert sender.stdout.readline() == "there\n"
        assert await ledger.adopt_orphans() == ()
        sender.kill()
        await asyncio.to_thread(os.waitid, os.P_PID, sender.pid, os.WEXITED | os.WNOWAIT)
        prepared, sending = await ledger.adopt_orphans()

    assert (prepared.subject, prepared.state) == ("prepared", "not_sent")
    assert (sending.subject, sending.state) == ("sending", "unknown")
    assert sending.error.kind == "crashed"
    assert sending.is_open
    assert await ledger.adopt_orphans() == ()
    assert {action.state for action in await ledger.actions()} == {"prepared", "not_sent", "unknown"}


async def test_a_dead_senders_action_blocks_as_unknown(ledger: Ledger, prepare: Prepare) -> None:
    """The error says to find out what happened, not to wait for a process that no longer exists."""
    await ledger.sending((await prepare("1")).action_id)
    await ledger.writer.run(
        lambda c: c.execute("UPDATE actions SET owner_json = json_set(owner_json, '$[0]', ?)", (2**22 + 1,))
    )

    with pytest.raises(SubjectBlockedError) as blocked:
        await prepare("2")

    assert blocked.value.existing.state == "unknown"


@pytest.mark.parametrize(
    ("place", "value", "age_s", "adopted"),
    [
        (1, "1", 0, True),
        (2, "another boot", 0, True),
        (0, 2**22 + 1, 0, True),
        (3, "pid:[another container]", 0, False),
        (3, "pid:[another container]", 3601, True),
    ],
)
async def test_a_reused_process_number_is_not_the_owner(
    ledger: Ledger,
    prepare: Prepare,
    clock: Clock,
    place: int,
    value: str | int,
    age_s: int,
    *,
    adopted: bool,
) -> None:
    """A reused process number, another boot or an impossible number means dead.

    In another container only time decides.
    """
    await prepare()
    await ledger.writer.run(
        lambda c: c.execute(f"UPDATE actions SET owner_json = json_set(owner_json, '$[{place}]', ?)", (value,))
    )
    clock.move(seconds=age_s)

    assert len(await ledger.adopt_orphans()) == int(adopted)


def test_without_proc_a_process_is_identified_in_any_locale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside Linux, ps is used; without an answer, no process counts as dead."""
    assert is_dead(this_process()) is False
    monkeypatch.setattr(claims, "PROC", tmp_path)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    ourselves = this_process()
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    assert ourselves.started != claims.NOT_REPORTED
    assert is_dead(ourselves) is False
    assert is_dead(Owner(ourselves.pid, "?", "?", "?")) is False
    with Popen(["true"]) as ended:
        ended.wait()
    assert is_dead(Owner(ended.pid, ourselves.started, ourselves.boot, ourselves.namespace)) is True

    monkeypatch.setenv("PATH", str(tmp_path))

    assert is_dead(ourselves) is False
