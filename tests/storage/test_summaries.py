"""Stored results of runs: findings, agents, words and questions."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from storage.cache.cache import Cache
from storage.records import RunFilter, RunSort, RunSummary
from storage.records.results import FailureFacts, FindingCounts, OpenQuestion
from tests.storage.conftest import NOON, make_run

KNOWN = {
    1: ("claude", FindingCounts(blocker=1)),
    2: ("reviewer", FindingCounts(major=2, note=2000)),
    3: ("reviewer", FindingCounts(finding=1)),
    4: ("claude", FindingCounts()),
    5: ("claude", None),
}
"""Summaries by the run's number; nothing is known of run 6."""


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
    """The numbers of the matching runs, equal as rows and as a count."""
    rows = await cache.rows(wanted, sort or RunSort(), offset=0, limit=99)
    assert await cache.count(wanted) == len(rows)
    return [int(row.run_id[-4:]) for row in rows]


async def test_unknown_findings_match_no_filter(told: Cache) -> None:
    """A run with unknown findings has neither some nor none, and one without a known agent matches no agent."""
    for wanted, numbers in (
        (RunFilter(findings=("blocker",)), [1]),
        (RunFilter(findings=("note",)), [2]),
        (RunFilter(findings=("any",)), [1, 2, 3]),
        (RunFilter(findings=("none",)), [4]),
        (RunFilter(findings=("unknown",)), [5, 6]),
        (RunFilter(not_findings=("blocker",)), [2, 3, 4]),
        (RunFilter(not_findings=("unknown",)), [1, 2, 3, 4]),
        (RunFilter(agents=("claude",)), [1, 4, 5]),
        (RunFilter(agents=("",)), [6]),
        (RunFilter(not_agents=("claude",)), [2, 3]),
        (RunFilter(not_agents=("",)), [1, 2, 3, 4, 5]),
        (RunFilter(search="faster done"), [1, 2, 3, 4, 5]),
    ):
        assert await found(told, wanted) == numbers, wanted

    # The most severe come first, the newest among equals, unknown ones last; the other direction is the exact reverse.
    worst = await found(told, RunFilter(), RunSort("findings"))
    assert worst == [1, 2, 3, 4, 5, 6]
    assert await found(told, RunFilter(), RunSort("findings", descending=False)) == worst[::-1]
    assert await found(told, RunFilter(), RunSort("agent")) == [2, 3, 1, 4, 5, 6]
    assert await told.agents() == ("claude", "reviewer")


async def test_a_changed_runs_findings_are_dropped(told: Cache) -> None:
    """The old result's text is dropped too; its agent and instructions stay, and other fields do not affect this."""
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


LATER = NOON + timedelta(minutes=1)
ASKED = OpenQuestion("run_0001", "Which database?", ("SQLite",))


async def test_a_question_lasts_until_the_next_turn(cache: Cache) -> None:
    """A run that fails again asks another question or none; one that completed asks nothing."""
    await cache.store_runs([make_run(1, "completed"), make_run(2)], NOON)
    none_due = await cache.questions_due()
    await cache.store_runs([make_run(1, "failed")], NOON)
    due = await cache.questions_due()
    await cache.store_runs([make_run(2, "failed")], NOON)
    await cache.store_failure_facts(FailureFacts((ASKED,)), due)
    still_due, held = await cache.questions_due(), await cache.questions()
    await cache.store_runs([make_run(1, "failed", updated_at=LATER)], LATER)
    again = await cache.questions()
    await cache.store_failure_facts(FailureFacts((ASKED,)), await cache.questions_due())
    settled = await cache.questions_due()
    await cache.store_runs([make_run(1, "queued", updated_at=LATER)], LATER)

    assert (none_due, due, still_due, settled) == (0, 1, 2, 0), "a failure while they were asked for is not lost"
    assert held == {"run_0001": ASKED}
    assert again == {}
    assert await cache.questions() == {}


async def statuses(cache: Cache) -> list[tuple[str, list[tuple[str | None, str]]]]:
    """Each run's status and its transitions."""
    details = await cache.details(("run_0001", "run_0002"))
    return [(each.run.status, [(move.old, move.new) for move in each.transitions]) for each in details.values()]


async def test_a_cancelled_run_did_not_fail(cache: Cache) -> None:
    """A run counts as cancelled as soon as it was cancelled from here or the service reports that."""
    await cache.store_runs([make_run(1), make_run(2, "failed")], NOON)
    await cache.store_runs([make_run(1, "failed")], NOON, cancelled=("run_0001",))
    one = await statuses(cache)
    changed = await cache.store_failure_facts(FailureFacts(cancelled=("run_0002", "run_none")), 1)
    again = await cache.store_failure_facts(FailureFacts(cancelled=("run_0002",)), 1)
    both = await statuses(cache)
    counts = await cache.status_counts(RunFilter())
    found = await cache.rows(RunFilter(statuses=("cancelled",), ended=True), RunSort("status"), offset=0, limit=9)
    (figures,) = await cache.outcomes((NOON - timedelta(days=9), NOON + timedelta(days=1)))

    assert one[0] == ("cancelled", [(None, "working"), ("working", "cancelled")])
    assert one[1] == ("failed", [(None, "failed")])
    assert (changed, again) == (("run_0002",), ())
    assert both == [one[0], ("cancelled", [(None, "cancelled")])]
    assert counts == {"cancelled": 2}
    assert {row.run_id for row in found} == {"run_0001", "run_0002"}
    assert (figures.failed, figures.ended_otherwise) == (0, 2)
    assert '"failed"' in (await cache.details(("run_0001",)))["run_0001"].run.raw_json, "as received"


async def test_a_run_stays_cancelled_until_continued(cache: Cache) -> None:
    """A poll may have seen it fail before; a later answer that says failed counts until it is corrected."""
    await cache.store_runs([make_run(1)], NOON)
    await cache.store_runs([make_run(1, "failed")], NOON)
    await cache.store_runs([make_run(1, "failed")], NOON, cancelled=("run_0001",))
    first = (await statuses(cache))[0]
    await cache.store_failure_facts(FailureFacts(), await cache.questions_due())
    await cache.store_runs([make_run(1, "failed", branch="renamed")], NOON)
    same, due = await cache.status_counts(RunFilter()), await cache.questions_due()
    await cache.store_runs([make_run(1, "failed", updated_at=LATER)], LATER)
    later = await cache.status_counts(RunFilter())
    await cache.store_failure_facts(FailureFacts(cancelled=("run_0001",)), await cache.questions_due())
    told, moves = await cache.status_counts(RunFilter()), (await statuses(cache))[0][1]
    await cache.store_runs([make_run(1, "queued", updated_at=LATER)], LATER)

    assert first == ("cancelled", [(None, "working"), ("working", "cancelled")])
    assert (same, later, told) == ({"cancelled": 1}, {"failed": 1}, {"cancelled": 1})
    assert moves == [(None, "working"), ("working", "cancelled")]
    assert due
    assert await cache.status_counts(RunFilter()) == {"queued": 1}


async def test_a_runs_instructions_outlive_its_result(cache: Cache) -> None:
    """Rows and details show them; those of a run that is not cached are not stored."""
    (run,) = runs = [make_run(1, "failed")]
    await cache.store_runs(runs, NOON)
    told = RunSummary("Make it \ud800 dark", "No compiler.", "fixer", 2, "failed", run.updated_at)
    await cache.store_summary("run_0001", told)
    await cache.store_summary("run_none", told)
    held = await cache.details(["run_0001"])
    before = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    await cache.store_runs([make_run(1, "queued", updated_at=LATER)], LATER)
    (after,) = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)

    assert [row.summary.result for row in before] == ["No compiler."]
    assert held["run_0001"].summary == before[0].summary
    assert after.summary == RunSummary(before[0].summary.asked, agent="fixer")
