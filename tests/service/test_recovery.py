"""What dies on the way: nothing accepted is lost, no turn commits twice (kill -9, SIGTERM, restart)."""

import signal
from pathlib import Path
from typing import Any

import pytest

from service.settings import DataFolder
from tests.service.conftest import Make, Own
from tests.service.deployment import deployment
from tests.service_process import git, put_hook
from tests.waiting import eventually

UNBOXED = '[execution]\nsandbox = "none"\ndrain_s = 0.1\n'


def commits(api: Any, run_id: str) -> list[str]:
    branch = api.run(run_id)["branch_name"]
    return git("log", "--format=%s", f"main..{branch}", cwd=api.service.repositories["acme/api"]).splitlines()


def test_a_turn_that_pushed_before_it_could_say_so_is_not_done_again(start: Make, tmp_path: Path) -> None:
    """Kill -9 between push and record: the next attempt finds its own commit by the trailer and adds none."""
    api = start(settings=UNBOXED)
    repository = api.service.repositories["acme/api"]
    pushed, gate = tmp_path / "pushed", tmp_path / "gate"
    # The repository itself holds the push's end up, after the branch has moved.
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


def test_a_push_that_landed_without_an_answer_counts(own: Own) -> None:
    """The connection dies after the branch has moved: the commit is found there, and the run completes with it."""
    api, repository = own()
    # The parent of the hook is git's own receiving end.
    put_hook(repository, "post-receive", "kill -9 $PPID")
    run = api.ended(api.start("write once"))
    shown = api.service.admin("run", run["run_id"])["turns"][0]

    assert run["status"] == "completed", api.log(run["run_id"])
    assert shown["commit"] == git("rev-parse", run["branch_name"], cwd=repository)
    assert git("log", "--format=%s", f"main..{run['branch_name']}", cwd=repository) == "scribe: write once"


def test_a_turn_whose_log_cannot_be_written_is_put_back(tmp_path: Path) -> None:
    """A full disk is the service's trouble: the turn waits for room instead of failing, and is not reported as lost."""
    with deployment(tmp_path, settings=f"{UNBOXED}put_back_s = 0.5\n") as made:
        client = made.client(made.api())
        run_id = client.start("write once")
        log = DataFolder(made.machine("first")).turn_log(run_id, 1)
        log.parent.mkdir(parents=True)
        log.symlink_to("/dev/full")
        worker = made.begin("worker")
        eventually(lambda: "turn 1 is put back: [Errno 28]" in worker.log, "the turn is put back")
        log.unlink()

        assert client.ended(run_id)["status"] == "completed"
        assert made.admin("run", run_id)["turns"][0]["attempt"] == 2
        assert "no worker" not in worker.log, "its slot was never lost"


def test_sigterm_lets_an_agent_at_work_end(start: Make, tmp_path: Path) -> None:
    """Within the grace the turn ends in order, is recorded, and the exit status is 0."""
    api = start(settings='[execution]\nsandbox = "none"\ndrain_s = 20\n')
    gate = tmp_path / "gate"
    run_id = api.start(f"wait {gate}")
    api.reaches(run_id, "working")
    api.service.signal(signal.SIGTERM)
    gate.touch()
    printed = api.service.printed.read()
    status = api.service.ended()
    ended = api.service.admin("run", run_id)

    assert (status, printed) == (0, ""), "one line at the start is all that it prints"
    assert (ended["status"], ended["turns"][0]["attempt"]) == ("completed", 1)
    assert "drained" in api.service.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_interrupted_completes_after_the_restart(start: Make, tmp_path: Path, number: int) -> None:
    """After its grace, or by kill -9: nothing of its agent is left, the turn is taken up again and commits once."""
    api = start(settings=UNBOXED)
    gate = tmp_path / "gate"
    run_id = api.start(f"wait {gate}")
    api.reaches(run_id, "working")
    api.service.signal(number)
    status = api.service.ended()
    interrupted = api.service.admin("run", run_id)["status"]
    gate.touch()
    api.service.restart()

    assert (status, interrupted) == (-number if number == signal.SIGKILL else 0, "working")
    assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    assert len(commits(api, run_id)) == 1
    assert "attempt 2" in api.log(run_id)
    assert list((api.service.data_dir / "work").iterdir()) == []
