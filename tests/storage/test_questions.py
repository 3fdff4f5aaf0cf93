"""What agents ask, held with the runs."""

from datetime import timedelta

from storage.cache.cache import Cache
from storage.records.results import OpenQuestion
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
    await cache.store_questions([ASKED], due)
    still_due, held = await cache.questions_due(), await cache.questions()
    await cache.store_runs([make_run(1, "failed", updated_at=LATER)], LATER)
    again = await cache.questions()
    await cache.store_questions([ASKED], await cache.questions_due())
    settled = await cache.questions_due()
    await cache.store_runs([make_run(1, "queued", updated_at=LATER)], LATER)

    assert (none_due, due, still_due, settled) == (0, 1, 2, 0), "a failure while they were asked for is not lost"
    assert held == {"run_0001": ASKED}
    assert again == {}
    assert await cache.questions() == {}
