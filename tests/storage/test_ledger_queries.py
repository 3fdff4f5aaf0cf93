"""Finding actions in the ledger: by id, newest first, by run, and what organizations were asked for."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from storage.ledger import AmbiguousActionError, Ledger, new_action_id
from storage.records import Action, ActionFilter
from tests.storage.conftest import NOON

Prepare = Callable[..., Awaitable[Action]]


async def test_a_prefix_is_enough_where_it_is_unique(ledger: Ledger, prepare: Prepare) -> None:
    """In any case, with or without `act_`; nothing in it is a wildcard."""
    one = await prepare("1", action_id="act_01AAAA", subject="")
    await prepare("2", action_id="act_01AABB", subject="")

    assert await ledger.action("act_01AAA") == one
    assert await ledger.action("01aaa") == one
    assert await ledger.action("act_01%") is None
    with pytest.raises(AmbiguousActionError, match="give more of it"):
        await ledger.action("act_01")


async def test_ids_sort_by_time_and_differ() -> None:
    """Within a millisecond by chance, never twice the same."""
    earlier = {new_action_id(NOON) for _ in range(500)}
    later = {new_action_id(NOON + timedelta(milliseconds=1)) for _ in range(500)}

    assert len(earlier | later) == 1000
    assert max(earlier) < min(later)
    assert all(id_.startswith("act_") and len(id_) == 30 for id_ in earlier)


async def test_actions_are_listed_newest_first(ledger: Ledger, prepare: Prepare) -> None:
    """By kind and state, and never more than asked for."""
    ids = [(await prepare(str(n), subject="", kind=("run.start", "agent.start")[n % 2])).action_id for n in range(4)]
    await ledger.sending(ids[0])

    assert [a.action_id for a in await ledger.actions()] == ids[::-1]
    assert [a.action_id for a in await ledger.actions(ActionFilter(["run.start"]))] == [ids[2], ids[0]]
    assert [a.action_id for a in await ledger.actions(ActionFilter(states={"sending"}))] == [ids[0]]
    assert [a.action_id for a in await ledger.actions(limit=1)] == [ids[3]]


async def test_a_runs_conversation_and_every_organization(ledger: Ledger, prepare: Prepare) -> None:
    """What made it, an agent's start too, and everything meant for it, oldest first; nothing of other runs.

    Organizations come newest first, whatever became of them.
    """
    start = await prepare("1", subject="", kind="run.start")
    await ledger.sending(start.action_id)
    start = await ledger.confirm(start.action_id, result_id="run_1", response_json="{}")
    turn = await prepare("2", subject="run_1", kind="run.continue")
    await prepare("3", subject="run_2", kind="run.continue")
    other = await prepare("4", subject="", kind="agent.start")
    await ledger.sending(other.action_id)
    other = await ledger.confirm(other.action_id, result_id="run_4", response_json="{}")
    organizations = [await prepare(str(n), subject=f"{n}@acme.test") for n in (5, 6)]

    assert await ledger.for_run("run_1") == (start, turn)
    assert await ledger.for_run("run_4") == (other,)
    assert await ledger.organizations() == tuple(reversed(organizations))
