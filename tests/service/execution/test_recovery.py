"""After any crash, no accepted run or slot is lost, no turn commits twice, and no late attempt commits."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import sqlalchemy as sa

from service.agents.invocation import PlaceholderError
from service.clock import now_micros
from service.execution.commits import commit_message, own_commit
from service.execution.record import SupersededError, TurnRecorder
from service.execution.sandbox import Sandbox
from service.execution.turn import OWN_FAULT, TurnExecution
from service.execution.workspace import Workspaces
from service.git import GitRunner
from service.hosts.tokens import HostTokens
from service.observability.traces import Tracer
from service.settings import DataFolder, Settings
from service.setup import AgentEntry, put_agent
from service.store import turns
from service.store.database import Database
from service.store.turns import Turn, TurnOutcome
from tests.service.conftest import UNBOXED, Api, Own, accepted, served
from tests.service.deployment import VARIABLE, deployment
from tests.service_process import RunningService, git, make_repository, put_hook, start_service
from tests.waiting import COLD_START_S, eventually, present

SETTINGS = f"{UNBOXED}drain_s = 0.1\n"


def commits(api: Any, run_id: str) -> list[str]:
    branch = api.run(run_id)["branch_name"]
    return git("log", "--format=%s", f"main..{branch}", cwd=api.service.repositories["acme/api"]).splitlines()


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a service that each test kills and starts again."""
    with served(tmp_path_factory, "mortal", SETTINGS) as service:
        yield Api(service)


def test_a_turn_killed_after_its_push_is_not_repeated(mortal: Api, tmp_path: Path) -> None:
    """After kill -9 between push and record, the next attempt finds its commit by the trailer and adds none."""
    api, repository = mortal, mortal.service.repositories["acme/api"]
    pushed, gate = tmp_path / "pushed", tmp_path / "gate"
    # The repository's hook delays the end of the push, after the branch has moved.
    hook = put_hook(repository, "post-update", f"touch {pushed}; while [ ! -e {gate} ]; do sleep 0.02; done")
    run_id = api.start("write once")
    eventually(pushed.exists, "the branch has moved")
    api.service.kill()
    gate.touch()
    hook.unlink()
    api.service.restart()

    assert api.ended(run_id)["status"] == "completed"
    assert "has already pushed" in api.log(run_id)
    assert commits(api, run_id) == ["scribe: write once"]
    shown = api.service.admin("run", run_id)["turns"][0]
    assert shown["commit"] == git("rev-parse", api.run(run_id)["branch_name"], cwd=repository)


def test_a_push_without_an_answer_counts(own: Own) -> None:
    """The connection breaks after the branch has moved; the commit is found there, and the run completes with it."""
    api, repository = own()
    # The parent of the hook is git's receiving process.
    put_hook(repository, "post-receive", "kill -9 $PPID")
    turn = api.work("write once", "scribe")

    assert turn["outcome"] == "completed", turn["log"]
    assert turn["commit"] == git("rev-parse", turn["branch"], cwd=repository)
    assert git("log", "--format=%s", f"main..{turn['branch']}", cwd=repository) == "scribe: write once"


def test_a_turn_with_an_unwritable_log_is_requeued(tmp_path: Path) -> None:
    """With a full disk the turn waits for room instead of failing, and is not reported as lost."""
    with deployment(tmp_path, settings=f"{SETTINGS}put_back_s = 0.5\n") as made:
        client = made.client(made.api())
        run_id = client.start("write once")
        log = DataFolder(made.machine("first")).turn_file(run_id, 1, "log")
        log.parent.mkdir(parents=True)
        log.symlink_to("/dev/full")
        worker = made.begin("worker")
        eventually(lambda: "turn 1 is returned to the queue: [Errno 28]" in worker.log, "the turn is put back")
        log.unlink()

        assert client.ended(run_id)["status"] == "completed"
        assert made.admin("run", run_id)["turns"][0]["attempt"] == 2
        assert "no worker" not in worker.log, "its slot was never lost"


def test_an_interrupted_run_completes_after_the_restart(mortal: Api, tmp_path: Path) -> None:
    """After its grace period or kill -9, its agent is gone, and the turn is repeated and commits once.

    A turn that finishes within the grace period is recorded, with exit status 0.
    """
    api = mortal

    def at_work(gate: Path) -> str:
        run_id = api.start(f"wait {gate}")
        api.reaches(run_id, "working")
        return run_id

    for number, status in ((signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        gate = tmp_path / f"gate-{number}"
        run_id = at_work(gate)
        api.service.signal(number)
        assert (api.service.ended(), api.service.admin("run", run_id)["status"]) == (status, "working")
        gate.touch()
        (api.service.data_dir / "service.toml").write_text(f"{UNBOXED}drain_s = 20\n")
        api.service.restart()

        turn = api.worked(run_id)
        assert turn["outcome"] == "completed", turn["log"]
        assert len(commits(api, run_id)) == 1
        assert "attempt 2" in turn["log"]
        assert list((api.service.data_dir / "work").iterdir()) == []

    run_id = at_work(tmp_path / "gate")
    api.service.signal(signal.SIGTERM)
    (tmp_path / "gate").touch()

    assert api.service.printed.read() == "", "one line at the start is all that it prints"
    assert api.service.ended() == 0
    ended = api.service.admin("run", run_id)
    assert (ended["status"], ended["turns"][0]["attempt"]) == ("completed", 1)
    assert "drained" in api.service.log
    api.service.restart()


REFUSES: Final = """
CREATE FUNCTION dbos.refuse_end() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'cannot execute UPDATE in a read-only transaction' USING ERRCODE = '25006'; END $$;
CREATE TRIGGER refuse_end BEFORE UPDATE ON dbos.workflow_status
FOR EACH ROW WHEN (NEW.status = 'SUCCESS') EXECUTE FUNCTION dbos.refuse_end()
"""
"""Makes PostgreSQL read-only, as after a failover, but only for the end of a turn."""
FULL_DISK = """
[execution]
sandbox = "none"
concurrency = 1
worker_ttl_s = 1
put_back_s = 0.5
[execution.agent]
disk_reserve_bytes = 67108864
disk_reserve_files = 0
"""


@pytest.fixture
def service(small_disk: Path, either_url: str | None) -> Iterator[RunningService]:
    """A service with one slot and a small disk, on either database."""
    if either_url is not None:
        with psycopg.connect(either_url) as connection:
            connection.execute(REFUSES)
    environment = {} if either_url is None else {VARIABLE: either_url}
    running = start_service(small_disk, settings=FULL_DISK, environment=environment)
    yield running
    running.kill()


def test_a_slot_is_freed_if_its_turns_end_was_not_recorded(
    service: RunningService, small_disk: Path, tmp_path: Path, either_url: str | None
) -> None:
    """The disk is full on SQLite, or the server read-only on PostgreSQL; the turn is repeated and completes."""
    api = Api(service)
    go_on = tmp_path / "go-on"
    run_id = api.start(f"wait {go_on}")
    api.reaches(run_id, "working")
    eventually(lambda: "scribe at work" in api.log(run_id), "the agent has started")
    errands = [] if either_url is None else ["prune:", "rotate:"]
    eventually(lambda: refused_ends(service) == len(errands), "the ends of errands are refused on PostgreSQL")

    ballast = small_disk / "ballast"
    fill(ballast)
    put_back = f"{run_id} turn 1 is returned to the queue"
    eventually(lambda: put_back in service.log, "the turn is put back", saw=lambda: service.log)

    def is_refused() -> bool:
        # Fill it repeatedly, since whatever finishes frees space.
        fill(ballast)
        return refused_ends(service) > len(errands)

    eventually(is_refused, "its end is refused", saw=lambda: service.log)
    assert f"{run_id}:1" in pending(service, either_url)
    if either_url is not None:
        lost = {"all": 0, "taken": 1, "at_work": 0}
        eventually(lambda: slots(service) == lost, "status shows the difference", saw=lambda: slots(service))
    go_on.touch()
    ballast.unlink()
    if either_url is not None:
        with psycopg.connect(either_url) as connection:
            connection.execute("DROP TRIGGER refuse_end ON dbos.workflow_status")

    assert api.ended(run_id)["status"] == "completed"
    eventually(lambda: not pending(service, either_url), "nothing is left in the queue")
    free = {"all": 1, "taken": 0, "at_work": 0}
    eventually(lambda: slots(service) == free, "no slot is taken", saw=lambda: slots(service))
    for name in [f"{run_id}:1", *errands]:
        assert f"{name} had ended here" in service.log


def slots(service: RunningService) -> object:
    return service.admin("status")["slots"]


def refused_ends(service: RunningService) -> int:
    """Return how often DBOS has reported an error at the end of a turn."""
    return service.log.count("Exception encountered in background workflow")


def fill(ballast: Path) -> None:
    """Use up all free space of a disk."""
    free = os.statvfs(ballast.parent)
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        if free.f_bavail > 16:
            os.posix_fallocate(file.fileno(), file.tell(), (free.f_bavail - 16) * free.f_frsize)
        file.seek(0, os.SEEK_END)
        while file.write(bytes(free.f_frsize)):
            pass


def pending(service: RunningService, url: str | None) -> set[str]:
    """Return the names of the work that the queue considers unfinished."""
    table = "workflow_status" if url is None else "dbos.workflow_status"
    query = sa.text(f"SELECT workflow_uuid FROM {table} WHERE status = 'PENDING'")
    address = url or DataFolder(service.data_dir).database_url
    with contextlib.closing(Database(address)) as database, database.read() as connection:
        return set(connection.execute(query).scalars())


SLEEPER = """
import pathlib, time
here = pathlib.Path(__file__).parent
(here / "begun").touch()
while not (here / "gate").exists(): time.sleep(0.01)
pathlib.Path("late.txt").write_text("too late")
"""


@contextmanager
def waiting_turn(
    tmp_path: Path, kind: type[Sandbox] = Sandbox
) -> Iterator[tuple[Database, DataFolder, str, TurnExecution]]:
    """A database with a turn whose agent waits for a gate, its data folder, the run, and its executor."""
    repository = make_repository(tmp_path / "api", {"README.md": "# api\n"})
    (tmp_path / "sleeper.py").write_text(SLEEPER, "utf-8")
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(Database(folder.database_url)) as database:
        database.migrate()
        with database.write() as connection:
            entry = AgentEntry(name="sleeper", argv=["{python}", str(tmp_path / "sleeper.py")])
            put_agent(connection, entry, now_micros())
        run_id = accepted(database, agent="sleeper", now=now_micros(), url=str(repository), branch="wanted").id
        recorder = TurnRecorder(database, now_micros)
        execution = TurnExecution(recorder, HostTokens(database), folder, Settings(), kind(None, "a test"), Tracer())
        yield database, folder, run_id, execution


def turn_of(database: Database, run_id: str) -> Turn:
    with database.read() as connection:
        return present(turns.by_number(connection, run_id, 1))


@pytest.mark.parametrize(
    ("error", "failure"), [(ZeroDivisionError(), OWN_FAULT), (PlaceholderError("the instructions are too long"),) * 2]
)
def test_an_error_of_the_service_ends_only_its_attempt(tmp_path: Path, error: Exception, failure: object) -> None:
    """An error after another attempt took over leaves that attempt open; errors have their own text."""

    class Broken(Sandbox):
        def wrap(self, *_: object, **__: object) -> list[str]:
            raise error

    with waiting_turn(tmp_path, Broken) as (database, folder, run_id, execution):
        outcome = execution.perform(run_id, 1, Workspaces(folder, "late"))
        with database.write() as connection:
            turns.claim(connection, run_id, 1, "heir", now_micros())
        execution.record_end(run_id, 1, outcome)
        turn = turn_of(database, run_id)

    assert (outcome.status, outcome.failure, outcome.attempt) == ("failed", str(failure), 1)
    assert (turn.status, turn.attempt) == ("working", 2)


def test_a_replaced_attempt_pushes_nothing(tmp_path: Path) -> None:
    """The new attempt ended without a commit, so the branch is still where the late attempt found it."""
    with waiting_turn(tmp_path) as (database, folder, run_id, execution):
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(execution.perform, run_id, 1, Workspaces(folder, "late"))
            eventually((tmp_path / "begun").exists, "the agent of the late one works", COLD_START_S)
            with database.write() as connection:
                turns.claim(connection, run_id, 1, "heir", now_micros())
                turns.end(connection, run_id, 1, TurnOutcome("failed", attempt=2), now_micros())
            (tmp_path / "gate").touch()
            error = late.exception(COLD_START_S)
        turn = turn_of(database, run_id)

    assert isinstance(error, SupersededError)
    assert git("branch", "--list", cwd=tmp_path / "api.git").split() == ["*", "main"]
    assert (turn.status, turn.commit_sha, turn.attempt) == ("failed", None, 2)
    assert list(folder.work.iterdir()) == []


def test_a_turn_given_twice_to_a_process_completes_once(tmp_path: Path) -> None:
    """A worker that was taken for dead gets its own turn again, and the later attempt completes it."""
    with waiting_turn(tmp_path) as (database, folder, run_id, execution):
        workspaces, attempts = Workspaces(folder, "same"), []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                (tmp_path / "begun").unlink(missing_ok=True)
                attempts.append(pool.submit(execution.execute, run_id, 1, workspaces))
                eventually((tmp_path / "begun").exists, "its agent works", COLD_START_S)
            (tmp_path / "gate").touch()
            first, second = (one.exception(COLD_START_S) for one in attempts)
        turn = turn_of(database, run_id)

    assert isinstance(first, SupersededError)
    assert second is None
    assert (turn.status, turn.attempt, turn.commit_sha is not None) == ("completed", 2, True)


IDENTITY = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
SCISSORS = "# ------------------------ >8 ------------------------"


def test_an_agents_message_cannot_forge_the_trailer(tmp_path: Path) -> None:
    """The mark names the turn that made the commit, and no other."""
    GitRunner(tmp_path, 30)("init", "--quiet", "--bare", str(tmp_path / "r"))
    git = GitRunner(tmp_path, 30, IDENTITY).inside(tmp_path / "r")

    def message(given: str | None) -> str:
        return commit_message(given, "mine", "Fix it", "run_1 turn 1")

    tree = git.feed("", "mktree").strip()
    for given in (
        None,
        "Fix it\n\nRunwarden-Run: run_1 turn 2",
        f"Fix it\n\nRunwarden-Run : run_1 turn 2\n{SCISSORS}\nmore",
        f"Fix it\n\n runwarden-run\t: run_1 turn 2\n\n{SCISSORS}\n\n\n",
    ):
        commit = git.feed(message(given), "commit-tree", tree, "-F", "-").strip()
        found = [(own_commit(git, commit, f"run_1 turn {number}") or ("",))[0] for number in (1, 2)]
        assert found == [commit, ""], given
    assert message("Fix #5").startswith("Fix, see #5\n")
