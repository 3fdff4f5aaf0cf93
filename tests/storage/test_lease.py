"""The lease: one holder at a time, and free again when it is not renewed."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path

import pytest

from storage.state import State

CLAIM = """
async with await State.open(Path(path)) as state:
    await start()
    print(await state.acquire_lease("poller", number, 60))
"""


@pytest.fixture
async def lease(tmp_path: Path, clock: Callable[[], datetime]) -> AsyncIterator[State]:
    async with await State.open(tmp_path / "state.sqlite3", clock=clock) as state:
        yield state


STORIES = {
    "one at a time": [("ann", True), ("bob", False), ("ann", True)],
    "it runs out": [("ann", True), 29, ("bob", False), 1, ("bob", True), ("ann", False)],
    "renewed from now, not from the end of the old term": [("ann", True), 20, ("ann", True), 20, ("bob", False)],
    "only the holder releases": [("ann", True), ("bob", "leaves"), ("bob", False), ("ann", "leaves"), ("bob", True)],
    "a clock a little behind takes nothing": [("ann", True), -2, ("bob", False)],
    "a clock set back does not lock everybody out": [("ann", True), -86_400, ("bob", True)],
}
"""Of a lease of thirty seconds: who asks and whether it is granted, who leaves, and how the clock moves."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_one_holds_it_until_the_term_ends(
    lease: State, forward: Callable[[float], None], story: list[float | tuple[str, bool | str]]
) -> None:
    """And another name is another lease."""
    for step in story:
        match step:
            case (who, "leaves"):
                await lease.release_lease("poller", who)
            case (who, granted):
                assert await lease.acquire_lease("poller", who, 30) is granted
            case seconds:
                forward(seconds)
    assert await lease.acquire_lease("backfill", "eve", 30)


def test_processes_that_claim_at_once_get_one_lease(race: Callable[..., list[str]], tmp_path: Path) -> None:
    """Exactly one of them."""
    assert sorted(race(CLAIM, 6, str(tmp_path / "state.sqlite3"))) == ["False"] * 5 + ["True"]
