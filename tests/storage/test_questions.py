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


async def statuses(cache: Cache) -> list[tuple[str, list[tuple[str | None, str]]]]:
    """Each run's status and how it came to it."""
    details = await cache.details(("run_0001", "run_0002"))
    return [(each.run.status, [(move.old, move.new) for move in each.transitions]) for each in details.values()]


async def test_a_run_that_was_cancelled_did_not_fail(cache: Cache) -> None:
    """It has a status of its own as soon as it is cancelled from here, or the service tells that it was."""
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


async def test_a_run_is_cancelled_until_it_goes_on(cache: Cache) -> None:
    """Also while the service names others only; a later answer that says failed is believed until it is told.

    A poll may show the run before the answer to the cancellation is stored: it replaces the failure.
    """
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
