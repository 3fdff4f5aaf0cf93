"""A window that is found from a landmark is the window that counting from the front finds."""

import random
from collections.abc import Iterator
from datetime import timedelta
from sqlite3 import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cache import store_runs, window
from storage.cache.read_runs import Counts
from storage.cache.window import Landmarks
from storage.records import Repository, Run, RunFilter, RunSort
from tests.storage.conftest import NOON, Connections, connected

COLUMNS = ("started", "updated", "took", "status", "repository", "branch", "run")
RUNS = 90

filters = st.sampled_from(
    [
        RunFilter(),
        RunFilter(search="1"),
        RunFilter(not_statuses=("failed",)),
        RunFilter(repositories=("acme/a", "acme/b")),
    ]
)
orders = st.builds(RunSort, column=st.sampled_from(COLUMNS), descending=st.booleans())
journeys = st.lists(st.tuples(st.integers(0, RUNS + 5), st.integers(0, 12)), min_size=2, max_size=8)


def run(number: int, chance: random.Random) -> Run:
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
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    """Runs of which many stand at the same instant."""
    chance = random.Random(5)
    with connected(tmp_path_factory.mktemp("landmarks"), [run(number, chance) for number in range(RUNS)]) as opened:
        yield opened


@settings(max_examples=150, deadline=None)
@given(wanted=filters, sort=orders, journey=journeys)
def test_a_journey_finds_the_same_rows(
    database: Connections, wanted: RunFilter, sort: RunSort, journey: list[tuple[int, int]]
) -> None:
    """Down, up, far and near, in every order: with landmarks and without."""
    _, reader = database
    marks = Landmarks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "NEAR", 3)
        for offset, limit in journey:
            plain = window.rows(reader, wanted, sort, offset, limit, Counts())

            assert window.rows(reader, wanted, sort, offset, limit, Counts(), marks) == plain


def test_a_change_of_the_cache_moves_them_all(database: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new run above everything: what was fortieth is forty-first, and landmarks from before are forgotten."""
    writer, reader = database
    monkeypatch.setattr(window, "NEAR", 3)
    marks, counts, sort = Landmarks(), Counts(), RunSort()
    before = window.rows(reader, RunFilter(), sort, 40, 5, counts, marks)
    later = NOON + timedelta(days=1)
    newest = Run("run_newest", "working", "main", Repository.parse("acme/a"), later, later, "{}")
    store_runs.store(writer, [newest], NOON)

    assert window.rows(reader, RunFilter(), sort, 41, 5, counts, marks) == before


def test_paging_through_the_middle_skips_few_rows(database: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second window near the first one is found by a range of the index, with hardly anything to skip."""
    _, reader = database
    monkeypatch.setattr(window, "NEAR", 3)
    marks, counts = Landmarks(), Counts()
    window.rows(reader, RunFilter(), RunSort(), 40, 5, counts, marks)
    skipped: list[int] = []
    plain = window.page

    def watched(connection: Connection, condition: object, order: str, offset: int, limit: int) -> object:
        skipped.append(offset)
        return plain(connection, condition, order, offset, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(window, "page", watched)
    window.rows(reader, RunFilter(), RunSort(), 45, 5, counts, marks)
    window.rows(reader, RunFilter(), RunSort(), 35, 5, counts, marks)

    assert max(skipped) == 5
