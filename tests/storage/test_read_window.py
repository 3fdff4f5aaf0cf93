"""A window is what counting by hand finds; a search's first rows are the first of what the whole search finds.

A window that is found from the one before is the one that counting from the front finds.
"""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection, OperationalError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cache import coverage
from storage.cache import window as windows
from storage.cache.read_runs import Remembered
from storage.cache.window import first_rows, rows, window
from storage.records import Repository, Run, RunFilter, RunSort, RunWindow, WindowRequest
from tests.storage.conftest import NOON, Connections, connected, store

RUNS = 60
NEWEST_FIRST = RunSort()


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


def ask(reader: Connection, request: WindowRequest) -> RunWindow:
    return window(reader, request, Remembered())


def test_a_window_moves_with_its_anchor(database: Connections) -> None:
    """Two runs arrive above: the same rows are found two further down, and so is the cursor's."""
    writer, reader = database
    request = WindowRequest(RunFilter(), NEWEST_FIRST, 10, 5, "run_049", 10, "run_047")
    before = ask(reader, request)
    store(writer, [run(RUNS), run(RUNS + 1)])

    after = ask(reader, request)

    assert (before.shift, before.offset, before.cursor_index) == (0, 10, 12)
    assert (after.shift, after.offset, after.cursor_index) == (2, 12, 14)
    assert after.rows == before.rows
    assert after.total == before.total + 2


def test_a_window_without_anything_to_follow_stays(database: Connections) -> None:
    """Where it was, as far as there are rows."""
    hidden = RunFilter(statuses=("failed",))
    for request, found in (
        # What the filter hides has no row, and moves nothing.
        (WindowRequest(hidden, NEWEST_FIRST, 3, 4, "run_048", 7, "run_048"), (0, 3, None)),
        # Beyond the end there is nothing to show: the last rows are.
        (WindowRequest(RunFilter(), NEWEST_FIRST, 58, 10), (0, RUNS - 10, None)),
        # Nothing changed since the last read: anchor and cursor are not looked for.
        (WindowRequest(RunFilter(), NEWEST_FIRST, 10, 5, "run_049", 10, "run_047", 12, is_fresh=False), (0, 10, 12)),
    ):
        shown = ask(database[1], request)
        assert (shown.shift, shown.offset, shown.cursor_index) == found


def test_a_search_that_takes_too_long_shows_what_it_found(database: Connections) -> None:
    """Without any time it is some of the first rows, perhaps none, and the connection serves on without a limit.

    Only the end of its time makes less of it; an interruption is reported.
    """
    writer, reader = database
    store(writer, [run(number) for number in range(RUNS, 4_000)])
    wanted = RunFilter(search="run_000")

    assert first_rows(reader, wanted, NEWEST_FIRST, limit=5, patience_s=0) == ()
    assert [row.run_id for row in rows(reader, wanted, NEWEST_FIRST, 0, 5, Remembered())] == ["run_000"]
    reader.create_function("instr", 2, lambda *_: reader.interrupt())
    with pytest.raises(OperationalError, match="interrupted"):
        first_rows(reader, RunFilter(search="run"), NEWEST_FIRST, limit=5, patience_s=60)


COLUMNS = ("active", "started", "updated", "took", "status", "repository", "branch", "run")
MANY = 90

filters = st.sampled_from(
    [
        RunFilter(),
        RunFilter(search="1"),
        RunFilter(not_statuses=("failed",)),
        RunFilter(repositories=("acme/a", "acme/b")),
    ]
)
orders = st.builds(RunSort, column=st.sampled_from(COLUMNS), descending=st.booleans())
journeys = st.lists(st.tuples(st.integers(0, MANY + 5), st.integers(0, 12)), min_size=2, max_size=8)


def any_run(number: int, chance: random.Random) -> Run:
    created = NOON + timedelta(seconds=chance.randint(0, 20)) if chance.random() > 0.1 else None
    return Run(
        run_id=f"run_{number:03}",
        status=chance.choice(["completed", "failed", "working"]),
        branch_name=chance.choice(["main", "agent/x"]),
        repository=Repository.parse(chance.choice(["acme/a", "acme/b", "acme/c"])),
        created_at=created,
        updated_at=created + timedelta(seconds=chance.randint(0, 9)) if created else None,
        raw_json="{}",
    )


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    """Runs of which many stand at the same instant."""
    chance = random.Random(5)
    with connected(tmp_path_factory.mktemp("crowded"), [any_run(number, chance) for number in range(MANY)]) as opened:
        yield opened


@settings(max_examples=75)
@given(wanted=filters, sort=orders, journey=journeys)
def test_a_journey_finds_the_same_rows(
    crowded: Connections, wanted: RunFilter, sort: RunSort, journey: list[tuple[int, int]]
) -> None:
    """Down, up, far and near, in every order: from the window before, and without it."""
    _, reader = crowded
    remembered = Remembered()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "NEAR", 3)
        for offset, limit in journey:
            plain = windows.rows(reader, wanted, sort, offset, limit, Remembered())

            assert windows.rows(reader, wanted, sort, offset, limit, remembered) == plain


def test_a_change_of_the_cache_moves_them_all(crowded: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new run above everything: what was fortieth is forty-first, and the place from before is forgotten."""
    writer, reader = crowded
    monkeypatch.setattr(windows, "NEAR", 3)
    remembered, sort = Remembered(), RunSort()
    before = windows.rows(reader, RunFilter(), sort, 40, 5, remembered)
    later = NOON + timedelta(days=1)
    newest = Run("run_newest", "working", "main", Repository.parse("acme/a"), later, later, "{}")
    store(writer, [newest])

    assert windows.rows(reader, RunFilter(), sort, 41, 5, remembered) == before


@given(
    ends=st.lists(st.integers(0, RUNS), max_size=6, unique=True).map(sorted),
    offset=st.integers(0, RUNS + 5),
    limit=st.integers(1, 12),
    descending=st.booleans(),
)
def test_gaps_are_rows_where_coverage_has_holes(
    gap_database: Connections, ends: list[int], offset: int, limit: int, *, descending: bool
) -> None:
    """Between two runs, in their place; every other row is the run that it would be without them."""
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

    found = ask(reader, WindowRequest(RunFilter(), sort, offset, limit, cursor_id="run_030"))

    end = min(found.offset + limit, found.total)
    shown = [found.gap(n) or (found.row(n) or run(0)).run_id for n in range(found.offset, end)]
    assert found.total == len(expected)
    assert found.runs == RUNS
    assert shown == expected[found.offset : end]
    assert found.cursor_index == expected.index("run_030")
    assert found.holds(found.offset, end - 1)
