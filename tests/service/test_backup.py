"""Back-up and restore: the drill of docs/operations.md, and all that must not be restored."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from service.backup.backup import TABLES, back_up
from service.backup.restore import Restore
from service.clock import now_micros
from service.settings import DataFolder
from service.store import organizations, runs
from service.store.runs import TurnRequest
from tests.service.backups import a_service, attempt, contents, opened
from tests.service.deployment import Deployment, deployment
from tests.service.postgres import Cluster
from tests.service_process import command, git, refused_start
from tests.waiting import eventually

SETTINGS = '[execution]\nsandbox = "none"\nworker_ttl_s = 2\ndrain_s = 0.1\nconcurrency = 3\n'


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty PostgreSQL, or None for SQLite in the data folder."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def fresh(url: str | None, request: pytest.FixtureRequest) -> str | None:
    """Return the address of another database of the same kind."""
    cluster: Cluster | None = None if url is None else request.getfixturevalue("postgres")
    return None if cluster is None else cluster.create(f"{url}_again".rpartition("/")[2])


def commits(made: Deployment, branch: str) -> int:
    return int(git("rev-list", "--count", f"main..{branch}", cwd=made.repositories["acme/api"]))


def test_the_restore_drill(tmp_path: Path, url: str | None, request: pytest.FixtureRequest) -> None:
    """Backed up while two runs work, one of which pushes after that; all is lost and restored: one commit a turn."""
    gates = [tmp_path / "first-gate", tmp_path / "second-gate"]
    with deployment(tmp_path / "service", url, settings=SETTINGS) as made:
        node = made.begin("serve", "--port", "0")
        client = made.client(node)
        done = client.start("write it")
        assert client.ended(done)["status"] == "completed"
        assert client.follow(done, "write more").status_code == 201
        assert client.ended(done)["status"] == "completed"
        log = made.admin("run", done, "--log")
        pushed_later, working = (client.start(f"wait {gate}") for gate in gates)
        for run_id in (pushed_later, working):
            eventually(lambda run_id=run_id: "scribe at work" in str(made.admin("run", run_id, "--log")), "it works")
        backed_up = made.admin("backup", str(tmp_path / "backup.tar.gz"))
        gates[0].touch()
        branch = client.ended(pushed_later)["branch_name"]
        after = client.start("write after the back-up")
        client.ended(after)
        before = commits(made, branch)

        node.kill()
        shutil.rmtree(made.machine("first"))
        again = fresh(url, request)
        made.environment |= {} if again is None else {"RUNWARDEN_SERVICE_DATABASE": again}
        restored = made.admin("restore", str(tmp_path / "backup.tar.gz"))
        client = made.client(made.begin("serve", "--port", "0"))
        gates[1].touch()
        ended = [client.ended(run_id) for run_id in (done, pushed_later, working)]
        entries = made.admin("audit", "list", "--action", "restore")["entries"]
        texts = [made.admin("run", run_id, "--log")["turns"][0]["log"] for run_id in (pushed_later, working)]

        assert {key: restored[key] for key in ("made_at", "organizations", "runs", "queued_again")} == {
            "made_at": backed_up["made_at"],
            "organizations": 1,
            "runs": 3,
            "queued_again": 2,
        }
        assert [one["status"] for one in ended] == ["completed"] * 3
        assert [commits(made, one["branch_name"]) for one in ended] == [2, before, 1]
        assert before == 1
        assert "an earlier attempt has already pushed" in texts[0]
        assert texts[1].count("scribe at work") == 2, "its log goes on where the back-up ended"
        assert made.admin("run", done, "--log") == log
        assert {run["run_id"] for run in client.runs()} == {done, pushed_later, working}, "the last one is lost"
        assert [one["detail"] for one in entries] == [f"the back-up of {backed_up['made_at']}"]


def test_a_back_up_of_one_database_restores_into_the_other(tmp_path: Path, postgres: Cluster) -> None:
    """From SQLite to PostgreSQL and back: every row and every log is the same."""
    there = [None, postgres.create("moved"), None]
    folders = [DataFolder(tmp_path / str(number)) for number in range(3)]
    with opened(folders[0], there[0]) as database:
        a_service(database, folders[0])
        folders[0].settings_file.write_text("[retention]\nqueue_days = 7\n", "utf-8")
        back_up(database, folders[0], tmp_path / "0.tar.gz", now_micros)
    for number in (1, 2):
        source = tmp_path / f"{number - 1}.tar.gz"
        Restore(source, folders[number], there[number], "operator:me@here", now_micros).run(force=False)
        with opened(folders[number], there[number]) as database:
            back_up(database, folders[number], tmp_path / f"{number}.tar.gz", now_micros)
    first, last = (contents(tmp_path / f"{number}.tar.gz") for number in (0, 2))

    changing = {"manifest.json", "tables/audit.jsonl"}
    assert {name for name in first if first[name] != last[name]} == changing
    assert len([name for name in first if name.startswith("runs/")]) == 3
    assert folders[2].settings().retention.queue_days == 7
    assert len(first) == len(TABLES) + 7


def test_what_is_accepted_during_a_back_up_is_in_it_as_a_whole_or_not_at_all(tmp_path: Path, url: str | None) -> None:
    """Runs with their turns: a back-up that mixed two moments would not load."""
    folder = DataFolder(tmp_path / "data")
    with opened(folder, url) as database:
        a_service(database, folder)
        with database.read() as connection:
            owner = organizations.all_of(connection)[0].id
        order = TurnRequest(owner, "scribe", "github", "acme/api", "/srv/api.git", None, "do it")
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with database.write() as connection:
                    runs.accept(connection, order, now_micros())

        accepting = threading.Thread(target=accept)
        accepting.start()
        for number in range(3):
            back_up(database, folder, tmp_path / f"{number}.tar.gz", now_micros)
        ended.set()
        accepting.join()
    for number in range(3):
        found = contents(tmp_path / f"{number}.tar.gz")
        ids = [
            {json.loads(line)[0] for line in found[f"tables/{name}.jsonl"].splitlines()[1:]}
            for name in ("runs", "turns")
        ]
        assert ids[0] == ids[1]


def test_a_target_that_is_not_empty_takes_force(backup: Path, tmp_path: Path) -> None:
    """Then all of it is replaced, by what the back-up holds and nothing else."""
    target = tmp_path / "target"
    command(target, "org", "create", "Mine")
    refused = attempt("restore", str(backup), "--data-dir", str(target))
    restored = command(target, "restore", str(backup), "--force")

    assert (refused.exit_code, "--force" in refused.stderr) == (2, True)
    assert (restored["runs"], restored["queued_again"], restored["files"]) == (3, 0, 3)
    assert [one["name"] for one in command(target, "org", "list")["organizations"]] == ["Acme \N{SNOWMAN}"]


def test_a_damaged_database_is_replaced(backup: Path, tmp_path: Path) -> None:
    """By force, as it is not empty; a journal that it left is not rolled into the new one."""
    target = DataFolder(tmp_path / "target")
    target.create()
    target.database_file.write_bytes(b"no database at all, though as long as one" * 200)
    target.database_file.with_name("service.sqlite-journal").write_bytes(b"a journal" * 200)
    refused = attempt("restore", str(backup), "--data-dir", str(target.root))
    restored = command(target.root, "restore", str(backup), "--force")

    assert (refused.exit_code, "cannot be read" in refused.stderr) == (2, True), refused.output
    assert restored["runs"] == 3
    assert command(target.root, "status")["runs"] == {"completed": 3}
    assert not target.database_file.with_name("service.sqlite-journal").exists()


def test_a_service_that_runs_is_not_restored(backup: Path, tmp_path: Path, url: str | None) -> None:
    """Neither on its folder nor, on PostgreSQL, from another one; nothing of it changes."""
    with deployment(tmp_path / "service", url, settings=SETTINGS) as made:
        made.begin("serve", "--port", "0")
        place = made.machine("first" if url is None else "second")
        given = ["restore", str(backup), "--force", "--data-dir", str(place)]
        done = attempt(*given, *([] if url is None else ["--database", url]))

        assert (done.exit_code, "stop" in done.stderr) == (2, True), done.output
        assert [one["slug"] for one in made.admin("org", "list")["organizations"]] == ["acme"]


def test_a_restore_that_was_cut_off_is_done_again(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the database and the logs: until then nothing starts there, and the cure is said."""
    target = tmp_path / "target"
    with monkeypatch.context() as patch:
        patch.setattr(Restore, "_place_files", lambda _: (_ for _ in ()).throw(OSError("cut off")))
        assert attempt("restore", str(backup), "--data-dir", str(target)).exit_code == 2
    refused = [attempt(*one, "--data-dir", str(target)) for one in (["status"], ["restore", str(backup)])]
    # In processes of their own: they take the log over, and Python's warnings, from the first moment.
    started = [refused_start(target, name) for name in ("serve", "worker")]
    restored = command(target, "restore", str(backup), "--force")

    assert [one.exit_code for one in refused] + [one.returncode for one in started] == [2] * 4
    assert ["--force" in one.stderr for one in [*refused, *started]] == [True] * 4
    assert (restored["runs"], restored["files"]) == (3, 3)
    assert command(target, "status")["runs"] == {"completed": 3}


def test_a_back_up_is_private_and_whole(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0600; one that fails leaves the earlier one, nothing beside it, and is in the audit trail."""
    before = backup.read_bytes()
    monkeypatch.setattr(
        "service.backup.backup.dump", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    done = attempt("backup", str(backup), "--data-dir", str(tmp_path / "data"))
    monkeypatch.undo()

    assert backup.stat().st_mode & 0o777 == 0o600
    assert (done.exit_code, "No space left" in done.stderr) == (2, True)
    assert backup.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data"]
    assert [one["outcome"] for one in command(tmp_path / "data", "audit", "list")["entries"]] == ["failed"]
