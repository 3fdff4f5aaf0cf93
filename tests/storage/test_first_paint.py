"""The first picture is the cache's own, read without the rest of the program."""

from datetime import timedelta
from pathlib import Path

import pytest

from storage.cache.cache import Cache
from storage.cache.first_paint import FirstPaint, peek
from storage.records import HealthSample, PollOutcome, RunFilter, RunSort
from tests.storage.conftest import NOON, make_run


@pytest.mark.parametrize(("wanted", "is_open"), [(RunFilter(search="job-1"), True), (RunFilter(active=True), False)])
async def test_the_first_picture_equals_the_caches(cache_path: Path, wanted: RunFilter, *, is_open: bool) -> None:
    """Row by row, beside a cache that is open elsewhere or not."""
    cache = await Cache.open(cache_path)
    statuses = ("queued", "completed", "failed")
    runs = [make_run(n, statuses[n % 3], created_at=NOON - n * timedelta(seconds=1)) for n in range(30)]
    await cache.store_runs(runs, asked_at=NOON)
    await cache.store_health((HealthSample("github", "ok", None, None, "{}"),), at=NOON)
    await cache.record_poll(PollOutcome("runs", NOON))
    await cache.extend_coverage(None, NOON)
    expected = FirstPaint(
        rows=await cache.rows(wanted, RunSort(), offset=0, limit=7),
        held=await cache.count(RunFilter()),
        total=await cache.count(wanted),
        links=await cache.links(),
        health=await cache.health(),
        coverage=await cache.coverage(),
    )
    if not is_open:
        await cache.close()

    assert peek(cache_path, wanted, RunSort(), 7) == expected
    await cache.close()


@pytest.mark.parametrize("content", [None, b"", b"nonsense" * 1000])
def test_without_a_readable_cache_there_is_no_picture(tmp_path: Path, content: bytes | None) -> None:
    """No file, an empty one, a damaged one: nothing is painted, and nothing is made or changed."""
    path = tmp_path / "a ?#%.sqlite3"
    if content is not None:
        path.write_bytes(content)

    assert peek(path, RunFilter(), RunSort(), 7) is None
    assert (path.read_bytes() if path.exists() else None) == content
