"""A code host that is down for a while costs no work, and a branch that moves meanwhile gets the change on top."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.execution.git import is_passing
from tests.lab import Drop, Received, Respond, Step
from tests.service.conftest import UNBOXED, Api, Make
from tests.service.deployment import deployment
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository, start_service
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
IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@t.example")
SETTINGS = f"{UNBOXED}concurrency = 1\nlook_s = 0.1\n[forge]\nretry_s = 0.1\n"


class Hosted:
    """An organization with an agent of its own, a code host over HTTP, and a repository on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = {"README.md": "# api\n", "a.txt": "one\n"}
        self.bare = make_repository(folder / "hosted" / "api", files, {"work": {"b.txt": "branch\n"}})
        make_repository(folder / "hosted" / "other", files)
        self.host = GitHttpHost(folder / "hosted")
        (folder / "gate").touch()
        (folder / "agent.py").write_text(AGENT.replace("{folder}", str(folder)), "utf-8")
        names = {"acme/api": f"{self.host.url}/api.git", "acme/local": str(folder / "hosted" / "other.git")}
        self.repositories = [
            {"name": path[5:], "platform": "github", "path": path, "url": url} for path, url in names.items()
        ]
        self.agents = [{"name": "worker", "argv": ["{python}", str(folder / "agent.py")]}]
        self.api: Api

    def turns(self, run_id: str) -> list[dict[str, Any]]:
        return self.api.turns(run_id)

    def waits(self, run_id: str) -> str:
        """Wait until a run waits for the code host, and return the reason."""

        def reason() -> str | None:
            run = self.api.get(f"/external/runs/{run_id}").json()
            text = run["turns"][-1]["reason"] or ""
            return text if run["status"] == "queued" and text.startswith("waiting for 127.0.0.1 since ") else None

        return str(eventually(reason, "the run waits", COLD_START_S, saw=lambda: self.turns(run_id)))

    def ran(self, run_id: str) -> int:
        """How often the run's agent was started."""
        file = self.folder / "ran"
        return file.read_text().split().count(run_id) if file.exists() else 0

    def push(self, branch: str, name: str, text: str) -> str:
        """Let somebody else push a file, and return the commit."""
        clone = self.folder / f"clone-{name}"
        git("clone", "--quiet", "--branch", branch, str(self.bare), str(clone), cwd=self.folder)
        (clone / name).write_text(text)
        git("add", "--all", cwd=clone)
        git(*IDENTITY, "commit", "--quiet", "-m", f"theirs: {name}", cwd=clone)
        git("push", "--quiet", "origin", branch, cwd=clone)
        return git("rev-parse", "HEAD", cwd=clone)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service with one slot, which is the subject."""
    service = start_service(tmp_path_factory.mktemp("patient"), settings=SETTINGS)
    yield service
    assert service.stop() == 0


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One that gives a code host up after half a second."""
    service = start_service(tmp_path_factory.mktemp("hasty"), settings=f"{SETTINGS}give_up_s = 0.5\n")
    yield service
    assert service.stop() == 0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Hosted]:
    found = Hosted(tmp_path)
    yield found
    found.host.close()


@pytest.fixture
def setup(made: Hosted, tenant: Make, patient: Any) -> Hosted:
    """An organization of the patient service."""
    made.api = tenant(on=patient, repositories=made.repositories, agents=made.agents)
    return made


def during(step: str, answer: Step) -> Callable[[Received], Step | None]:
    """A fault of one kind of request: `GET`, the list of branches, or `POST`, of `upload` or `receive`."""
    method, _, service = step.partition(" ")
    return lambda one: answer if one.method == method and f"git-{service}-pack" in one.target else None


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        ("GET upload", Respond(503)),
        ("GET receive", Respond(502)),
        ("POST receive", Drop()),
    ],
)
def test_a_host_that_is_down_for_a_while_is_waited_for(setup: Hosted, step: str, answer: Step) -> None:
    """Without the slot, with the reason; the agent runs once, and one commit is pushed."""
    setup.host.fault = during(step, answer)
    run_id = setup.api.begin("worker", instructions=WRITES)
    reason = setup.waits(run_id)
    other = setup.api.ended(setup.api.begin("worker", "acme/local", instructions=WRITES))
    is_open = setup.api.run(run_id)["status"] != "failed"
    setup.host.fault = lambda _: None
    run = setup.api.ended(run_id)
    (turn,) = setup.turns(run_id)
    subjects = git("log", "--format=%s", f"main..{run['branch_name']}", cwd=setup.bare)

    assert (other["status"], is_open) == ("completed", True)
    assert "UTC: git " in reason, reason
    assert (run["status"], setup.ran(run_id), turn["files"]) == ("completed", 1, 1), setup.api.log(run_id)
    assert subjects.startswith("worker: pathlib")
    assert len(subjects.splitlines()) == 1


def test_a_push_that_landed_without_its_answer_is_recognized(setup: Hosted) -> None:
    """The host is down right after it; the next attempt finds the commit on the branch."""
    landed: list[bool] = []

    def fault(request: Received) -> Step | None:
        if landed:
            return Respond(503)
        if request.method == "POST" and request.target.endswith("git-receive-pack"):
            setup.host.fault = lambda _: None
            setup.host.serve(request)
            setup.host.fault = fault
            landed.append(True)
            return Drop()
        return None

    setup.host.fault = fault
    run_id = setup.api.begin("worker", instructions=WRITES)
    setup.waits(run_id)
    setup.host.fault = lambda _: None
    run = setup.api.ended(run_id)

    assert (run["status"], setup.ran(run_id)) == ("completed", 1)
    assert git("rev-list", "--count", f"main..{run['branch_name']}", cwd=setup.bare) == "1"
    assert "an earlier attempt has already pushed" in setup.api.log(run_id)


@pytest.mark.parametrize("step", ["GET upload", "POST receive"])
def test_a_host_that_stays_down_ends_the_wait(made: Hosted, tenant: Make, hasty: Any, step: str) -> None:
    """After `forge.give_up_s`; what the agent changed is kept, and the next turn starts from it by itself."""
    made.api = tenant(on=hasty, repositories=made.repositories, agents=made.agents)
    setup = made
    setup.host.fault = during(step, Respond(503))
    run_id = setup.api.begin("worker", instructions=WRITES)
    failed = setup.api.ended(run_id)
    setup.host.fault = lambda _: None
    setup.api.follow(run_id, "assert pathlib.Path('new.txt').exists() == ('receive' in '" + step + "'); " + WRITES)
    run = setup.api.ended(run_id)
    first, second = setup.turns(run_id)

    assert (failed["status"], first["failure_kind"]) == ("failed", "host_unreachable")
    assert first["reason"].startswith("127.0.0.1 has not answered since ")
    assert "503" in first["reason"]
    assert (run["status"], second["from_turn"]) == ("completed", 1 if "receive" in step else None)


def test_a_commit_that_waits_survives_its_worker(made: Hosted, tmp_path: Path, either_url: str | None) -> None:
    """On PostgreSQL another machine pushes it; no agent runs again, and nothing of the commit stays behind."""
    organization = {"name": "Acme", "slug": "acme", "entitlements": ["ServiceAPI"], "repositories": made.repositories}
    organization |= {"tokens": [{"alias": "tests", "scopes": ["admin"]}]}
    document = {"organizations": [organization], "agents": made.agents}
    with deployment(
        tmp_path / "deployed",
        either_url,
        settings=SETTINGS.replace("look_s", "worker_ttl_s = 2\nlook_s"),
        setup=document,
    ) as at:
        made.api = at.client(at.begin("serve", "--port", "0"))
        made.host.fault = during("POST receive", Respond(503))
        run_id = made.api.begin("worker", instructions=WRITES)
        made.waits(run_id)
        at.nodes[0].kill()
        at.begin("serve", "--port", "0", machine="first" if either_url is None else "second")
        made.api = at.client(at.nodes[1])
        made.host.fault = lambda _: None
        run = made.api.ended(run_id)
        with at.database.read() as connection:
            kept = connection.exec_driver_sql("SELECT count(*) FROM turn_files WHERE kind = 'commit'").scalar()
        at.nodes.pop(0)

    assert (run["status"], made.ran(run_id), kept) == ("completed", 1, 0)
    assert git("show", f"{run['branch_name']}:new.txt", cwd=made.bare) == "new"


def test_a_change_goes_on_top_of_what_others_pushed(setup: Hosted) -> None:
    """While the agent worked, and again while its commit waited: one commit, nothing of theirs lost."""
    (setup.folder / "gate").unlink()
    run_id = setup.api.begin("worker", fields={"branch_name": "work"}, instructions=WRITES)
    eventually(lambda: setup.ran(run_id), "the agent works", COLD_START_S)
    setup.push("work", "first.txt", "theirs")
    setup.host.fault = during("POST receive", Respond(503))
    (setup.folder / "gate").touch()
    setup.waits(run_id)
    second = setup.push("work", "second.txt", "theirs")
    setup.host.fault = lambda _: None
    run = setup.api.ended(run_id)
    (turn,) = setup.turns(run_id)
    patch = setup.api.get(f"/external/runs/{run_id}/turns/1/diff").text
    files = git("ls-tree", "--name-only", "work", cwd=setup.bare).split()

    assert run["status"] == "completed", turn["reason"]
    assert git("log", "-1", "--format=%H %P", "work", cwd=setup.bare) == f"{turn['commit']} {second}"
    assert files == ["README.md", "a.txt", "b.txt", "first.txt", "new.txt", "second.txt"]
    assert (turn["files"], patch.count("diff --git"), setup.ran(run_id)) == (1, 1, 1)


def rewrite(setup: Hosted) -> None:
    moved = git("commit-tree", "-m", "rewritten", "work^{tree}", cwd=setup.bare)
    git("update-ref", "refs/heads/work", moved, cwd=setup.bare)


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (
            lambda setup: setup.push("work", "a.txt", "theirs\n"),
            "others pushed to work while the agent worked, and its change conflicts with theirs in a.txt; the change",
        ),
        (rewrite, "the branch work was rewritten while the agent worked; the change is kept"),
        (
            lambda setup: git("branch", "-D", "work", cwd=setup.bare),
            "the branch work was deleted while the agent worked; the change is kept",
        ),
    ],
    ids=["conflict", "rewritten", "deleted"],
)
def test_a_branch_that_cannot_take_the_change_says_so(
    setup: Hosted, meanwhile: Callable[[Hosted], object], said: str
) -> None:
    """With what to do about it; what is on the branch stays, and the patch is kept."""
    (setup.folder / "gate").unlink()
    words = "pathlib.Path('a.txt').write_text('ours\\n')"
    run_id = setup.api.begin("worker", fields={"branch_name": "work"}, instructions=words)
    eventually(lambda: setup.ran(run_id), "the agent works", COLD_START_S)
    meanwhile(setup)
    before = git("for-each-ref", cwd=setup.bare)
    (setup.folder / "gate").touch()
    failed = setup.api.ended(run_id)
    (turn,) = setup.turns(run_id)

    assert (failed["status"], turn["files"], turn["commit"]) == ("failed", 1, None)
    assert turn["reason"].startswith(said), turn["reason"]
    assert git("for-each-ref", cwd=setup.bare) == before


@pytest.mark.parametrize(
    ("message", "passes"),
    [
        ("fatal: unable to access 'http://h/a.git/': The requested URL returned error: 503", True),
        ("error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502; fatal: early EOF", True),
        ("fatal: unable to access 'https://h/': Recv failure: Connection reset by peer", True),
        ("fatal: unable to access 'https://h/': Operation too slow. Less than 1 bytes/sec", True),
        ("send-pack: unexpected disconnect while reading sideband packet; the remote end hung up unexpectedly", True),
        ("ssh: connect to host h port 22: Network is unreachable; Could not read from remote repository.", True),
        ("! [remote rejected] main -> main (Internal Server Error)", True),
        ("error: RPC failed; HTTP 413 curl 22; the remote end hung up unexpectedly", False),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 403", False),
        ("fatal: unable to access 'https://h/': CONNECT tunnel failed, response 503", True),
        ("fatal: unable to access 'https://h/': CONNECT tunnel failed, response 407", True),
        ("fatal: unable to access 'http://h/': The requested URL returned error: 407", True),
        ("fatal: unable to access 'https://h/': Received HTTP code 504 from proxy after CONNECT", True),
        ("git@h: Permission denied (publickey).; fatal: Could not read from remote repository.", False),
        ("fatal: repository 'https://h/a.git/' not found", False),
        ("! [remote rejected] main -> main (pre-receive hook declined)", False),
        ("! [rejected] main -> main (stale info)", False),
    ],
)
def test_only_the_trouble_of_a_host_is_waited_for(message: str, *, passes: bool) -> None:
    """What the same command would say again tomorrow is an error now."""
    assert is_passing(message) == passes
