"""Repositories of which only a part is fetched: the contents of the branch, or of some of its folders."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from service import ids
from service.agents.options import RepositorySetup
from service.execution.git import GitCommandError, GitRunner
from service.execution.mirror import RepositoryMirror
from tests.lab import Received, Respond, Step
from tests.service.conftest import Make
from tests.service.git_hosts import GitHttpHost
from tests.service.test_large_files import worked
from tests.service_process import git, make_repository

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@t.example")
FILES = {"README.md": "# api\n", "old.txt": "first\n", "api/a.txt": "one\n", "api/b/c.txt": "c\n", "web/w.txt": "w\n"}


class Hosted:
    """A code host that gives parts of repositories, with one whose `old.txt` has an earlier version."""

    def __init__(self, folder: Path) -> None:
        self.bare = make_repository(folder / "hosted" / "api", FILES)
        for name in ("allowFilter", "allowAnySHA1InWant"):
            git("config", f"uploadpack.{name}", "true", cwd=self.bare)
        self.clone = folder / "clone"
        git("clone", "--quiet", str(self.bare), str(self.clone), cwd=folder)
        self.first = git("rev-parse", "main:old.txt", cwd=self.bare)
        self.push("main", "old.txt", "second\n")
        self.host = GitHttpHost(folder / "hosted")
        self.url = f"{self.host.url}/api.git"

    def push(self, branch: str, name: str, text: str) -> None:
        """Let somebody push a file."""
        git("fetch", "--quiet", cwd=self.clone)
        git("checkout", "--quiet", "-B", branch, f"origin/{branch}", cwd=self.clone)
        (self.clone / name).write_text(text)
        git("add", "--all", cwd=self.clone)
        git(*IDENTITY, "commit", "--quiet", "-m", f"theirs: {name}", cwd=self.clone)
        git("push", "--quiet", "origin", branch, cwd=self.clone)


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path)
    with closing(made.host):
        yield made


@pytest.fixture
def mirrors(tmp_path: Path) -> Path:
    folder = tmp_path / "mirrors"
    folder.mkdir()
    return folder


def contents(git_dir: Path) -> set[str]:
    """Return the contents that a mirror has."""
    listed = git("cat-file", "--batch-all-objects", "--batch-check", cwd=git_dir).splitlines()
    return {git("cat-file", "blob", line.split()[0], cwd=git_dir) for line in listed if " blob " in line}


READS = """
def said(*words): return subprocess.run(["git", *words], capture_output=True, text=True)
assert pathlib.Path("old.txt").read_text() == "second\\n"
assert said("status", "--short").stdout == ""
assert len(said("log", "--oneline", "--name-only").stdout.splitlines()) == 8
print("patch:", said("log", "-p").stderr)
print("config:", said("config", "--list", "--show-origin").stdout)
pathlib.Path("new.txt").write_text("new")
subprocess.run(["git", "commit", "-qam", "mine"])
"""


def test_an_agent_gets_the_branch_whole_and_its_history_without_contents(
    tenant: Make, tmp_path: Path, hosted: Hosted
) -> None:
    """What is missing is named by the agent's git, which has no way to the host; the commit is as ever."""
    api, turn = worked(tenant, tmp_path, hosted.url, READS, partial=True)
    key = ids.address_key(hosted.url)

    assert turn["outcome"] == "completed", turn["log"]
    assert "contents of earlier versions and of files outside" in turn["log"].partition("patch:")[2]
    assert hosted.host.url not in turn["log"].partition("config:")[2]
    assert git("diff", "--name-status", "main", turn["branch"], cwd=hosted.bare) == "A\tnew.txt"
    assert {"first", "second"} & contents(api.service.data_dir / f"mirrors/{key}.part.git") == {"second"}


STAYS_INSIDE = """
import pathlib
seen = sorted(str(path) for path in pathlib.Path().rglob("*") if path.is_file() and path.name != ".git")
assert seen == ["api/a.txt", "api/b/c.txt"], seen
def git(*words): subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], check=True)
pathlib.Path("api/new.txt").write_text("new")
pathlib.Path("api/b/c.txt").unlink()
git("add", "--all"); git("commit", "--quiet", "-m", "mine")
pathlib.Path("web").mkdir()
pathlib.Path("web/w.txt").write_text("changed")
pathlib.Path("out.txt").write_text("new")
"""


@pytest.mark.parametrize("commits", ["one", "keep"])
def test_an_agent_gets_some_folders_and_changes_no_others(
    tenant: Make, tmp_path: Path, hosted: Hosted, commits: str
) -> None:
    """Of the rest no content is fetched; what the agent writes there is named in the log."""
    repository = {"name": "api", "platform": "github", "path": "acme/api", "url": hosted.url}
    script = tmp_path / "worker.py"
    script.write_text(f"import json, subprocess, sys\njson.load(sys.stdin)\n{STAYS_INSIDE}")
    agent = {"name": "worker", "argv": ["{python}", str(script)], "commits": commits}
    api = tenant(repositories=[repository | {"setup": {"sparse": ["api/", "gone/"]}}], agents=[agent])
    run_id = api.begin("worker")
    run = api.ended(run_id)
    log = api.log(run_id)

    assert run["status"] == "completed", log
    assert git("diff", "--name-status", "main", run["branch_name"], cwd=hosted.bare).split("\n") == [
        "D\tapi/b/c.txt",
        "A\tapi/new.txt",
    ]
    assert "outside of the repository's sparse paths are not committed: out.txt, web/w.txt" in log
    assert "become one" not in log


def test_contents_come_in_batches_of_which_none_is_fetched_twice(
    mirrors: Path, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that breaks off in the middle costs one batch; many small packs become one that is still a part."""
    monkeypatch.setattr("service.execution.mirror._FIRST_BATCH", 1)
    monkeypatch.setattr("service.execution.mirror._LARGEST_BATCH", 1)
    monkeypatch.setattr("service.execution.mirror._MOST_PACKS", 3)
    said: list[str] = []
    mirror = RepositoryMirror(mirrors, hosted.url, GitRunner(mirrors, 300, progress=said.append), ())
    snapshot = mirror.fetch("main")
    fetched: list[int] = []

    def third(request: Received) -> Step | None:
        is_fetch = request.method == "POST" and b"command=fetch" in request.body
        fetched.append(is_fetch)
        return Respond(503) if is_fetch and sum(fetched) == 3 else None

    hosted.host.fault = third
    with pytest.raises(GitCommandError) as error:
        mirror.fill(snapshot, "main")
    kept = contents(mirror.git_dir)
    mirror.fill(snapshot, "main")

    assert error.value.is_passing
    assert len(kept) == 2
    assert sum(fetched) == 3 + 3
    assert {text.strip() for text in FILES.values()} - {"first"} | {"second"} == contents(mirror.git_dir)
    assert "100% of the contents of 3 files" in said
    assert len(list((mirror.git_dir / "objects/pack").glob("*.pack"))) == 1
    hosted.push("main", "old.txt", "third\n")
    again = mirror.fetch("main")
    mirror.fill(again, "main")
    assert "third" in contents(mirror.git_dir)


@pytest.mark.parametrize("part", [(), ("api",)])
def test_a_merge_with_what_others_pushed_has_what_it_reads(
    mirrors: Path, hosted: Hosted, part: tuple[str, ...]
) -> None:
    """Three versions of a file that moved and changed meanwhile, even outside of the part."""
    mirror = RepositoryMirror(mirrors, hosted.url, GitRunner(mirrors, 300), part)
    base = mirror.fetch("main").default
    hosted.push("main", "web/w.txt", "theirs\n")
    mirror.fill(mirror.fetch("main"), "main", [base])

    assert {"w", "theirs"} <= contents(mirror.git_dir)


def test_a_host_that_gives_no_parts_gives_all(mirrors: Path, hosted: Hosted) -> None:
    """Old servers ignore the filter."""
    git("config", "uploadpack.allowFilter", "false", cwd=hosted.bare)
    mirror = RepositoryMirror(mirrors, hosted.url, GitRunner(mirrors, 300), ())
    mirror.fill(mirror.fetch("main"), "main")

    assert {"first", "second"} <= contents(mirror.git_dir)


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ({"sparse": ["../x"]}, "write paths in the repository, such as 'services/api/', not '../x'"),
        ({"sparse": ["/x"]}, "write paths in the repository"),
        ({"sparse": ["x"], "lfs": True}, "sparse cannot be combined with lfs or submodules"),
    ],
)
def test_paths_lie_in_the_repository(setup: dict[str, object], said: str) -> None:
    """And large files or submodules outside of them are not looked for."""
    with pytest.raises(ValidationError, match=said):
        RepositorySetup.model_validate(setup)
