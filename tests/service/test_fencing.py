"""The fence: an attempt that was taken over leaves no trace, and a commit of the service's own is known by its mark."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.agents.invocation import PlaceholderError
from service.clock import now_micros
from service.execution.git import GitRunner
from service.execution.record import SupersededError
from service.execution.sandbox import Sandbox
from service.execution.turn import OWN_FAULT, TurnExecution
from service.execution.work import commit_message, own_commit
from service.execution.workspace import Workspaces
from service.settings import DataFolder, ExecutionSettings
from service.setup import AgentEntry, put_agent
from service.store import turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from tests.service.conftest import accepted
from tests.service_process import git, make_repository
from tests.waiting import COLD_START_S, eventually, present

SLEEPER = """
import pathlib, time
here = pathlib.Path(__file__).parent
(here / "begun").touch()
while not (here / "gate").exists(): time.sleep(0.01)
pathlib.Path("late.txt").write_text("too late")
"""


@contextmanager
def waiting_turn(tmp_path: Path) -> Iterator[tuple[Database, DataFolder, str]]:
    """A database with one turn of an agent that waits for a gate."""
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
        yield database, folder, run_id


@pytest.mark.parametrize(
    ("error", "failure"), [(ZeroDivisionError(), OWN_FAULT), (PlaceholderError("the instructions are too long"),) * 2]
)
def test_a_fault_of_the_service_ends_its_own_attempt_alone(tmp_path: Path, error: Exception, failure: object) -> None:
    """What breaks after another has taken the turn over leaves the heir's attempt open; errors speak for themselves."""

    class Broken(Sandbox):
        def wrap(self, *_: object, **__: object) -> list[str]:
            raise error

    with waiting_turn(tmp_path) as (database, folder, run_id):
        execution = TurnExecution(database, folder, ExecutionSettings(), Broken(None, "a test"), now_micros)
        outcome = execution.perform(run_id, 1, Workspaces(folder, "late"))
        with database.write() as connection:
            turns.claim(connection, run_id, 1, "heir", now_micros())
        execution.record_end(run_id, 1, outcome)
        with database.read() as connection:
            turn = present(turns.by_number(connection, run_id, 1))

    assert (outcome.status, outcome.failure, outcome.attempt) == ("failed", str(failure), 1)
    assert (turn.status, turn.attempt) == ("working", 2)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_who_was_taken_over_pushes_nothing(tmp_path: Path, status: str) -> None:
    """The heir ended the turn without a commit, so that the branch still is where the late one found it."""
    with waiting_turn(tmp_path) as (database, folder, run_id):
        execution = TurnExecution(database, folder, ExecutionSettings(), Sandbox(None, "a test"), now_micros)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(execution.perform, run_id, 1, Workspaces(folder, "late"))
            eventually((tmp_path / "begun").exists, "the agent of the late one works", COLD_START_S)
            with database.write() as connection:
                turns.claim(connection, run_id, 1, "heir", now_micros())
                turns.end(connection, run_id, 1, TurnOutcome(status, attempt=2), now_micros())
            (tmp_path / "gate").touch()
            error = late.exception(COLD_START_S)
        with database.read() as connection:
            turn = present(turns.by_number(connection, run_id, 1))

    assert isinstance(error, SupersededError)
    assert git("branch", "--list", cwd=tmp_path / "api.git").split() == ["*", "main"]
    assert (turn.status, turn.commit_sha, turn.attempt) == (status, None, 2)
    assert list(folder.work.iterdir()) == []


def test_a_turn_that_one_process_is_given_twice_is_completed_once(tmp_path: Path) -> None:
    """A worker that was taken for dead is given its own turn again: the later attempt completes it."""
    with waiting_turn(tmp_path) as (database, folder, run_id):
        execution = TurnExecution(database, folder, ExecutionSettings(), Sandbox(None, "a test"), now_micros)
        workspaces, attempts = Workspaces(folder, "same"), []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                (tmp_path / "begun").unlink(missing_ok=True)
                attempts.append(pool.submit(execution.execute, run_id, 1, workspaces))
                eventually((tmp_path / "begun").exists, "its agent works", COLD_START_S)
            (tmp_path / "gate").touch()
            first, second = (one.exception(COLD_START_S) for one in attempts)
        with database.read() as connection:
            turn = present(turns.by_number(connection, run_id, 1))

    assert isinstance(first, SupersededError)
    assert second is None
    assert (turn.status, turn.attempt, turn.commit_sha is not None) == ("completed", 2, True)


IDENTITY = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
SCISSORS = "# ------------------------ >8 ------------------------"


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Fix it\n\nRunwarden-Run: run_1 turn 2",
        f"Fix it\n\nRunwarden-Run : run_1 turn 2\n{SCISSORS}\nmore",
        f"Fix it\n\n runwarden-run\t: run_1 turn 2\n\n{SCISSORS}\n\n\n",
    ],
)
def test_an_agent_s_message_neither_hides_nor_forges_the_mark(tmp_path: Path, given: str | None) -> None:
    """Of the turn that made it, and of no other."""
    git, git_dir = GitRunner(tmp_path, 30, IDENTITY), tmp_path / "r"
    git("init", "--quiet", "--bare", str(git_dir))

    def attempt(number: int) -> Any:
        run = SimpleNamespace(id="run_1", branch="b", agent="mine")
        turn = SimpleNamespace(own_instructions="Fix it")
        return SimpleNamespace(run=run, turn=turn, git=git, trailer=f"run_1 turn {number}")

    tree = git.feed("", "mktree", git_dir=git_dir).strip()
    commit = git.feed(commit_message(attempt(1), given), "commit-tree", tree, "-F", "-", git_dir=git_dir).strip()
    snapshot: Any = SimpleNamespace(git_dir=git_dir, branches={"b": commit})
    assert commit_message(attempt(1), "Fix #5").startswith("Fix, see #5\n")

    assert [(own_commit(attempt(number), snapshot) or ("",))[0] for number in (1, 2)] == [commit, ""]
