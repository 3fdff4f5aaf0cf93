"""git commands and mirrors, full and partial; nothing in a repository or a workspace runs or leads outside."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.execution.checkout import Checkout
from service.execution.mirror import RepositoryMirror
from service.execution.rehearsal import scratch_repository
from service.execution.workspace import Workspace
from service.git import GitCommandError, GitRunner
from service.settings import ExecutionSettings
from tests.service.conftest import OBEYS, Api, Make, placed
from tests.service.git_hosts import GitHttpHost, push
from tests.service_process import git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "api", {"a": "1"}, {"next": {"a": "2"}})


@pytest.fixture
def mirror(tmp_path: Path, repository: Path) -> RepositoryMirror:
    (tmp_path / "mirrors").mkdir()
    return RepositoryMirror(tmp_path / "mirrors", GitRunner(tmp_path, timeout_s=300, url=str(repository)))


def move(repository: Path, branch: str, onto: str) -> str:
    git("update-ref", f"refs/heads/{branch}", onto, cwd=repository)
    return git("rev-parse", branch, cwd=repository)


def test_a_mirror_keeps_only_two_branches(
    mirror: RepositoryMirror, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot has the branches' present state, while git reads all names in each fetch.

    Packs are joined, and a full mirror needs no object from the host.
    """
    monkeypatch.setattr("service.execution.mirror._MAX_PACKS", 0)
    git("branch", "other", "main", cwd=repository)
    first = mirror.fetch("next")
    moved = move(repository, "main", "next")
    git("branch", "-D", "next", cwd=repository)
    git("branch", "next/newer", "main", cwd=repository)
    second, third, fourth = (mirror.fetch(name) for name in ("next", "next/newer", "main"))
    listed = git("for-each-ref", "--format=%(refname)", cwd=mirror.git_dir).splitlines()

    assert (first.default_branch, set(first.branches)) == ("main", {"main", "next"})
    assert second.branches == {"main": moved}
    assert third.branches == {"main": moved, "next/newer": moved}
    assert fourth.branches == {"main": moved}
    assert listed == ["refs/fetched/branch", "refs/fetched/default"]
    packed = [one.suffix for one in (mirror.git_dir / "objects/pack").iterdir()]
    assert (packed.count(".pack"), packed.count(".promisor")) == (1, 0)


def test_similar_branch_names_are_distinguished(mirror: RepositoryMirror, repository: Path) -> None:
    """Git matches the ends of names, and stores branches as files and folders, so one can block another.

    A HEAD that points nowhere is not a default branch.
    """
    for name in ("refs/heads/fix", "a/HEAD"):
        git("update-ref", f"refs/heads/{name}", "next", cwd=repository)
    alike = mirror.fetch("fix")
    beside = {branch: mirror.fetch(branch).beside for branch in ("next/x", "a", "next", "other/x")}
    git("symbolic-ref", "HEAD", "refs/heads/gone", cwd=repository)
    headless = mirror.fetch("next")

    assert (alike.default_branch, set(alike.branches)) == ("main", {"main"})
    assert beside == {"next/x": "next", "a": "a/HEAD", "next": None, "other/x": None}
    assert (headless.default_branch, set(headless.branches)) == (None, {"next"})


def test_only_an_abandoned_lock_is_removed(mirror: RepositoryMirror, repository: Path) -> None:
    """A fresh lock is an error and stays; one older than any of our commands was left by a power cut."""
    mirror.fetch("main")
    moved = move(repository, "main", "next")
    (kept,) = (mirror.git_dir / "refs" / "fetched").iterdir()
    lock = kept.with_suffix(".lock")
    lock.touch()
    with pytest.raises(GitCommandError, match="fetch failed"):
        mirror.fetch("main")
    assert lock.exists()
    os.utime(lock, (1, 1))

    assert mirror.fetch("main").branches["main"] == moved
    assert not lock.exists()


def test_an_invalid_address_is_never_a_command(tmp_path: Path) -> None:
    """No part of an address becomes an option or a program."""
    for url in ("--upload-pack=touch sprung", "ext::sh -c touch% sprung", "/nowhere"):
        with pytest.raises(GitCommandError):
            RepositoryMirror(tmp_path, GitRunner(tmp_path, timeout_s=300, url=url)).fetch("main")
    assert not list(tmp_path.rglob("sprung"))


HOSTILE = """
inputs = task["inputs"]
trap = pathlib.Path(inputs["trap"])
shutil.rmtree("src"); os.symlink(inputs["outside"], "src")
os.symlink("/", "root"); os.symlink("../../..", "up"); os.symlink("loop", "loop")
alarm = f"touch {trap}"
script = pathlib.Path("evil.sh"); script.write_text(f"#!/bin/sh\\n{alarm}\\n"); script.chmod(0o755)
def infect(folder):
    config = f'[core]\\n\\tfsmonitor = "{alarm}; false"\\n\\tsshCommand = "{alarm}"\\n\\thooksPath = {os.getcwd()}\\n'
    config += f'[filter "x"]\\n\\tclean = "{alarm}; cat"\\n\\tsmudge = "{alarm}; cat"\\n'
    config += f'[alias]\\n\\tadd = "!{alarm}"\\n'
    try:
        with open(os.path.join(folder, "config"), "a") as file: file.write(config)
        hook = pathlib.Path(folder, "hooks", "pre-push"); hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\\n{alarm}\\n"); hook.chmod(0o755)
    except OSError: pass
infect(os.environ["GIT_DIR"])
clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_DIR") and not k.startswith("GIT_WORK")}
subprocess.run(["git", "init", "-q", "nested"], env=clean, check=True)
pathlib.Path("nested/file").write_text("kept")
infect("nested/.git")
pathlib.Path(".gitattributes").write_text("* filter=x\\n")
pathlib.Path("nested/.gitattributes").write_text("* filter=x\\n")
pathlib.Path(".git").unlink(); pathlib.Path(".git").mkdir(); infect(".git")
pathlib.Path("pre-push").write_text(f"#!/bin/sh\\n{alarm}\\n"); pathlib.Path("pre-push").chmod(0o755)
locked = pathlib.Path("locked"); locked.mkdir(); (locked / "in").write_text("x"); locked.chmod(0o500)
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).symlink_to("/etc/passwd")
"""


def test_git_hooks_of_an_agent_never_run(api: Api, tmp_path: Path) -> None:
    """Hooks, filters, fsmonitor and aliases in any git directory it can write do not run.

    Links out of the checkout are committed as links, and their targets are neither read, changed nor removed.
    """
    trap, outside = tmp_path / "sprung", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    turn = api.worked(api.begin("worker", instructions=HOSTILE, trap=str(trap), outside=str(outside)))
    repository = api.service.repositories["acme/api"]
    committed = git("ls-tree", "-r", "--full-tree", turn["branch"], cwd=repository).splitlines()
    names = [line.split()[-1] for line in committed]

    assert turn["outcome"] == "completed", turn["log"]
    assert not trap.exists()
    assert "nested/file" in names
    assert [line.split()[-1] for line in committed if line.startswith("120000")] == ["loop", "root", "src", "up"]
    assert not [name for name in names if ".git/" in name or "secret" in name]
    assert not [line for line in committed if line.startswith("160000")]
    assert (outside / "secret").read_text() == "secret"
    assert list((api.service.data_dir / "work").glob(f"*{turn['run_id']}*")) == []


def test_submodules_and_attributes_run_no_command(api: Api, tmp_path: Path) -> None:
    """A submodule whose address is a command, and filters for every file, do nothing; the submodule is unchanged."""
    repository = api.service.repositories["acme/api"]
    trap = tmp_path / "sprung"
    text = f'[submodule "vendored"]\n\tpath = vendored\n\turl = ext::sh -c "touch {trap}"\n\tupdate = !touch {trap}\n'
    files = {".gitmodules": text, ".gitattributes": "* filter=evil diff=evil merge=evil\n"}
    link = "M 160000 4b40829fb03b2a58f094f9cc58fd0395cafad355 vendored\n"
    push(repository, "modules", files, onto="refs/heads/main", more=link)
    run = api.ended(api.start("write beside it", branch_name="modules"))
    tree = git("ls-tree", "modules", "vendored", cwd=repository)

    assert run["status"] == "completed", api.log(run["run_id"])
    assert tree.startswith("160000 commit 4b40829f")
    assert not trap.exists()


def runner(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, limit_s: float) -> GitRunner:
    (folder / "git").write_text(f"#!/bin/sh\n{source}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return GitRunner(folder, limit_s)


def test_a_silent_git_command_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent fetch blames the code host, which may recover; a local command does not."""
    for command, passes in (("fetch", True), ("write-tree", False)):
        with pytest.raises(GitCommandError) as raised:
            runner(tmp_path, monkeypatch, "exec sleep 1000", 0.3)(command)
        assert raised.value.is_passing == passes


def test_a_missing_git_is_named_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command of an agent's check reports it as well."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitCommandError, match=r"git cannot be started \(.*\); install git on this machine"):
        scratch_repository(tmp_path / "scratch.git", ExecutionSettings())


def test_a_login_is_never_a_git_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login is in no setting's value either, since every user of the machine can read arguments."""
    url = "https://host/a.git"
    for words in (("fetch", url), ("-c", f"remote.origin.url={url}", "fetch", "origin")):
        given = [word.replace("//", "//u:p@") for word in words]
        told = runner(tmp_path, monkeypatch, 'echo "$@"; env | grep GIT_CONFIG_KEY_0', 30)(*given)

        assert " ".join(words) in told
        assert "u:p" not in told
        assert f"http.{url}.extraHeader" in told


FILES = {"README.md": "# api\n", "old.txt": "first\n", "api/a.txt": "one\n", "api/b/c.txt": "c\n", "web/w.txt": "w\n"}


class Hosted:
    """A code host that serves partial clones, with a repository whose `old.txt` has an earlier version."""

    def __init__(self, folder: Path) -> None:
        self.bare = make_repository(folder / "hosted" / "api", FILES)
        for name in ("allowFilter", "allowAnySHA1InWant"):
            git("config", f"uploadpack.{name}", "true", cwd=self.bare)
        push(self.bare, "main", {"old.txt": "second\n"})
        self.host = GitHttpHost(folder / "hosted")
        self.url = f"{self.host.origin}/api.git"


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path)
    with closing(made.host):
        yield made


def contents(git_dir: Path) -> set[str]:
    """Return the contents that a mirror has."""
    listed = git("cat-file", "--batch-all-objects", "--batch-check", cwd=git_dir).splitlines()
    return {git("cat-file", "blob", line.split()[0], cwd=git_dir) for line in listed if " blob " in line}


STAYS_INSIDE = """
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
def test_an_agent_gets_and_changes_only_its_folders(tenant: Make, tmp_path: Path, hosted: Hosted, commits: str) -> None:
    """Contents outside the folders are not fetched; files that the agent writes there are named in the log."""
    (tmp_path / "worker.py").write_text(OBEYS)
    agent = {"name": "worker", "argv": ["{python}", str(tmp_path / "worker.py")], "commits": commits}
    api = tenant(repositories=[placed(hosted.url, setup={"sparse": ["api/", "gone/"]})], agents=[agent])
    turn = api.work(STAYS_INSIDE)
    changed = git("diff", "--name-status", "main", turn["branch"], cwd=hosted.bare)

    assert turn["outcome"] == "completed", turn["log"]
    assert changed == "D\tapi/b/c.txt\nA\tapi/new.txt"
    assert "outside of the repository's sparse paths are not committed: out.txt, web/w.txt" in turn["log"]
    assert "become one" not in turn["log"]


def test_a_merge_fetches_the_files_it_needs(tmp_path: Path, hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three versions of a moved and changed file are fetched, even outside the part, and over joined packs."""
    monkeypatch.setattr("service.execution.mirror._MAX_PACKS", 1)
    (folder := tmp_path / "mirrors").mkdir()
    mirror = RepositoryMirror(folder, GitRunner(folder, 300, url=hosted.url), ("api",))
    base = mirror.fetch("main").default
    push(hosted.bare, "main", {"web/w.txt": "theirs\n"})
    mirror.fill(mirror.fetch("main"), "main", [base])

    assert {"w", "theirs"} <= contents(mirror.git_dir)
    assert "first" not in contents(mirror.git_dir)
    packed = [one.suffix for one in (mirror.git_dir / "objects/pack").iterdir()]
    assert packed.count(".promisor") == packed.count(".pack")


def test_a_partial_checkout_has_all_files(tmp_path: Path, hosted: Hosted) -> None:
    """Without paths all files are there; git names missing objects, and does not fetch them from the host."""
    run, workspace = GitRunner(tmp_path, 300, url=hosted.url), Workspace(tmp_path / "work")
    mirror = RepositoryMirror(tmp_path, run, ())
    mirror.fill(snapshot := mirror.fetch("main"), "main")
    workspace.tree.mkdir(parents=True)
    Checkout(workspace, mirror, snapshot).fill("main")

    assert {name: (workspace.tree / name).read_text() for name in FILES} == FILES | {"old.txt": "second\n"}
    with pytest.raises(GitCommandError, match=r"contents of earlier versions and of files outside .* are not fetched"):
        run.inside(workspace.history)("log", "-p")
