"""A code host's outage loses no work, and a change goes on top of a branch that moves meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.git import is_passing
from tests.lab import Drop, Received, Respond, Step
from tests.service.conftest import UNBOXED, Api, Make, member, placed
from tests.service.deployment import deployment
from tests.service.git_hosts import GitHttpHost, push
from tests.service_process import git, make_repository
from tests.waiting import COLD_START_S, eventually

AGENT = """
import json, pathlib, subprocess, sys, time
task = json.load(sys.stdin)
with pathlib.Path("{folder}/ran").open("a") as file: file.write(task["run_id"] + "\\n")
gate = pathlib.Path("{folder}/gate")
while not gate.exists(): time.sleep(0.02)
exec(task["instructions"])
"""
WRITES = "pathlib.Path('new.txt').write_text('new')"
SETTINGS = f"{UNBOXED}concurrency = 1\nlook_s = 0.1\nworker_ttl_s = 2\n[forge]\nretry_s = 0.1\n"


class Hosted:
    """An organization with its own agent, a code host over HTTP, and a repository on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = {"README.md": "# api\n", "a.txt": "one\n"}
        self.bare = make_repository(folder / "hosted" / "api", files, {"work": {"b.txt": "branch\n"}})
        local = make_repository(folder / "hosted" / "other", files)
        self.host = GitHttpHost(folder / "hosted")
        (folder / "gate").touch()
        (folder / "agent.py").write_text(AGENT.replace("{folder}", str(folder)), "utf-8")
        self.repositories = [placed(f"{self.host.origin}/api.git"), placed(local, "acme/local")]
        self.agents = [{"name": "worker", "argv": ["{python}", str(folder / "agent.py")]}]
        self.api: Api

    def waits(self, run_id: str) -> str:
        """Wait until a run waits for the code host, and return the reason."""

        def reason() -> str | None:
            run = self.api.get(f"/external/runs/{run_id}").json()
            text = run["turns"][-1]["reason"] or ""
            return text if run["status"] == "queued" and text.startswith("waiting for 127.0.0.1 since ") else None

        return str(eventually(reason, "the run waits", COLD_START_S, saw=lambda: self.api.turns(run_id)))

    def ran(self, run_id: str) -> int:
        """Return how often the run's agent was started."""
        file = self.folder / "ran"
        return file.read_text().split().count(run_id) if file.exists() else 0

    def at_work(self, words: str) -> str:
        """Start a run on the branch `work`, and return it when its agent waits at the gate."""
        (self.folder / "gate").unlink()
        run_id = self.api.begin("worker", fields={"branch_name": "work"}, instructions=words)
        eventually(lambda: self.ran(run_id), "the agent works", COLD_START_S)
        return run_id


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Hosted]:
    found = Hosted(tmp_path)
    yield found
    found.host.close()


@pytest.fixture
def setup(made: Hosted, tenant: Make, patient: Any) -> Hosted:
    """An organization of the patient service, whose only slot is tested."""
    made.api = tenant(on=patient, repositories=made.repositories, agents=made.agents)
    return made


def during(step: str, answer: Step) -> Callable[[Received], Step | None]:
    """A fault of one kind of request: `GET`, the list of branches, or `POST`, of `upload` or `receive`."""
    method, _, service = step.partition(" ")
    return lambda one: answer if one.method == method and f"git-{service}-pack" in one.target else None


def after_a_push(host: GitHttpHost) -> Callable[[Received], Step | None]:
    """A host that accepts a push, and is down before it answers."""

    def fault(request: Received) -> Step | None:
        if request.method == "GET" or not request.target.endswith("git-receive-pack"):
            return None
        host.fault = lambda _: None
        host.serve(request)
        host.fault = lambda _: Respond(503)
        return Drop()

    return fault


@pytest.mark.parametrize("landed", [False, True])
def test_a_short_outage_of_a_host_is_waited_out(setup: Hosted, *, landed: bool) -> None:
    """The run waits without a slot and with the reason.

    The agent runs once and one commit is pushed, even without an answer.
    """
    setup.host.fault = after_a_push(setup.host) if landed else during("GET upload", Respond(503))
    run_id = setup.api.begin("worker", instructions=WRITES)
    reason = setup.waits(run_id)
    other = setup.api.ended(setup.api.begin("worker", "acme/local", instructions=WRITES))
    is_open = setup.api.run(run_id)["status"] != "failed"
    setup.host.fault = lambda _: None
    turn = setup.api.worked(run_id)
    subjects = git("log", "--format=%s", f"main..{turn['branch']}", cwd=setup.bare)

    assert (other["status"], is_open) == ("completed", True)
    assert "UTC: git " in reason, reason
    assert (turn["outcome"], setup.ran(run_id), turn["files"]) == ("completed", 1, 1), turn["log"]
    assert subjects.startswith("worker: pathlib")
    assert len(subjects.splitlines()) == 1
    assert ("an earlier attempt has already pushed" in turn["log"]) == landed


def test_a_first_push_without_an_answer_counts(made: Hosted, tenant: Make, patient: Any) -> None:
    """The host made it the default branch, to which a run may push nothing else."""
    bare = made.folder / "hosted" / "empty.git"
    git("init", "--quiet", "--bare", str(bare), cwd=made.folder)
    made.api = tenant(on=patient, repositories=[placed(f"{made.host.origin}/empty.git")], agents=made.agents)
    made.host.fault = after_a_push(made.host)
    run_id = made.api.begin("worker", instructions=WRITES)
    made.waits(run_id)
    branch = made.api.run(run_id)["branch_name"]
    git("symbolic-ref", "HEAD", f"refs/heads/{branch}", cwd=bare)
    made.host.fault = lambda _: None
    turn = made.api.worked(run_id)

    assert (turn["outcome"], turn["commit"]) == ("completed", git("rev-parse", branch, cwd=bare)), turn["log"]


def test_a_lasting_outage_ends_the_wait(made: Hosted, start: Make) -> None:
    """After `forge.give_up_s` the change is kept, and the next turn starts from it automatically."""
    setup = {"organizations": [member(repositories=made.repositories)], "agents": made.agents}
    api = start(setup=setup, settings=f"{SETTINGS}give_up_s = 0.5\n")
    made.host.fault = during("POST receive", Respond(503))
    first = api.work(WRITES)
    made.host.fault = lambda _: None
    second = api.go_on(first["run_id"], "assert pathlib.Path('new.txt').exists()")

    assert (first["outcome"], first["failure_kind"]) == ("failed", "host_unreachable")
    assert first["reason"].startswith("127.0.0.1 has not answered since ")
    assert "503" in first["reason"]
    assert (second["outcome"], second["from_turn"], second["files"]) == ("completed", 1, 1)


def test_a_waiting_commit_survives_its_worker(made: Hosted, tmp_path: Path, postgres_url: str) -> None:
    """Another machine pushes it without running an agent again, and no file of the commit is left."""
    document = {"organizations": [member(repositories=made.repositories)], "agents": made.agents}
    with deployment(tmp_path / "deployed", postgres_url, settings=SETTINGS, setup=document) as at:
        made.api = at.client(at.begin("serve", "--port", "0"))
        made.host.fault = during("POST receive", Respond(503))
        run_id = made.api.begin("worker", instructions=WRITES)
        made.waits(run_id)
        at.nodes[0].kill()
        at.begin("serve", "--port", "0", machine="second")
        made.api = at.client(at.nodes[1])
        made.host.fault = lambda _: None
        run = made.api.ended(run_id)
        with at.database.read() as connection:
            kept = connection.exec_driver_sql("SELECT count(*) FROM turn_files WHERE kind = 'commit'").scalar()
        at.nodes.pop(0)

    assert (run["status"], made.ran(run_id), kept) == ("completed", 1, 0)
    assert git("show", f"{run['branch_name']}:new.txt", cwd=made.bare) == "new"


def test_a_change_is_rebased_onto_others_pushes(setup: Hosted) -> None:
    """Others push while the agent works and while its commit waits; the result is one commit that keeps theirs."""
    run_id = setup.at_work(WRITES)
    push(setup.bare, "work", {"first.txt": "theirs"})
    setup.host.fault = during("POST receive", Respond(503))
    (setup.folder / "gate").touch()
    setup.waits(run_id)
    second = push(setup.bare, "work", {"second.txt": "theirs"})
    setup.host.fault = lambda _: None
    turn = setup.api.worked(run_id)
    patch = setup.api.get(f"/external/runs/{run_id}/turns/1/diff").text
    files = git("ls-tree", "--name-only", "work", cwd=setup.bare).split()

    assert turn["outcome"] == "completed", turn["reason"]
    assert git("log", "-1", "--format=%H %P", "work", cwd=setup.bare) == f"{turn['commit']} {second}"
    assert files == ["README.md", "a.txt", "b.txt", "first.txt", "new.txt", "second.txt"]
    assert (turn["files"], patch.count("diff --git"), setup.ran(run_id)) == (1, 1, 1)


def rewrite(bare: Path) -> None:
    moved = git("commit-tree", "-m", "rewritten", "work^{tree}", cwd=bare)
    git("update-ref", "refs/heads/work", moved, cwd=bare)


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (
            lambda bare: push(bare, "work", {"a.txt": "theirs\n"}),
            "others pushed to work while the agent worked, and its change conflicts with theirs in a.txt; the change",
        ),
        (rewrite, "the branch work was rewritten while the agent worked; the change is kept"),
        (
            lambda bare: git("branch", "-D", "work", cwd=bare),
            "the branch work was deleted while the agent worked; the change is kept",
        ),
    ],
    ids=["conflict", "rewritten", "deleted"],
)
def test_a_rejected_push_has_a_reason(setup: Hosted, meanwhile: Callable[[Path], object], said: str) -> None:
    """The reason has the fix; the branch is unchanged, and the patch is kept."""
    run_id = setup.at_work("pathlib.Path('a.txt').write_text('ours\\n')")
    meanwhile(setup.bare)
    before = git("for-each-ref", cwd=setup.bare)
    (setup.folder / "gate").touch()
    turn = setup.api.worked(run_id)

    assert (turn["outcome"], turn["files"], turn["commit"]) == ("failed", 1, None)
    assert turn["reason"].startswith(said), turn["reason"]
    assert git("for-each-ref", cwd=setup.bare) == before


PASSING = (
    "fatal: unable to access 'http://h/a.git/': The requested URL returned error: 503",
    "fatal: unable to access 'https://h/': Recv failure: Connection reset by peer",
    "send-pack: unexpected disconnect while reading sideband packet; the remote end hung up unexpectedly",
    "ssh: connect to host h port 22: Network is unreachable; Could not read from remote repository.",
    "! [remote rejected] main -> main (Internal Server Error)",
    "fatal: unable to access 'https://h/': CONNECT tunnel failed, response 407",
    "fatal: unable to access 'https://h/': Received HTTP code 504 from proxy after CONNECT",
)
LASTING = (
    "error: RPC failed; HTTP 413 curl 22; the remote end hung up unexpectedly",
    "fatal: unable to access 'https://h/': The requested URL returned error: 403",
    "git@h: Permission denied (publickey).; fatal: Could not read from remote repository.",
    "! [remote rejected] main -> main (pre-receive hook declined)",
    "! [rejected] main -> main (stale info)",
)


def test_only_a_hosts_own_trouble_is_waited_out() -> None:
    """An error that would repeat forever fails the run at once."""
    assert [one for one in PASSING if not is_passing(one)] == []
    assert [one for one in LASTING if is_passing(one)] == []
