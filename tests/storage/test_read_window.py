"""A window has gaps where coverage has holes; the first frame equals the cache's own."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from sqlite3 import OperationalError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cache import coverage
from storage.cache.cache import Cache
from storage.cache.first_paint import FirstPaint, peek
from storage.cache.read_runs import Remembered
from storage.cache.window import first_rows, rows, window
from storage.records import HealthSample, PollOutcome, Repository, Run, RunFilter, RunSort, WindowRequest
from tests.storage.conftest import NOON, Connections, connected, make_run, store

RUNS = 60


def run(number: int) -> Run:
    at = NOON + timedelta(minutes=number)
    status = "failed" if number % 3 else "completed"
    return Run(f"run_{number:03}", status, f"agent/{number}", Repository.parse("acme/api"), at, at, "{}")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Connections]:
    """A writer and a reader of sixty runs, one a minute."""
    with connected(tmp_path, [run(number) for number in range(RUNS)]) as opened:
        yield opened


@pytest.fixture(scope="module")
def gap_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    with connected(tmp_path_factory.mktemp("gaps"), [run(number) for number in range(RUNS)]) as opened:
        yield opened


def test_a_slow_search_shows_what_it_found(database: Connections) -> None:
    """The search may find none, and later reads of the connection have no limit. An interruption is reported."""
    writer, reader = database
    store(writer, [run(number) for number in range(RUNS, 4_000)])
    wanted, by_id = RunFilter(search="run_000"), RunSort("run")

    assert first_rows(reader, wanted, by_id, 5, 0, Remembered()) == ()
    assert [row.run_id for row in rows(reader, wanted, by_id, 0, 5, Remembered())] == ["run_000"]
    reader.create_function("instr", 2, lambda *_: reader.interrupt())
    with pytest.raises(OperationalError, match="interrupted"):
        first_rows(reader, RunFilter(search="run"), by_id, 5, 60, Remembered())


@given(
    ends=st.lists(st.integers(0, RUNS), max_size=6, unique=True).map(sorted),
    offset=st.integers(0, RUNS + 5),
    limit=st.integers(1, 12),
    descending=st.booleans(),
)
def test_gaps_in_coverage_are_rows(
    gap_database: Connections, ends: list[int], offset: int, limit: int, *, descending: bool
) -> None:
    """A gap is between its two runs; all other rows are those that there would be without gaps."""
    writer, reader = gap_database
    writer.execute("DELETE FROM coverage")
    for start, end in zip(ends[::2], ends[1::2], strict=False):
        coverage.extend(writer, NOON + timedelta(minutes=start, seconds=1), NOON + timedelta(minutes=end))
    sort, gaps = RunSort(descending=descending), coverage.coverage(reader).gaps
    numbers = range(RUNS - 1, -1, -1) if descending else range(RUNS)
    expected: list[object] = []
    for number in numbers:
        neighbours = {number, number + 1 if descending else number - 1}
        upper = NOON + timedelta(minutes=max(neighbours), seconds=1)
        inner = (gap for gap in gaps if gap.after and gap.before == upper)
        expected += [*(inner if expected else ()), f"run_{number:03}"]

    found = window(reader, WindowRequest(RunFilter(), sort, offset, limit, cursor_id="run_030"), Remembered())

    end = min(found.offset + limit, found.total)
    shown = [found.gap(n) or (found.row(n) or run(0)).run_id for n in range(found.offset, end)]
    assert found.total == len(expected)
    assert found.runs == RUNS
    assert shown == expected[found.offset : end]
    assert found.cursor_index == expected.index("run_030")
    assert found.holds(found.offset, end - 1)


@pytest.mark.parametrize(("wanted", "is_open"), [(RunFilter(search="job-1"), True), (RunFilter(active=True), False)])
async def test_the_first_rows_equal_the_caches(cache_path: Path, wanted: RunFilter, *, is_open: bool) -> None:
    """Each row is equal, whether the cache is open elsewhere or not."""
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


def test_without_a_readable_cache_there_are_no_first_rows(tmp_path: Path) -> None:
    """With a missing, empty or damaged file nothing is painted, created or changed."""
    for content in (None, b"", b"nonsense" * 1000):
        path = tmp_path / "a ?#%.sqlite3"
        if content is not None:
            path.write_bytes(content)
        assert peek(path, RunFilter(), RunSort(), 7) is None, content
        assert (path.read_bytes() if path.exists() else None) == content, content
