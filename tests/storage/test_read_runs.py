"""Windows, counts and positions agree with a list that is filtered and sorted in plain Python."""

import fnmatch
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.cache import read_runs
from storage.cache import window as windows
from storage.cache.cache import Cache
from storage.cache.read_runs import Remembered
from storage.records import FINAL_STATUSES, Repository, Run, RunFilter, RunSort
from tests.storage.conftest import NOON, Connections, connected, make_run, store

COLUMNS = ("active", "started", "updated", "status", "repository", "branch", "run")

instants = st.none() | st.integers(0, 5).map(lambda step: NOON + timedelta(microseconds=step))
statuses = st.sampled_from(["queued", "working", "completed", "failed", "paused"])
repositories = st.sampled_from(["acme/api", "acme/web", "gitlab:acme/api"])
branches = st.sampled_from(["main", "agent/a", "agent/b", "100%", "ag?nt/a", "Größe", "[x]", "a_b", ""])


@st.composite
def batches(draw: st.DrawFn) -> list[Run]:
    numbers = draw(st.lists(st.integers(0, 40), max_size=25) | st.lists(st.integers(0, 40), min_size=20, max_size=25))
    return [
        Run(
            run_id=f"run_{number:02d}",
            status=draw(statuses),
            branch_name=draw(branches),
            repository=Repository.parse(draw(repositories)),
            created_at=(created_at := draw(instants)),
            updated_at=draw(instants),
            raw_json=json.dumps({"created_at": str(created_at)}),
        )
        for number in numbers
    ]


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, max_size=2).map(tuple)


filters = st.builds(
    RunFilter,
    statuses=some(statuses),
    not_statuses=some(statuses),
    repositories=some(repositories | st.sampled_from(["acme/*", "*api"])),
    not_repositories=some(repositories | st.sampled_from(["gitlab:*"])),
    branches=some(branches | st.sampled_from(["agent/*", "*", "*%", "ag?nt*", "[*", "**a**"])),
    not_branches=some(branches | st.sampled_from(["agent/*", "?*"])),
    since=instants,
    until=instants,
    search=st.sampled_from(["", "run_0", "AGENT api", "%", "_", "?", "*", "\\", "GRÖSSE", "größe", "acme 1", "[X]"]),
    active=st.booleans(),
    ended=st.booleans(),
)
anything = st.just(RunFilter()) | st.builds(RunFilter, not_statuses=some(statuses)) | filters
orders = st.builds(RunSort, column=st.sampled_from(COLUMNS), descending=st.booleans())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    with connected(tmp_path_factory.mktemp("model")) as connections:
        yield connections


def held(batch: list[list[Run]]) -> list[Run]:
    """The result of the storing rules, implemented again: a later answer counts, except for an unreadable time."""
    runs: dict[str, Run] = {}
    for one in batch:
        newest: dict[str, Run] = {}
        for run in one:
            other = newest.get(run.run_id)
            if other is None or stamp(run.updated_at) >= stamp(other.updated_at):
                newest[run.run_id] = run
        for run in newest.values():
            old = runs.get(run.run_id, run)
            runs[run.run_id] = replace(
                run, created_at=run.created_at or old.created_at, updated_at=run.updated_at or old.updated_at
            )
    return list(runs.values())


def stamp(instant: datetime | None) -> float:
    return -1 if instant is None else (instant - NOON) / timedelta(microseconds=1)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    escaped = [pattern.replace("[", "[[]").replace("?", "[?]") for pattern in patterns]
    return any(fnmatch.fnmatchcase(name, each) for each in escaped)


def passes(run: Run, wanted: RunFilter) -> bool:
    text = [run.run_id.casefold(), run.repository.label.casefold(), run.branch_name.casefold()]
    checks = [
        not wanted.statuses or run.status in wanted.statuses,
        run.status not in wanted.not_statuses,
        not wanted.repositories or matches(run.repository.label, wanted.repositories),
        not matches(run.repository.label, wanted.not_repositories),
        not wanted.branches or matches(run.branch_name, wanted.branches),
        not matches(run.branch_name, wanted.not_branches),
        wanted.since is None or (run.created_at is not None and run.created_at >= wanted.since),
        wanted.until is None or (run.created_at is not None and run.created_at <= wanted.until),
        all(any(word in part for part in text) for word in wanted.search.casefold().split()),
        not wanted.active or run.status not in FINAL_STATUSES,
        not wanted.ended or run.status in FINAL_STATUSES,
    ]
    return all(checks)


def ordered(runs: list[Run], sort: RunSort) -> list[str]:
    """Newest first among runs with equal text; descending is the exact reverse."""
    if sort.column != "updated":
        runs = sorted(runs, key=lambda run: run.run_id)
    if sort.column in {"active", "status", "repository", "branch"}:
        runs = sorted(runs, key=lambda run: (stamp(run.created_at), run.run_id), reverse=True)
    keys: dict[str, Callable[[Run], object]] = {
        "active": lambda run: run.status in FINAL_STATUSES,
        "started": lambda run: stamp(run.created_at),
        "updated": lambda run: stamp(run.updated_at),
        "status": lambda run: ("failed", "paused", "working", "queued", "completed").index(run.status),
        "repository": lambda run: run.repository.label.encode(),
        "branch": lambda run: run.branch_name.encode(),
        "run": lambda run: run.run_id,
    }
    runs = sorted(runs, key=keys[sort.column])
    ids = [run.run_id for run in runs]
    return ids[::-1] if sort.descending else ids


@given(
    batch=st.lists(batches(), max_size=3),
    wanted=anything,
    sort=orders,
    journey=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=5),
    near=st.sampled_from([windows.NEAR, 3, 0]),
)
def test_reading_agrees_with_a_naive_model(
    database: Connections,
    batch: list[list[Run]],
    wanted: RunFilter,
    sort: RunSort,
    journey: list[tuple[int, int]],
    near: int,
) -> None:
    """Reading is compared for any batches, filter, order and windows, with and without the previous window."""
    writer, reader = database
    for table in ("runs", "run_bodies", "sightings", "transitions", "statuses", "repositories"):
        writer.execute(f"DELETE FROM {table}")
    for one in batch:
        store(writer, one)

    runs = held(batch)
    expected = ordered([run for run in runs if passes(run, wanted)], sort)
    remembered = Remembered()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "NEAR", near)
        for offset, limit in journey:
            window = windows.rows(reader, wanted, sort, offset, limit, remembered)
            assert [row.run_id for row in window] == expected[offset : offset + limit]
    assert read_runs.total(reader, wanted, remembered) == len(expected)
    assert [windows.index_of(reader, run_id, wanted, sort) for run_id in expected] == list(range(len(expected)))
    hidden = {run.run_id for run in runs} - set(expected)
    assert {windows.index_of(reader, run_id, wanted, sort) for run_id in hidden} <= {None}
    rest = read_runs.replaced_statuses(wanted)
    assert read_runs.by_status(reader, wanted, remembered) == Counter(run.status for run in runs if passes(run, rest))
    assert read_runs.by_status(reader, RunFilter(), remembered) == Counter(run.status for run in runs)


async def test_active_runs_sort_as_the_longest(cache: Cache) -> None:
    """A run without a readable time is the shortest; the reverse is exact."""
    for number, minutes in ((1, 3), (2, 1), (3, 2)):
        await cache.store_runs([make_run(number, created_at=NOON)], asked_at=NOON)
        await cache.store_runs(
            [make_run(number, "failed", created_at=NOON, updated_at=NOON + timedelta(minutes=minutes))], asked_at=NOON
        )
    await cache.store_runs([make_run(4, created_at=NOON), make_run(5, "failed", created_at=None)], asked_at=NOON)
    longest, shortest = [
        [row.run_id for row in await cache.rows(RunFilter(), RunSort("took", descending=falls), offset=0, limit=9)]
        for falls in (True, False)
    ]

    assert longest == [f"run_000{number}" for number in (4, 1, 3, 2, 5)]
    assert shortest == longest[::-1]


async def test_neighbours_of_a_run_are_of_its_repository(cache: Cache) -> None:
    """The neighbours are of the run's repository, newest first; a run without a branch is alone."""
    runs = [make_run(n, branch="main", created_at=NOON + timedelta(hours=n)) for n in range(1, 8)]
    runs.append(make_run(8, branch="main", repository="acme/web", created_at=NOON + timedelta(hours=4)))
    runs += [make_run(9, branch="", created_at=NOON + timedelta(hours=9)), make_run(10, branch="old")]
    runs.append(make_run(11, branch="elsewhere", repository="acme/web", created_at=NOON + timedelta(hours=8)))
    await cache.store_runs(runs, asked_at=NOON)
    total, around = await cache.on_branch(runs[3].run_id, each_way=2, count_limit=100)
    first, oldest = await cache.on_branch(runs[0].run_id, each_way=1, count_limit=5)

    assert (total, [row.run_id for row in around]) == (7, [runs[n].run_id for n in (5, 4, 3, 2, 1)])
    assert (first, [row.run_id for row in oldest]) == (5, [runs[1].run_id, runs[0].run_id])
    for run_id in (runs[8].run_id, "not there"):
        assert await cache.on_branch(run_id, each_way=2, count_limit=100) == (0, ())
    assert await cache.branches(RunFilter()) == ("elsewhere", "main", "old")
    assert await cache.branches(RunFilter(repositories=("acme/api",))) == ("main", "old")


async def test_a_vanished_run_is_not_active(cache: Cache) -> None:
    """The run stays in the list of all runs, and is counted separately."""
    await cache.store_runs([make_run(1), make_run(2), make_run(3, "queued"), make_run(4, "failed")], asked_at=NOON)
    await cache.set_presence(["run_0001", "run_0003"], "lost")

    assert await cache.lost_counts() == {"working": 1, "queued": 1}
    assert (await cache.count(RunFilter()), await cache.count(RunFilter(active=True))) == (4, 1)
    rows = await cache.rows(RunFilter(active=True), RunSort(), offset=0, limit=9)
    assert [row.run_id for row in rows] == ["run_0002"]
