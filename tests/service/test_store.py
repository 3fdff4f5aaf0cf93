"""The database: first starts at once, schema versions, keyset pages, turns that end once."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.clock import now_micros
from service.execution.queue import migrate_queue
from service.lab import history
from service.store import organizations, repositories, runs, turn_files, turns, workers
from service.store.database import Database
from service.store.repositories import Repository
from service.store.runs import Filters, RunCounter, TurnRequest
from service.store.turns import TurnOutcome
from service.store.workers import Worker

NOW = 1_700_000_000_000_000


KINDS = ["sqlite", "postgresql"]


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_sqlite = request.param == "sqlite"
    made = Database(f"sqlite:///{tmp_path}/service.sqlite" if is_sqlite else request.getfixturevalue("postgres_url"))
    made.migrate()
    yield made
    made.close()


def organization(database: Database) -> str:
    with database.write() as connection:
        return organizations.create(connection, name="Acme", now=NOW).id


def order(owner: str, branch: str | None = None) -> TurnRequest:
    return TurnRequest(owner, "scribe", "github", "acme/api", "/tmp/api.git", branch, "do it")


def test_the_database_is_closed_to_other_users(tmp_path: Path) -> None:
    """0600 from its first moment."""
    Database(f"sqlite:///{tmp_path / 'service.sqlite'}").close()

    assert (tmp_path / "service.sqlite").stat().st_mode & 0o777 == 0o600


def test_runs_accepted_at_once_by_many_are_ordered_as_they_were_committed(database: Database) -> None:
    """Eight writers with one clock: each run is newer than all that were there when it was committed."""
    owner = organization(database)
    start = threading.Barrier(8)

    def accept(_: int) -> None:
        start.wait()
        for _ in range(10):
            with database.write() as connection:
                made = runs.accept(connection, order(owner), NOW)
                newest = runs.page(connection, Filters(owner), None, 1)[0]
                assert newest.id == made.id

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(accept, range(8)))
    with database.read() as connection:
        assert len({run.created_at for run in runs.page(connection, Filters(owner), None, 100)}) == 80


def test_a_turn_s_files_are_kept_and_replaced(database: Database) -> None:
    """A diff is the one put last; a log grows piece by piece; an attempt that was taken over adds to neither."""
    owner = organization(database)
    with database.write() as connection:
        key = (runs.accept(connection, order(owner), NOW).id, 1)
        for content in (b"first", b"second"):
            turn_files.put(connection, key, 0, "diff", content)
        for piece in (b"one\n", b"two\n"):
            turn_files.append_log(connection, key, 0, piece)
        pieces = [turn_files.read_log(connection, key, offset, 4) for offset in (0, 2, 4, 8)]
        turns.claim(connection, *key, "heir", NOW)
        turn_files.put(connection, key, 0, "diff", b"late")
        turn_files.append_log(connection, key, 0, b"late")
        turn_files.append_log(connection, key, 1, b"three\n")
        turn_files.pack_log(connection, key)

        assert pieces == [b"one\n", b"e\ntw", b"two\n", b""]
        assert turn_files.read_log(connection, key, 0, 100) == b"one\ntwo\nthree\n"
        assert turn_files.log_sizes(connection, [key, ("run_none", 1)]) == {key: 14}
        assert turn_files.content(connection, key, "diff") == b"second"
        assert turn_files.content(connection, key, "run.diff") is None


def test_a_worker_is_heard_of_until_it_falls_silent_or_says_good_bye(database: Database) -> None:
    """Who said good-bye counts as silent at once."""
    clock = now_micros
    one, two = (Worker(name, "host", "none", 1, 2, clock(), clock()) for name in ("one", "two"))
    with database.write() as connection:
        for worker in (one, two):
            workers.beat(connection, worker, clock)
            workers.beat(connection, worker, clock)
        workers.sign_off(connection, "two")
        living = workers.heard_within(connection, 60_000_000, clock)
        silent = workers.silent_for(connection, 60_000_000, clock)

    assert ([worker.executor for worker in living], [worker.executor for worker in silent]) == (["one"], ["two"])


def test_pages_partition_the_list_while_runs_are_accepted(database: Database) -> None:
    """Walked with inserts between the pages: every run that was there is seen exactly once."""
    owner = organization(database)
    filters = Filters(owner)
    with database.write() as connection:
        there = [runs.accept(connection, order(owner), NOW + number).id for number in range(30)]
    seen: list[str] = []
    after = None
    while True:
        with database.write() as connection:
            runs.accept(connection, order(owner), NOW + 1000 + len(seen))
            page = runs.page(connection, filters, after, 7)
        if not page:
            break
        seen += [run.id for run in page]
        after = (page[-1].created_at, page[-1].id)

    assert [run_id for run_id in seen if run_id in there] == list(reversed(there))
    assert len(seen) == len(set(seen))


def test_a_turn_ends_once_and_only_by_its_latest_attempt(database: Database) -> None:
    """An attempt that was taken over cannot end the turn; a second end changes nothing."""
    owner = organization(database)
    with database.write() as connection:
        run = runs.accept(connection, order(owner), NOW)
        first = turns.claim(connection, run.id, 1, "sleeper", NOW)
        second = turns.claim(connection, run.id, 1, "heir", NOW)
        assert first is not None
        assert second is not None
        late = turns.end(connection, run.id, 1, TurnOutcome("failed", attempt=first.attempt), NOW)
        right = turns.end(connection, run.id, 1, TurnOutcome("completed", attempt=second.attempt), NOW)
        again = turns.end(connection, run.id, 1, TurnOutcome("failed"), NOW)
        ended = runs.by_id(connection, run.id)

    assert (late, right, again) == (False, True, False)
    assert ended is not None
    assert ended.status == "completed"


def test_updated_at_never_goes_back(database: Database) -> None:
    """A clock that jumps back leaves the order of a run's changes intact."""
    owner = organization(database)
    with database.write() as connection:
        run = runs.accept(connection, order(owner), NOW)
        runs.set_status(connection, run.id, "working", NOW - 5_000_000)
        changed = runs.by_id(connection, run.id)

    assert changed is not None
    assert changed.updated_at == run.updated_at + 1


def test_two_who_continue_at_once_make_one_turn(database: Database) -> None:
    """The second one is told that the run is active."""
    owner = organization(database)
    with database.write() as connection:
        run = runs.accept(connection, order(owner), NOW)
        turns.end(connection, run.id, 1, TurnOutcome("completed"), NOW)
        ended = runs.by_id(connection, run.id)
    assert ended is not None
    start = threading.Barrier(6)

    def follow(_: int) -> bool:
        start.wait()
        with database.write() as connection:
            return runs.resume(connection, ended, order(owner), NOW) is not None

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(follow, range(6))) == [False] * 5 + [True]


def test_a_repository_of_an_organization_that_was_just_deleted_is_refused(database: Database) -> None:
    """As a run of it is, instead of breaking on a constraint."""
    owner = organization(database)
    with database.write() as connection:
        connection.execute(sa.text("DELETE FROM organizations"))
        with pytest.raises(runs.InactiveOrganizationError):
            repositories.put(connection, owner, Repository("api", "github", "acme/api", "/tmp/api.git"), NOW)


def test_large_counts_are_kept_for_a_moment_and_small_ones_are_not(database: Database) -> None:
    """10,000 and more are counted once in a while, in proportion to their number; below that, each time."""
    now = [0.0]
    counts = RunCounter(lambda: now[0])
    owner = organization(database)
    wanted = history.HistoryRequest(organization="acme", runs=runs.EXACT_BELOW, span="1d", repositories=2)
    history.make(database, wanted, NOW)
    every, failed = Filters(owner), Filters(owner, status="failed")
    looks: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *given: looks.append(given[2]))
    with database.read() as connection:
        connection.execute(sa.select(1))
        looks.clear()
        first = [counts.count(connection, every), counts.count(connection, every), len(looks)]
        few = counts.count(connection, failed)
        again = [counts.count(connection, failed) == few, len(looks)]
        now[0] = 0.06
        later = [counts.count(connection, every), len(looks)]

    assert first == [10_000, 10_000, 1]
    assert 0 < few < 10_000
    assert again == [True, 3]
    assert later == [10_000, 4]


def test_the_queue_s_clock_runs_on_every_sqlite(tmp_path: Path) -> None:
    """DBOS writes the time in milliseconds with what SQLite knows since 3.42 only; older ones are taught it."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'service.sqlite3'}")) as database:
        migrate_queue(database)
    with contextlib.closing(sa.create_engine("sqlite://").connect()) as connection:
        found = connection.execute(sa.text("SELECT unixepoch('subsec')")).scalar_one()

    assert isinstance(found, float)
