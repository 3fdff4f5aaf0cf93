"""A run's change is taken over completely or not at all, and none of it is executed or written elsewhere."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.api.network import Network
from app.results.checkout import AnotherRepositoryError, apply, check_out, check_remotes
from app.results.diff import Patch
from app.results.git import Git, GitError
from storage.records import Repository
from storage.records.results import Change
from tests.results.repository import Origin, change_of, commit, git, repositories, run_detail


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "host")


@pytest.fixture
def checkout(origin: Origin, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "--quiet", str(origin.bare), "home/mine")
    return tmp_path / "home" / "mine"


def as_change(patch: bytes) -> Change:
    return Change(None, None, "", Patch(patch).changed_files(), patch)


def added(path: str, content: str, mode: str = "100644") -> bytes:
    lines = content.splitlines(keepends=True)
    body = "".join(f"+{line}" for line in lines)
    body += "" if content.endswith("\n") else "\n\\ No newline at end of file\n"
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n{body}".encode()


async def test_a_change_is_applied_at_the_top_level(origin: Origin, checkout: Path, tmp_path: Path) -> None:
    """All kinds of changes arrive, and risky ones are pointed out."""
    origin.commit("main", {"sub/keep": b"x", "gone.txt": b"x\n"}, at=-1000)
    git(checkout, "pull", "--quiet")
    (origin.work / "old.txt").rename(origin.work / "sub/moved.txt")
    (origin.work / "gone.txt").unlink()
    (origin.work / "to-code").symlink_to("code.py")
    files = {"code.py": b"new\n", "bin": b"\0\xff", ".gitattributes": b"*.x filter=y\n", "new\nline": b"x"}
    origin.commit("agent/x", files, start="main")
    change = await change_of(repositories(tmp_path / "data", origin.url), run_detail())
    done = await apply(change, checkout / "sub")

    assert (done.folder, done.files) == (checkout, len(change.files))
    assert [git(checkout, "diff", "--no-index", "--", str(origin.work / name), name) for name in files] == [b""] * 4
    assert (checkout / "sub/moved.txt").exists()
    assert not (checkout / "gone.txt").exists()
    assert done.remarks == (".gitattributes: it may name filters that your git runs.", "to-code is a link to code.py.")


async def test_uncommitted_changes_are_never_overwritten(checkout: Path) -> None:
    """Conflicting files are named; untracked files are safe, too."""
    (checkout / "old.txt").write_text("mine")
    with pytest.raises(GitError, match=r"uncommitted changes \(old.txt\)"):
        await apply(as_change(added("new.txt", "x")), checkout)
    git(checkout, "checkout", "--quiet", "--", "old.txt")
    (checkout / "new.txt").write_text("mine")
    with pytest.raises(GitError, match=r"new.txt already, .* untracked"):
        await apply(as_change(added("other.txt", "x") + added("new.txt", "x")), checkout)

    assert ((checkout / "new.txt").read_text(), (checkout / "other.txt").exists()) == ("mine", False)


HOSTILE = [
    (added("../out", "x"), "no checkout may hold"),
    (added(".git/hooks/post-checkout", "x"), "no checkout may hold"),
    (added("sub/.GIT /config", "x"), "no checkout may hold"),
    (added("link", "../out", "120000"), "link out of the checkout"),
    (added("a/link", "b/../../../out", "120000"), "link out of the checkout"),
    (added("link", ".git/config", "120000"), "link out of the checkout"),
    (b"diff --git a/in/l b/l\nsimilarity index 100%\nrename from in/l\nrename to l\n", "link out of the checkout"),
    (added("way/out", "x"), "beyond a symbolic link"),
    (added("l2", "way", "120000") + added("l2/x", "x"), "symbolic link"),
    (b"", "is empty"),
    (b"--- a/code.py\n+++ b/code.py\n@@ -1 +1 @@\n-x\n+y\n", "patch"),
]
"""Changes, and why each is refused, before git is called or by git."""


async def test_a_hostile_or_broken_change_alters_nothing(tmp_path: Path) -> None:
    """Paths and links out of the checkout are refused."""
    folder = tmp_path / "checkout"
    (folder / "in").mkdir(parents=True)
    (folder / "code.py").write_text("def f():\n")
    (folder / "in/l").symlink_to("../code.py")
    (folder / "way").symlink_to("..")
    git(folder, "init", "--quiet")
    commit(folder, "links")
    for patch, reason in HOSTILE:
        with pytest.raises(GitError, match=reason):
            await apply(as_change(patch), folder)

        assert git(folder, "status", "--porcelain", "--ignored") == b"", patch
        assert list(tmp_path.iterdir()) == [folder], patch


@pytest.mark.parametrize(
    ("remotes", "said"),
    [
        (["git@github.com:acme/API.git"], ""),
        (["https://github.com/other/web", "https://github.com/acme/api/"], ""),
        (["file:///srv/git/mirror.git"], ""),
        ([], "no remotes"),
        (["https://github.com/other/api.git"], None),
        (["https://u:secret@github.com/notacme/api.git"], None),
    ],
)
async def test_a_checkouts_remotes_identify_its_repository(
    tmp_path: Path, remotes: list[str], said: str | None
) -> None:
    """A checkout's remotes have the repository's name or the configured address; one without remotes gets a warning."""
    here = tmp_path / "here"
    git(tmp_path, "init", "--quiet", "here")
    for number, remote in enumerate(remotes):
        git(here, "remote", "add", f"r{number}", remote)
    address = "/srv/git/mirror.git" if not remotes or remotes[0].startswith("file") else str(tmp_path / "git/mirror")
    if said is None:
        with pytest.raises(AnotherRepositoryError, match=r"has no remote of acme/api") as refused:
            await check_remotes(here, Repository.parse("acme/api"), address)
        assert "secret" not in str(refused.value)
    else:
        remark = await check_remotes(here, Repository.parse("acme/api"), address)
        assert (said in remark) if said else not remark


async def test_a_missing_checkout_or_old_git_is_reported(tmp_path: Path) -> None:
    """Outside a repository, git apply would silently write to any folder; git before 2.31 would run filters."""
    change = as_change(added("x", "x"))
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    (tmp_path / "git").write_text("#!/bin/sh\necho git version 2.30.2\n")
    (tmp_path / "git").chmod(0o755)
    for folder, said in ((tmp_path, "not in a git checkout"), (tmp_path / "bare.git", "a folder that git clone made")):
        with pytest.raises(GitError, match=said):
            await apply(change, folder)
    with pytest.raises(GitError, match="no folder"):
        await apply(change, tmp_path / "none")
    with pytest.raises(GitError, match="not whole"):
        await apply(replace(change, is_whole=False), tmp_path)
    with pytest.raises(GitError, match=r"git version 2\.30\.2 .* 2\.31 or newer"):
        await apply(change, tmp_path, Git(network=Network(env={"PATH": str(tmp_path)})))


async def test_no_configured_program_is_executed(
    origin: Origin, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hook, filter, monitor, driver or editor of any scope runs when reading, applying or checking out."""
    trap, marker = tmp_path / "trap", tmp_path / "executed"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {marker}\ncat\n')
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "applypatch-msg", "pre-applypatch"):
        os.link(trap, hooks / hook)
    keys = ["diff.external", "core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "core.pager", "core.editor"]
    keys += [f"filter.{name}.{key}" for name in ("lfs", "a=b", "x y.z") for key in ("smudge", "clean", "process")]
    config = tmp_path / "gitconfig"
    for key in keys:
        git(tmp_path, "config", "--file", str(config), key, str(trap))
    git(tmp_path, "config", "--file", str(config), "core.hooksPath", str(hooks))
    attributes = b"*.evil diff=evil filter=lfs\n*.py diff=evil filter=a=b\n*.txt filter=x\\ y.z\n"
    origin.commit("agent/x", {".gitattributes": attributes, "a.evil": b"1\n", "code.py": b"2\n"}, mark="run_1 turn 1")
    for local in (checkout, origin.bare):
        git(local, "config", "include.path", str(config))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    found = repositories(tmp_path / "data", origin.url)
    change = await change_of(found, run_detail())
    done = await check_out(await found.history(run_detail()), "agent/x", checkout)
    await apply(change, checkout)

    assert [(folder / "a.evil").read_bytes() for folder in (done.folder, checkout)] == [b"1\n"] * 2
    assert not marker.exists()
    git(checkout, "status")
    assert marker.exists()  # The traps work: a plain git runs them.


async def test_a_worktree_shares_the_checkouts_objects(origin: Origin, checkout: Path, tmp_path: Path) -> None:
    """The new checkout is on the branch and knows its source, and the old one is unchanged.

    Branches whose names differ only in odd characters get different folders.
    """
    head = origin.commit("agent/x", {"code.py": b"2\n"})
    origin.commit("agent+x", {"code.py": b"3\n"})
    history = await repositories(tmp_path / "data", origin.url).history(run_detail())
    done = await check_out(history, "agent/x", checkout)
    plus = await repositories(tmp_path / "data", origin.url).history(run_detail("agent+x"))
    odd = await check_out(plus, "agent+x", checkout)

    assert done.folder == checkout.parent / "origin-agent-x"
    assert (done.commit, done.shares) == (head, checkout)
    assert git(done.folder, "branch", "--show-current") == b"agent/x\n"
    assert git(done.folder, "remote", "get-url", "origin").decode().strip() == origin.url
    assert (done.folder / "code.py").read_bytes() == b"2\n"
    assert (odd.folder / "code.py").read_bytes() == b"3\n"
    assert git(checkout, "branch", "--list") == b"* main\n"
    with pytest.raises(GitError, match="there already"):
        await check_out(history, "agent/x", checkout)
    with pytest.raises(GitError, match="not a valid branch name"):
        await check_out(history, "-lead", checkout)
    assert not done.folder.with_name("origin-lead").exists()
