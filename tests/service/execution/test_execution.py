"""An accepted turn becomes a commit or a merge, with real git and real agents (docs/run/agent-contract.md)."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Respond, Server
from tests.service.conftest import NEEDS_SANDBOX, OBEYS, Api, Make, Own, placed
from tests.service.git_hosts import GitHttpHost, push
from tests.service_process import git, make_repository
from tests.waiting import COLD_START_S, eventually


def test_a_turn_becomes_one_marked_commit_on_its_branch(own: Own) -> None:
    """The commit has the agent's message, our author and our trailer, on the named branch.

    No change gives no commit.
    """
    api, repository = own(branches={"fix/login": {"login.py": "# TODO: check the password\n"}})
    new, named, none = api.start("write"), api.start("go on", branch_name="fix/login"), api.start("nothing to do")
    run, _, empty = ended = [api.ended(one) for one in (new, named, none)]

    assert [one["status"] for one in ended] == ["completed"] * 3
    assert git("log", "--format=%an <%ae>%n%B", f"main..{run['branch_name']}", cwd=repository).splitlines() == [
        "Runwarden reviewer <reviewer@runwarden.invalid>",
        "scribe: write",
        "",
        f"Runwarden-Run: {new} turn 1",
    ]
    subjects = git("log", "--format=%s", "main..fix/login", cwd=repository)
    assert subjects.splitlines() == ["scribe: go on", "Work on fix/login"]
    assert git("branch", "--list", empty["branch_name"], cwd=repository) == ""


def test_the_task_has_all_promised_fields(api: Api) -> None:
    """The first turn has no conversation; the second has the first, with its commit and summary."""
    repository = api.service.repositories["acme/api"]
    turn = api.work("one step", "scribe")
    run_id, branch = turn["run_id"], turn["branch"]
    api.go_on(run_id, "another step")
    first, second = (
        json.loads(git("show", f"{branch}:notes/{run_id}-{number}.json", cwd=repository)) for number in (1, 2)
    )
    commits = git("rev-list", f"main..{branch}", cwd=repository).split()
    names = {"run_id": run_id, "agent": "scribe", "branch": branch, "default_branch": "main"}
    names["repository"] = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    asked = {"instructions": "one step", "inputs": {"instructions": "one step"}}

    assert first == names | asked | {"turn": 1, "conversation": []}
    assert (second["turn"], second["instructions"], second["inputs"]) == (2, "another step", {})
    assert [{key: past[key] for key in ("turn", "status", "commit", "summary")} for past in second["conversation"]] == [
        {"turn": 1, "status": "completed", "commit": commits[1], "summary": "did one"}
    ]
    assert len(commits) == 2


def test_a_commit_keeps_every_byte_despite_attributes(own: Own) -> None:
    """Files with CRLF, keywords or another encoding keep every byte."""
    stored = {"crlf.txt": "one\r\ntwo\r\n", "id.txt": "$Id: kept $\n", "utf.txt": "caf\u00e9\n", ".gitattributes": ""}
    api, bare = own(stored)
    attributes = "* text=auto eol=lf\nid.txt ident\nutf.txt working-tree-encoding=UTF-16\n"
    push(bare, "main", {".gitattributes": attributes})
    run = api.ended(api.start("write it"))

    changed = git("diff", "--name-only", "main", run["branch_name"], cwd=bare).split()
    assert run["status"] == "completed"
    assert changed == [f"notes/{run['run_id']}-1.json"]


def test_an_empty_repository_gets_its_first_commit(tenant: Make, tmp_path: Path) -> None:
    """Without a default branch or base, the agent's commit creates the run's branch."""
    git("init", "--quiet", "--bare", str(tmp_path / "empty.git"), cwd=tmp_path)
    api = tenant(repositories=[placed(tmp_path / "empty.git", "acme/empty")])
    run = api.ended(api.start("begin", "acme/empty"))

    # As GitHub does with the first pushed branch.
    git("symbolic-ref", "HEAD", f"refs/heads/{run['branch_name']}", cwd=tmp_path / "empty.git")
    again = api.follow(run["run_id"], "go on", "acme/empty")

    assert (run["status"], again.status_code) == ("completed", 201)
    assert api.ended(run["run_id"])["status"] == "completed", "the run's own branch is not protected from it"
    assert git("rev-list", "--count", run["branch_name"], cwd=tmp_path / "empty.git") == "2"


def test_an_impossible_branch_is_refused_before_the_work(own: Own) -> None:
    """An agent whose branch cannot be created would be paid for nothing."""
    api, _ = own(branches={"feature": {"a.txt": "x"}})
    turn = api.work("write", "scribe", branch_name="feature/x")

    assert turn["reason"].startswith("the branch feature/x cannot be made next to the branch feature")
    assert "scribe at work" not in turn["log"]


ENVIRONMENT = """
os.close(1); os.close(2); time.sleep(0.6)
pathlib.Path("environment.json").write_text(json.dumps(dict(os.environ)))
"""


def test_the_agent_sees_only_the_allowed_environment(api: Api, tmp_path: Path) -> None:
    """Only the allow-list is passed, HOME is separate, and an agent that closes its output is waited for."""
    api.add_agent(tmp_path, "nosy", OBEYS, "--env", "LENT")
    turn = api.work(ENVIRONMENT, "nosy")
    seen = json.loads(git("show", f"{turn['commit']}:environment.json", cwd=api.service.repositories["acme/api"]))

    assert "SECRET" not in seen
    assert seen["LENT"] == "lent"
    assert seen["HOME"] == "/home/agent" or seen["HOME"].startswith(str(api.service.data_dir / "work"))


PRYING = """
def reached(name):
    try: return bool(pathlib.Path(name).read_bytes())
    except OSError: return False
found = {{name: reached(name) for name in {files}}}
for name in {outside}:
    try: pathlib.Path(name).write_text("x")
    except OSError: pass
import socket
try: socket.create_connection(("127.0.0.1", {port}), 2).close(); found["connect"] = True
except OSError: found["connect"] = False
pathlib.Path("found.json").write_text(json.dumps(found))
"""


@NEEDS_SANDBOX
def test_the_sandbox_hides_everything_but_the_workspace(equipped: Any, tmp_path: Path) -> None:
    """The database, tokens, home and network are hidden, and nothing outside the workspace is writable."""
    api = Api(equipped)
    api.add_agent(tmp_path, "prying", OBEYS)
    (tmp_path / "secret").write_text("s")
    port = int(api.service.base_url.removesuffix("/v1").rpartition(":")[2])
    hidden = [str(api.service.data_dir / "service.sqlite"), str(tmp_path / "secret"), "/etc/shadow"]
    outside = [tmp_path / "written", Path(sys.prefix, "written")]
    words = PRYING.format(files=[*hidden, sys.executable], outside=[*map(str, outside)], port=port)
    turn = api.work(words, "prying")
    written = git("show", f"{turn['commit']}:found.json", cwd=api.service.repositories["acme/api"])

    assert json.loads(written) == dict.fromkeys(hidden, False) | {sys.executable: True, "connect": False}
    assert not [path for path in outside if path.exists()]


def test_a_run_clones_and_pushes_with_the_hosts_token(tenant: Make, tmp_path: Path) -> None:
    """With the token the commit arrives and no file contains it.

    Without it the run fails with git's words in its log.
    """
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    found = {}
    with contextlib.closing(GitHttpHost(tmp_path, "s3cr3t")) as there:
        for variable in ("SECRET", "UNSET"):
            host = {"platform": "github", "probe": "git", "clone_url": f"{there.origin}/{{path}}.git"}
            api = tenant(hosts=[host | {"token_env": variable}], repositories=[placed()])
            run = api.ended(api.start("write it"))
            health = api.get("/external/installation/health").json()["code_hosting"]
            found[variable] = run["status"], health["github"]["status"]
            if variable == "SECRET":
                assert "scribe: write it" in git("log", "--format=%s", run["branch_name"], cwd=bare)
    kept = subprocess.run(["grep", "-rl", "s3cr3t", str(api.service.data_dir)], capture_output=True, check=False).stdout

    assert found == {"SECRET": ("completed", "ok"), "UNSET": ("failed", "unauthorized")}
    assert kept == b""
    shown = str(api.service.admin("run", run["run_id"]))
    assert "Authentication failed" in shown
    assert "UNSET is not set in the environment of this worker" in shown


def test_neither_token_nor_push_follows_a_redirect(tenant: Make, tmp_path: Path) -> None:
    """The run fails with the fix, and the other host receives nothing."""
    with Server() as elsewhere, Server() as there:
        there.otherwise = lambda request: Respond(302, headers={"Location": f"{elsewhere.origin}{request.target}"})
        host = {"platform": "github", "probe": "git", "token_env": "HOST_TOKEN"}
        host["clone_url"] = f"{there.origin}/{{path}}.git"
        api = tenant(hosts=[host], repositories=[placed()])
        turn = api.work("write it", "scribe")

        assert turn["outcome"] == "failed"
        assert "the repository has moved" in turn["reason"]
        assert there.requests
        assert elsewhere.requests == []


GIT = "def git(*words): subprocess.run(['git', *words], check=False)\n"
CONFLICT = """
git("merge", "origin/main")
pathlib.Path("a.txt").write_text("both\\n")
git("add", "--all")
git("commit", "-qm", "Merge main, conflict resolved")
"""
CLEAN = """git("merge", "-q", "-m", "Merge main", "origin/main")"""
PLANTED = """
objects = pathlib.Path(os.environ["GIT_DIR"]) / "objects"
(objects / "info").mkdir(exist_ok=True)
(objects / "info/alternates").write_text("/\\n")
git("config", "core.fsmonitor", "touch /tmp/never")
pathlib.Path(os.environ["GIT_DIR"], "HEAD").unlink()
os.mkfifo(os.environ["GIT_DIR"] + "/HEAD")
pathlib.Path("new.txt").write_text("new")
"""
Merging = Callable[..., tuple[Api, Path]]


@pytest.fixture
def merging(own: Own, tmp_path: Path) -> Merging:
    """`merging(on_main, work)` makes a repository with diverged branches; its `keeper` keeps commits."""

    def make(on_main: dict[str, str], work: dict[str, str] | None = None) -> tuple[Api, Path]:
        (tmp_path / "keeper.py").write_text(OBEYS)
        argv = ["{python}", str(tmp_path / "keeper.py")]
        keeper = {"name": "keeper", "argv": argv, "commits": "keep", "environment": ["SECRET"]}
        api, bare = own({"a.txt": "one\n"}, {"work": work or {"a.txt": "branch\n"}}, agents=[keeper])
        push(bare, "main", on_main)
        return api, bare

    return make


def merged(api: Api, words: str, agent: str = "worker") -> tuple[dict[str, Any], str]:
    turn = api.work(GIT + words, agent, branch_name="work")
    return turn, api.get(f"/external/runs/{turn['run_id']}/turns/1/diff").text


def test_a_resolved_conflict_is_a_merge_with_both_parents(merging: Merging) -> None:
    """The diff is only the resolution, and the branch merges into main afterwards."""
    api, bare = merging({"a.txt": "main\n", "other.txt": "new on main\n"})
    before = git("rev-parse", "work", "main", cwd=bare).split()
    turn, patch = merged(api, CONFLICT)

    assert turn["outcome"] == "completed", turn["reason"]
    assert git("log", "-1", "--format=%P", "work", cwd=bare).split() == before
    assert git("rev-list", "--count", f"{before[0]}..work", "^main", cwd=bare) == "1"
    assert git("merge-tree", "--write-tree", "main", "work", cwd=bare)
    assert (turn["files"], "+both" in patch, "other.txt" in patch) == (1, True, False)


def test_a_merge_counts_as_what_it_adds(merging: Merging) -> None:
    """A protected file from the other branch is not the agent's change; its own is."""
    on_main = {".github/workflows/ci.yml": "on: push\n", "other.txt": "x"}
    api, bare = merging(on_main, {"b.txt": "branch\n"})
    turn, patch = merged(api, CLEAN)
    own_turn, _ = merged(api, f"{CLEAN}\npathlib.Path('.github/workflows/mine.yml').write_text('on: push')")

    assert (turn["outcome"], turn["files"], patch) == ("completed", 0, ""), turn["reason"]
    assert len(git("log", "-1", "--format=%P", "work", cwd=bare).split()) == 2
    assert "protected" in own_turn["reason"]


def test_a_fast_forward_becomes_a_merge(merging: Merging) -> None:
    """A fast-forward in the checkout becomes one marked commit, like every push.

    A HEAD that blocks or has foreign objects becomes an ordinary commit.
    """
    api, bare = merging({"other.txt": "x"})
    git("update-ref", "refs/heads/work", "main~1", cwd=bare)
    before = git("rev-parse", "work", "main", cwd=bare).split()
    turn, _ = merged(api, """git("merge", "-q", "origin/main"); pathlib.Path("mine.txt").write_text("x")""")
    planted, _ = merged(api, PLANTED)

    assert git("log", "-1", "--format=%H %P", "work~", cwd=bare).split() == [turn["commit"], *before]
    assert turn["files"] == 1
    assert planted["outcome"] == "completed", planted["reason"]
    assert git("log", "-1", "--format=%H %P", "work", cwd=bare).split() == [planted["commit"], turn["commit"]]


TWO = """
pathlib.Path("x").write_text("1")
git("add", "--all")
git("commit", "-qm", "First of two\\n\\nRunwarden-Run: forged turn 1")
pathlib.Path("y").write_text("2"); git("add", "--all"); git("commit", "-qm", "Second of two")
"""
PASSING = """
pathlib.Path({name}).write_text({text})
git("add", "--all")
git("commit", "-qm", "In")
os.unlink({name})
git("commit", "-qam", "Out")
"""


def test_an_agents_commits_are_kept_on_request(merging: Merging) -> None:
    """The commits keep their messages and get the service's marks and author.

    Remaining changes become one more commit.
    """
    api, bare = merging({"other.txt": "x"})
    before = git("rev-parse", "work", cwd=bare)
    turn, patch = merged(api, f"{TWO}pathlib.Path('z').write_text('3')", "keeper")
    form = "%s|%an|%(trailers:key=Runwarden-Run,valueonly)"
    listed = git("log", f"--format={form}", f"{before}..work", cwd=bare).split("\n")
    last, *others = [line.split("|") for line in listed if line]

    assert turn["outcome"] == "completed", turn["reason"]
    assert last[0].startswith("keeper: def git")
    assert [one[0] for one in others] == ["Second of two", "First of two"]
    assert {one[1] for one in (last, *others)} == {"Runwarden reviewer"}
    assert all(one[2].startswith("run_") for one in (last, *others))
    assert turn["commit"] == git("rev-parse", "work", cwd=bare)
    assert [one for one in ("b/x", "b/y", "b/z") if one not in patch] == []


def test_limits_apply_to_each_kept_commit(merging: Merging) -> None:
    """A protected file or secret that only an intermediate commit has is refused."""
    api, bare = merging({"other.txt": "x"})
    before = git("rev-parse", "work", cwd=bare)
    for name, text, why in (
        ("'Jenkinsfile'", "'x'", "it touches Jenkinsfile, which is protected"),
        ("'leak'", "os.environ['SECRET']", "the change holds the value of SECRET"),
    ):
        turn, _ = merged(api, TWO + PASSING.format(name=name, text=text), "keeper")
        assert why in turn["reason"]

    assert git("rev-parse", "work", cwd=bare) == before


def test_kept_commits_are_merged_with_others_pushes(merging: Merging, tmp_path: Path) -> None:
    """The commits are merged, and the change is compared with the branch as it was then."""
    api, bare = merging({"other.txt": "x"})
    gate = tmp_path / "gate"
    words = f"{GIT}{TWO}print('waits', flush=True)\nwhile not pathlib.Path('{gate}').exists(): time.sleep(0.05)"
    run_id = api.begin("keeper", fields={"branch_name": "work"}, instructions=words)
    eventually(lambda: "waits" in api.log(run_id), "the agent has committed", COLD_START_S)
    theirs = push(bare, "work", {})
    gate.touch()
    turn = api.worked(run_id)

    assert turn["outcome"] == "completed", turn["reason"]
    assert turn["files"] == 2
    assert git("log", "--format=%s", f"{theirs}..work", cwd=bare).split("\n")[1:] == ["Second of two", "First of two"]
    assert git("merge-base", "--is-ancestor", theirs, "work", cwd=bare) == ""
