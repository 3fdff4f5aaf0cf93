"""Backup and restore: the drill of docs/run/upgrade.md, and backups that must not be restored."""

import contextlib
import io
import shutil
import tarfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import main
from service.clock import now_micros
from service.processes.backup import BackupError, back_up, restore
from service.settings import DataFolder
from service.store import runs, turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from tests.service.conftest import UNBOXED, accepted, order
from tests.service.deployment import Deployment, deployment
from tests.service_process import command, git, refused_start
from tests.waiting import COLD_START_S, eventually, present

SETTINGS = f"{UNBOXED}worker_ttl_s = 2\ndrain_s = 0.1\nconcurrency = 3\n"


def attempt(*arguments: str, on: Path | None = None) -> Result:
    """Run a command, on a data folder if one is given."""
    return CliRunner().invoke(main, [*arguments, *(("--data-dir", str(on)) if on else ())])


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """The data folder of a small service: an organization with three ended runs and their logs."""
    made, now = DataFolder(tmp_path / "data"), now_micros()
    command(made.root, "org", "create", "Acme \N{SNOWMAN}", "--slug", "acme")
    with contextlib.closing(Database(made.database_url)) as database:
        for run_id in [accepted(database, now=now).id for _ in range(3)]:
            with database.write() as connection:
                turns.end(connection, run_id, 1, TurnOutcome("completed"), now)
            made.turn_file(run_id, 1, "log").parent.mkdir(parents=True)
            made.turn_file(run_id, 1, "log").write_text(f"log of {run_id}", "utf-8")
    return made


@pytest.fixture
def backup(folder: DataFolder, tmp_path: Path) -> Path:
    """A backup of that folder."""
    back_up(folder, tmp_path / "backup.tar.gz", now_micros())
    return tmp_path / "backup.tar.gz"


def commits(made: Deployment, branch: str) -> int:
    return int(git("rev-list", "--count", f"main..{branch}", cwd=made.repositories["acme/api"]))


def test_the_restore_drill(tmp_path: Path) -> None:
    """The backup is made while two runs work, one of which pushes afterwards.

    After the restore, each turn has one commit.
    """
    gates, file = [tmp_path / "first-gate", tmp_path / "second-gate"], str(tmp_path / "backup")
    with deployment(tmp_path / "service", settings=SETTINGS) as made:
        node = made.begin("serve", "--port", "0")
        client = made.client(node)
        done = client.start("write it")
        assert client.ended(done)["status"] == "completed"
        log = made.admin("run", done, "--log")
        pushed_later, working = (client.start(f"wait {gate}") for gate in gates)
        for run_id in (pushed_later, working):
            is_at_work = lambda run_id=run_id: "scribe at work" in str(made.admin("run", run_id, "--log"))  # noqa: E731
            eventually(is_at_work, "it works", COLD_START_S)
        backed_up = made.admin("backup", file)
        gates[0].touch()
        branch = client.ended(pushed_later)["branch_name"]
        after = client.start("write after the back-up")
        client.ended(after)
        before = commits(made, branch)

        running = attempt("restore", file, "--force", on=made.machine("first"))
        assert (running.exit_code, "stop" in running.stderr) == (2, True), "a service that runs is not restored"
        node.kill()
        shutil.rmtree(made.machine("first"))
        restored = made.admin("restore", file)
        counts = {"made_at": backed_up["made_at"], "organizations": 1, "runs": 3, "queued_again": 2}
        assert restored == {key: restored[key] for key in ("data_dir", "files")} | counts
        client = made.client(made.begin("serve", "--port", "0"))
        gates[1].touch()
        ended = [client.ended(run_id) for run_id in (done, pushed_later, working)]
        texts = [made.admin("run", run_id, "--log")["turns"][0]["log"] for run_id in (pushed_later, working)]

        assert [one["status"] for one in ended] == ["completed"] * 3
        assert [before, *(commits(made, one["branch_name"]) for one in ended)] == [1, 1, 1, 1]
        assert "an earlier attempt has already pushed" in texts[0]
        assert texts[1].count("scribe at work") == 2, "its log goes on where the back-up ended"
        assert made.admin("run", done, "--log") == log
        assert {run["run_id"] for run in client.runs()} == {done, pushed_later, working}, "the last one is lost"


def test_postgresql_uses_its_own_backups(tmp_path: Path) -> None:
    """The error names them, before any database is contacted."""
    elsewhere = ("--database", "postgresql://nobody@127.0.0.1:1/nothing", "--data-dir", str(tmp_path))
    (tmp_path / "file").touch()
    done = [attempt(*one, str(tmp_path / "file"), *elsewhere) for one in (["backup"], ["restore", "--force"])]

    assert [(one.exit_code, "pg_dump" in one.stderr) for one in done] == [(2, True)] * 2


def test_a_run_is_in_a_backup_whole_or_not_at_all(folder: DataFolder, tmp_path: Path) -> None:
    """A run and its turns are either all in the backup or not at all."""
    with contextlib.closing(Database(folder.database_url)) as database:
        again = order(accepted(database).organization_id)
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with database.write() as connection:
                    runs.accept(connection, again, now_micros())

        accepting = threading.Thread(target=accept)
        accepting.start()
        for number in range(3):
            back_up(folder, tmp_path / f"{number}.tar.gz", now_micros())
        ended.set()
        accepting.join()
    for number in range(3):
        made = restore(tmp_path / f"{number}.tar.gz", DataFolder(tmp_path / str(number)), "me", force=False)
        assert made["runs"] == made["queued_again"] + 3


def test_restoring_over_files_needs_force(backup: Path, tmp_path: Path) -> None:
    """The backup replaces everything, even a damaged database with its journal.

    After an interrupted restore, nothing starts until it is repeated.
    """
    for state in ("in use", "damaged", "cut off"):
        target, refused = DataFolder(tmp_path / state), []
        journal = target.database_file.with_name("service.sqlite-journal")
        command(target.root, "org", "create", "Mine")
        if state == "damaged":
            target.database_file.write_bytes(b"no database at all, though as long as one" * 200)
            journal.write_bytes(b"a journal" * 200)
        if state == "cut off":
            target.restoring_file.touch()
            # In a separate process: it takes over the log and Python's warnings from the start.
            serve, status = refused_start(target.root, "serve"), attempt("status", on=target.root)
            refused = [(serve.returncode, serve.stderr), (status.exit_code, status.stderr)]
        done = attempt("restore", str(backup), on=target.root)
        refused.append((done.exit_code, done.stderr))
        restored = command(target.root, "restore", str(backup), "--force")

        assert {(code, "--force" in text) for code, text in refused} == {(2, True)}
        assert (restored["runs"], restored["queued_again"], restored["files"]) == (3, 0, 3)
        assert [one["name"] for one in command(target.root, "org", "list")["organizations"]] == ["Acme \N{SNOWMAN}"]
        assert command(target.root, "status")["runs"] == {"completed": 3}
        assert not journal.exists()


def test_a_damaged_database_does_not_replace_a_backup(backup: Path, folder: DataFolder) -> None:
    """The backup is refused even if its first pages are readable, and no other file is replaced."""
    kept, settings = backup.read_bytes(), folder.root / "mine.toml"
    settings.write_text("a = 1\n", "utf-8")
    pages = bytearray(folder.database_file.read_bytes())
    pages[len(pages) // 2 : -4096] = b"x" * (len(pages) - len(pages) // 2 - 4096)
    folder.database_file.write_bytes(pages)

    with pytest.raises(BackupError, match="the database is damaged"):
        back_up(folder, backup, now_micros())
    with pytest.raises(BackupError, match=r"mine\.toml exists and is no back-up"):
        back_up(folder, settings, now_micros())

    assert (backup.read_bytes(), settings.read_text("utf-8")) == (kept, "a = 1\n")
    assert sorted(path.name for path in backup.parent.iterdir()) == ["backup.tar.gz", "data"]


def test_a_backup_is_private(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup's mode is 0600.

    A failing backup keeps the earlier one, leaves nothing else, and is in the audit trail.
    """
    before = backup.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    done = attempt("backup", str(backup), on=tmp_path / "data")
    monkeypatch.undo()

    assert backup.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data" / "service.sqlite").stat().st_mode & 0o777 == 0o600
    assert (done.exit_code, "No space left" in done.stderr) == (2, True)
    assert backup.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data"]
    assert command(tmp_path / "data", "audit", "list")["entries"][-1]["outcome"] == "failed"


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
    return made


def rebuilt(source: Path, *extra: tarfile.TarInfo, database: bytes | None = None) -> bytes:
    """Return a backup with further entries, or with another database, or without one if that is empty."""
    raw = io.BytesIO()
    with tarfile.open(source) as old, tarfile.open(fileobj=raw, mode="w:gz") as new:
        for each in extra:
            new.addfile(each, io.BytesIO(b"x" * each.size))
        for each in old:
            content = present(old.extractfile(each))
            data = content.read() if database is None or each.name != "service.sqlite" else database
            each.size = len(data)
            if data:
                new.addfile(each, io.BytesIO(data))
    return raw.getvalue()


def test_a_damaged_or_forged_backup_changes_nothing(backup: Path, tmp_path: Path) -> None:
    """With --force over a service, that one stays as it was, and nothing is written elsewhere."""
    before = command(tmp_path / "data", "org", "list")
    for message, forged in (
        ("damaged", backup.read_bytes()[:-600]),
        ("it does not contain service.sqlite", rebuilt(backup, database=b"")),
        ("database", rebuilt(backup, database=b"no database at all " * 999)),
        ("evil", rebuilt(backup, entry("runs/../../evil"))),
        ("evil", rebuilt(backup, entry("/tmp/evil"))),
        ("service.toml", rebuilt(backup, entry("service.toml", tarfile.SYMTYPE, "/etc/passwd"))),
        ("service.toml", rebuilt(backup, entry("service.toml", tarfile.LNKTYPE, "/etc/x"))),
        ("service.sqlite", rebuilt(backup, entry("service.sqlite"))),
    ):
        (tmp_path / "forged").write_bytes(forged)
        done = attempt("restore", str(tmp_path / "forged"), "--force", on=tmp_path / "data")

        assert (done.exit_code, message in done.stderr) == (2, True), (message, done.output)
    assert command(tmp_path / "data", "org", "list") == before
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 3
    assert not list(tmp_path.rglob("*evil*"))
