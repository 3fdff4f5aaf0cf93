"""What agents ask, and what runs are about, held with the runs."""

from datetime import timedelta

from storage.cache.cache import Cache
from storage.records import RunFilter, RunSort, RunSummary
from storage.records.results import FailureFacts, OpenQuestion
from tests.storage.conftest import NOON, make_run

LATER = NOON + timedelta(minutes=1)
ASKED = OpenQuestion("run_0001", "Which database?", ("SQLite",))


async def test_a_question_is_due_after_a_failure_and_gone_with_the_next(cache: Cache) -> None:
    """A run that failed again asks something else, or nothing; one that completed asks nothing."""
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


async def test_a_run_is_cancelled_until_it_goes_on(cache: Cache) -> None:
    """It is noted before the service tells it, and what the service tells replaces it."""
    await cache.store_runs([make_run(1), make_run(2)], NOON)
    await cache.note_cancelled("run_0001")
    working = await cache.cancelled_runs()
    await cache.store_runs([make_run(1, "failed"), make_run(2, "failed")], NOON)
    ended = await cache.cancelled_runs()
    await cache.store_failure_facts(FailureFacts(cancelled=("run_0002", "run_none")), await cache.questions_due())
    told = await cache.cancelled_runs()
    await cache.store_runs([make_run(2, "queued", updated_at=LATER)], LATER)

    assert (working, ended, told) == (frozenset(), {"run_0001"}, {"run_0002"})
    assert await cache.cancelled_runs() == frozenset()


async def test_what_a_run_was_asked_outlives_its_states_and_its_result_does_not(cache: Cache) -> None:
    """Rows and details have it; that of a run which is not held is not kept."""
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
