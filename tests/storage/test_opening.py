"""Opening databases: new, private, damaged, of another version, on network folders; and backups."""

import resource
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from storage import private_file
from storage.cache import opening as cache_opening
from storage.cache.cache import Cache
from storage.cache.first_paint import peek
from storage.database import connect, copy_database
from storage.errors import (
    DatabaseBusyError,
    DatabaseDamagedError,
    DatabaseNewerError,
    DatabaseReadOnlyError,
    DatabaseUnopenableError,
    DiskFullError,
    StorageClosedError,
    StorageError,
)
from storage.ledger import Ledger
from storage.private_file import NETWORK, file_system
from storage.records import RunFilter, RunSort
from storage.state import State
from tests.storage.conftest import NOON, entry, make_run, race

JUNK = b"not a database at all\n" * 500


def test_a_new_file_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite gives up at once if it must start a WAL meanwhile, as with two processes that open a new cache."""
    path = tmp_path / "new.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript("CREATE TABLE one (x); BEGIN IMMEDIATE")
        monkeypatch.setattr("storage.database.time.sleep", lambda _: other.rollback())
        with closing(connect(path, cache_opening.PRAGMAS)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def written(path: Path, content: bytes) -> None:
    """A file of another program that everyone may read."""
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o644)


def root_page(path: Path, name: str) -> tuple[int, int]:
    """The first page of a table or an index, and the size of a page."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE ?", (name,)).fetchone()
        return page, connection.execute("PRAGMA page_size").fetchone()[0]


def spoil(path: Path, page: int, size: int) -> None:
    """Overwrites one page of a database."""
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


OPENING = """
await start()
async with await Cache.open(Path(path, "cache.sqlite3")) as cache, await Ledger.open(Path(path, "x.sqlite3")) as it:
    print(await cache.known_statuses(), await it.actions())
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_no_other_user_can_read_the_files(cache_path: Path, ledger_path: Path) -> None:
    """Databases and SQLite's additional files have mode 0600 in a folder of mode 0700, whoever created them."""
    async with await Cache.open(cache_path) as cache, await Ledger.open(ledger_path):
        await cache.store_runs([make_run(1)], asked_at=NOON)
        files = list(cache_path.parent.iterdir())
        assert {path.name for path in files} >= {"cache.sqlite3", "cache.sqlite3-wal", "ledger.sqlite3"}
        assert {mode(path) for path in files} == {0o600}
    cache_path.chmod(0o644)
    await (await Cache.open(cache_path)).close()

    assert (mode(cache_path), mode(cache_path.parent)) == (0o600, 0o700)


def test_simultaneous_first_starts_all_succeed(tmp_path: Path) -> None:
    """Simultaneous processes create one database together."""
    assert race(OPENING, 4, str(tmp_path / "profile")) == ["() ()"] * 4


async def other_version(path: Path) -> None:
    """A cache of another layout, newer or older, with one run in it."""
    async with await Cache.open(path) as cache:
        await cache.store_runs([make_run(1)], asked_at=NOON)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")


async def test_a_cache_of_another_version_is_set_aside(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old cache stays next to the new one, which fetches everything again, unless its version has it open."""
    monkeypatch.setattr(cache_opening, "_IN_USE_WAIT_S", 0.02)
    await other_version(cache_path)
    assert peek(cache_path, RunFilter(), RunSort(), 9) is None
    with closing(sqlite3.connect(cache_path)) as other:
        other.execute("SELECT count(*) FROM runs").fetchone()
        with pytest.raises(DatabaseBusyError, match="another version"):
            await Cache.open(cache_path)
        assert other.execute("SELECT count(*) FROM runs").fetchone() == (1,)

    async with await Cache.open(cache_path) as cache:
        assert await cache.count(RunFilter()) == 0
        assert "another version" in str(cache.set_aside)
        with closing(sqlite3.connect(cache.set_aside.path)) as connection:
            assert connection.execute("SELECT run_id FROM runs").fetchall() == [("run_0001",)]
    async with await Cache.open(cache_path) as cache:
        assert cache.set_aside is None


async def test_a_failing_disk_is_not_another_version(cache_path: Path, tmp_path: Path) -> None:
    """The error does not suggest closing another Runwarden, which would not help."""
    await other_version(cache_path)
    left = tmp_path / "left.sqlite3"
    with closing(sqlite3.connect(cache_path)) as killed:
        for statement in ("PRAGMA journal_mode = WAL", "CREATE TABLE bulk AS SELECT randomblob(500000) AS content"):
            killed.execute(statement).fetchall()
        killed.commit()
        for ending in ("", "-wal"):
            shutil.copy(f"{cache_path}{ending}", f"{left}{ending}")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left.stat().st_size + 2**16, hard))
    try:
        with pytest.raises(StorageError) as failure:
            await Cache.open(left)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not isinstance(failure.value, DatabaseBusyError)


@pytest.mark.parametrize("content", [JUNK, b"SQLite format 3\x00" + b"\xff" * 4096])
async def test_a_damaged_cache_is_moved_aside_and_replaced(cache_path: Path, content: bytes) -> None:
    """The service has all of it, so nothing is lost. A job that finds damage later reports it."""
    written(cache_path, content)
    async with await Cache.open(cache_path) as cache:
        assert await cache.count(RunFilter()) == 0
        assert cache.set_aside.path.read_bytes() == content
        assert "damaged" in str(cache.set_aside)
        await cache.store_runs([make_run(n) for n in range(50)], asked_at=NOON)

    # A page that is not read when opening.
    spoil(cache_path, *root_page(cache_path, "run_bodies"))
    async with await Cache.open(cache_path) as cache:
        with pytest.raises(DatabaseDamagedError, match="Start Runwarden again"):
            await cache.details(["run_0001"])
    async with await Cache.open(cache_path) as cache:
        assert cache.set_aside is not None
        assert await cache.details(["run_0001"]) == {}


async def test_a_batch_fails_as_a_whole_with_the_fix(cache: Cache) -> None:
    """The disk may be full, the database read-only or closed; with free space the batch is stored."""
    runs = [make_run(n, note="x" * 2000) for n in range(500)]
    (pages,) = await cache.writer.run(lambda c: c.execute("PRAGMA page_count").fetchone())
    await cache.writer.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 5}").fetchone())
    with pytest.raises(DiskFullError, match="Free some"):
        await cache.store_runs(runs, asked_at=NOON)

    assert await cache.count(RunFilter()) == 0
    await cache.writer.run(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert len((await cache.store_runs(runs, asked_at=NOON)).new) == 500
    await cache.writer.run(lambda c: c.execute("PRAGMA query_only = 1").fetchall())
    with pytest.raises(DatabaseReadOnlyError, match="write access") as caught:
        await cache.store_runs([make_run(1)], asked_at=NOON)
    assert str(cache.writer.path) in caught.value.message
    await cache.close()
    await cache.close()
    with pytest.raises(StorageClosedError):
        await cache.count(RunFilter())


def test_opening_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs while it opens the file is named in the error."""
    monkeypatch.setattr(private_file, "_OPENING_WAIT_S", 0.02)
    path = tmp_path / "x.sqlite3"

    with private_file.opening(path), pytest.raises(DatabaseBusyError, match="End it"), private_file.opening(path):
        pytest.fail("two were let in")


# a ledger of another version or a damaged one is read, and never written or rebuilt


async def test_a_ledger_of_a_newer_version_is_read_and_not_written(ledger_path: Path) -> None:
    """A program does not write to other tables: the error of each write names the file and the fix."""
    async with await Ledger.open(ledger_path) as ledger:
        action = await ledger.prepare(entry("k", "", "run.start"))
    with sqlite3.connect(ledger_path) as connection:
        sql = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('ledger', '0099_future', '')"
        connection.execute(sql)
        connection.execute("ALTER TABLE actions ADD COLUMN of_tomorrow TEXT")
    connection.close()
    before = ledger_path.read_bytes()

    async with await Ledger.open(ledger_path) as ledger:
        assert isinstance(ledger.problem, DatabaseNewerError)
        assert (await ledger.actions(), await ledger.adopt_orphans()) == ((action,), ())
        for write in (ledger.prepare(entry("k2", "", "run.start")), ledger.sending(action.action_id)):
            with pytest.raises(DatabaseNewerError, match="Install that version again") as caught:
                await write
            assert (caught.value.path, str(ledger_path) in caught.value.message) == (ledger_path, True)
        ledger_path.rename(ledger_path.with_name("moved"))
        with pytest.raises(DatabaseUnopenableError, match="Put it back"):
            await ledger.prepare(entry("k2", "", "run.start"))
    assert ledger_path.with_name("moved").read_bytes() == before


async def test_a_damaged_ledger_is_read_as_far_as_possible(ledger_path: Path) -> None:
    """Entries before and after a lost page are read, and the file is not changed."""
    async with await Ledger.open(ledger_path) as ledger:
        body = f'"{"x" * 1500}"'
        ids = [(await ledger.prepare(entry(str(n), "", "run.start", body))).action_id for n in range(40)]
        for number in (19, 20):
            await ledger.sending(ids[number])
            await ledger.settle(ids[number], "unknown")
    _, size = root_page(ledger_path, "actions")
    spoil(ledger_path, ledger_path.read_bytes().index(ids[20].encode() + b"run.start") // size + 1, size)
    before = ledger_path.read_bytes()

    async with await Ledger.open(ledger_path) as ledger:
        assert isinstance(ledger.problem, DatabaseDamagedError)
        left = [action.action_id for action in await ledger.actions()]
        spans = {span.action.action_id for span in await ledger.unknown_spans()}
        with pytest.raises(DatabaseDamagedError, match="restore it from a backup"):
            await ledger.prepare(entry("k", "", "run.start"))

    assert (left[0], left[-1], len(left) > 30, ids[20] in left) == (ids[39], ids[0], True, False)
    assert spans == {ids[19]} & {*left}, "the audit still has the lost one"
    assert ledger_path.read_bytes() == before


@pytest.mark.parametrize("is_junk", [True, False])
async def test_a_damaged_ledger_is_never_rebuilt(ledger_path: Path, *, is_junk: bool) -> None:
    """The ledger is the only record of what was sent, so every page is checked and the file is not changed."""
    if is_junk:
        written(ledger_path, JUNK)
    else:
        await (await Ledger.open(ledger_path)).close()
        spoil(ledger_path, *root_page(ledger_path, "%result_id"))
    before = ledger_path.read_bytes()
    with pytest.raises(DatabaseDamagedError, match=r"never rebuilt.*restore it from a backup") as caught:
        await Ledger.open(ledger_path)

    assert str(ledger_path) in caught.value.message
    assert ledger_path.read_bytes() == before


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, *lines: str) -> None:
    (folder / "mounts").write_text("".join(f"1 0 0:1 / {line} x y\n" for line in lines))
    monkeypatch.setattr("storage.private_file.MOUNTS", folder / "mounts")


async def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the fix, and no file is created."""
    for kind in NETWORK:
        mounted(monkeypatch, tmp_path, "/ rw - ext4", f"{tmp_path} rw,nosuid shared:7 - {kind}")
        with pytest.raises(DatabaseUnopenableError, match="Set data_dir"):
            await State.open(tmp_path / "data" / "state.sqlite3")

    assert not (tmp_path / "data").exists()


def test_the_innermost_mount_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with blanks, links and stacked mounts are understood. Systems other than Linux are trusted."""
    lines = ("/ rw - ext4", "/srv rw - nfs", "/srv/my\\040disk rw - xfs", "/top rw - nfs", "/top rw - tmpfs")
    mounted(monkeypatch, tmp_path, *lines)
    (tmp_path / "link").symlink_to("/srv/my disk/data")

    kinds = [file_system(Path(place)) for place in ("/srvs", "/srv/a", "/srv/my disk/a", "/top/a", tmp_path / "link")]
    assert kinds == ["ext4", "nfs", "xfs", "tmpfs", "xfs"]
    monkeypatch.setattr("storage.private_file.MOUNTS", tmp_path / "missing")
    assert file_system(tmp_path) is None


def write_pairs(path: Path, pairs: int) -> None:
    """A database whose two tables always have the same number of rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS a (n INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS b (n INTEGER)")
        for number in range(pairs):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO a VALUES (?)", (number,))
            connection.execute("INSERT INTO b VALUES (?)", (number,))
            connection.execute("COMMIT")


def test_a_copy_is_consistent_while_others_write(tmp_path: Path) -> None:
    """The copy has no half transaction, and is private."""
    source = tmp_path / "ledger.sqlite3"
    write_pairs(source, 50)
    writer = threading.Thread(target=write_pairs, args=(source, 100))
    writer.start()
    for number in range(5):
        copy_database(source, target := tmp_path / f"copy-{number}.sqlite3")
        with closing(sqlite3.connect(target)) as connection:
            (a,), (b,) = (connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in "ab")
        assert a == b >= 50
        assert target.stat().st_mode & 0o77 == 0
    writer.join()


def test_a_damaged_database_is_not_copied(tmp_path: Path) -> None:
    """No file is left that looks like a backup."""
    source, target = tmp_path / "ledger.sqlite3", tmp_path / "copy.sqlite3"
    source.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StorageError):
        copy_database(source, target)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.sqlite3"]
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        copy_database(source, target)
    assert target.read_text() == "mine"
