"""The findings, agents and words of runs, as far as they are known, are found and sorted by."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from storage.cache.cache import Cache
from storage.records import RunFilter, RunSort, RunSummary
from storage.records.results import FindingCounts
from tests.storage.conftest import NOON, make_run

KNOWN = {
    1: ("claude", FindingCounts(blocker=1)),
    2: ("reviewer", FindingCounts(major=2, note=2000)),
    3: ("reviewer", FindingCounts(finding=1)),
    4: ("claude", FindingCounts()),
    5: ("claude", None),
}
"""By the run's number; nothing is known of run 6."""


@pytest.fixture
async def told(cache: Cache) -> Cache:
    """A cache with the runs of `KNOWN` and one more."""
    runs = [make_run(number, "completed", created_at=NOON - timedelta(hours=number)) for number in range(1, 7)]
    await cache.store_runs(runs, NOON)
    for number, (agent, findings) in KNOWN.items():
        summary = RunSummary(f"Make it FASTER {number}", f"Done {number}", agent, 1, "completed", NOON, findings)
        await cache.store_summary(f"run_{number:04}", summary)
    return cache


async def found(cache: Cache, wanted: RunFilter, sort: RunSort | None = None) -> list[int]:
    """The numbers of the runs, as rows and as a count say."""
    rows = await cache.rows(wanted, sort or RunSort(), offset=0, limit=99)
    assert await cache.count(wanted) == len(rows)
    return [int(row.run_id[-4:]) for row in rows]


async def test_what_is_unknown_is_neither_asked_for_nor_excluded(told: Cache) -> None:
    """A run whose findings nobody knows has neither some nor none, and one without a known agent is nobody's."""
    for wanted, numbers in (
        (RunFilter(findings=("blocker",)), [1]),
        (RunFilter(findings=("blocker", "major")), [1, 2]),
        (RunFilter(findings=("minor",)), []),
        (RunFilter(findings=("note",)), [2]),
        (RunFilter(findings=("any",)), [1, 2, 3]),
        (RunFilter(findings=("none",)), [4]),
        (RunFilter(findings=("unknown",)), [5, 6]),
        (RunFilter(findings=("none", "unknown")), [4, 5, 6]),
        (RunFilter(not_findings=("blocker",)), [2, 3, 4]),
        (RunFilter(not_findings=("unknown",)), [1, 2, 3, 4]),
        (RunFilter(agents=("claude",)), [1, 4, 5]),
        (RunFilter(agents=("re*",)), [2, 3]),
        (RunFilter(agents=("*",)), [1, 2, 3, 4, 5]),
        (RunFilter(agents=("",)), [6]),
        (RunFilter(agents=("", "claude")), [1, 4, 5, 6]),
        (RunFilter(not_agents=("claude",)), [2, 3]),
        (RunFilter(not_agents=("",)), [1, 2, 3, 4, 5]),
        (RunFilter(agents=("claude",), findings=("blocker", "none")), [1, 4]),
        (RunFilter(search="faster done"), [1, 2, 3, 4, 5]),
        (RunFilter(search="REVIEWER"), [2, 3]),
    ):
        assert await found(told, wanted) == numbers, wanted


async def test_the_most_severe_come_first(told: Cache) -> None:
    """The newest first among equals, and the unknown ones last; the exact reverse the other way."""
    worst = await found(told, RunFilter(), RunSort("findings"))
    agents = await found(told, RunFilter(), RunSort("agent"))

    assert worst == [1, 2, 3, 4, 5, 6]
    assert await found(told, RunFilter(), RunSort("findings", descending=False)) == worst[::-1]
    assert agents == [2, 3, 1, 4, 5, 6]
    assert await told.agents() == ("claude", "reviewer")


async def test_a_changed_run_has_no_findings_until_they_are_read_again(told: Cache) -> None:
    """Nor the words of its old result; its agent and instructions stay, and another field changes none of this."""
    same = make_run(1, "completed", created_at=NOON - timedelta(hours=1), branch="renamed")
    await told.store_runs([same], NOON + timedelta(seconds=1))
    unchanged = await found(told, RunFilter(search="renamed done faster", findings=("blocker",)))
    (row,) = await told.rows(RunFilter(search="renamed"), RunSort(), offset=0, limit=1)
    await told.store_runs(
        [replace(same, status="working", updated_at=NOON + timedelta(minutes=1))], NOON + timedelta(minutes=1)
    )
    late = replace(row.summary, result="Late")
    await told.store_summary("run_0001", late)

    assert unchanged == [1]
    assert 1 in await found(told, RunFilter(search="faster", agents=("claude",), findings=("unknown",)))
    assert await found(told, RunFilter(findings=("blocker",))) == []
    assert 1 not in await found(told, RunFilter(search="done"))
    assert await found(told, RunFilter(search="late")) == []
