"""Repositories that attack the reviewer: it only reads, follows no links, and its review stays a review."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from service.reviewer import review
from tests.program import ROOT
from tests.reviewer.conftest import Repository

GOOD = {"run_id": "run_01TEST", "turn": 1, "instructions": "x"}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


MARKUP = st.sampled_from(
    [
        *("\n# H\n", "* ", "1. ", "|", "\n---\n", "~~~", "> ", "\n\n    code", "<!--", "-->", "\n```\n", "`", "``"),
        *("<b>", "](http://x)", "![", "&lt;", "\\", "__", "**", "_", "http://x.y", "@a", "\x1b[2J", "\u202e"),
        *("\ud800", "\r"),
    ]
)


@settings(max_examples=50)
@given(st.lists(st.one_of(MARKUP, st.text(max_size=8)), max_size=8).map("".join))
def test_foreign_text_is_escaped(text: str) -> None:
    """A path is one code span, and a title is plain text, on one printable line."""
    path, title = review.code(text), review.plain(text)
    (span,) = PARSER.parse(f"### {path}")[1].children or []

    assert span.type == "code_inline"
    assert {one.type for one in PARSER.parse(f"x: {title}")[1].children or []} <= {"text", "text_special"}
    assert (path + title).isprintable()


def reviewer(branch: Repository, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """Run the reviewer as the service does: as a process."""
    command = [sys.executable, *flags, "-m", "service.reviewer"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    environment["RUNWARDEN_RESULT"] = str(branch.folder.parent / "result.json")
    task = json.dumps(GOOD).encode()
    return subprocess.run(command, cwd=branch.folder, env=environment, input=task, capture_output=True, check=False)


def test_no_code_of_the_repository_is_executed(branch: Repository, tmp_path: Path) -> None:
    """Modules, git configuration, hooks, attributes and ruff's configuration of the repository are not executed."""
    mark = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    bad = f"open({str(mark)!r}, 'w').close()\n"
    names = ("json.py", "ruff.py", "detect_secrets.py", "sitecustomize.py", "service/__init__.py")
    branch.commit(dict.fromkeys(names, bad))
    branch.commit(
        {
            ".gitattributes": "*.py diff=evil filter=evil\n",
            "ruff.toml": 'exclude = ["*"]\nlint.select = []\n',
            "pyproject.toml": '[tool.ruff]\nextend = "/etc/passwd"\nexclude = ["*"]\n',
            "a.py": "import os\n",
        }
    )
    for section, keys in {
        "core": ("fsmonitor", "pager", "sshCommand", "alternateRefsCommand"),
        "diff": ("external", "evil.textconv", "evil.command"),
        "filter.evil": ("clean", "smudge"),
    }.items():
        for key in keys:
            branch.git("config", f"{section}.{key}", str(script))
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        hook = branch.folder / ".git/hooks" / name
        hook.write_text(script.read_text())
        hook.chmod(0o755)

    done = reviewer(branch, "-P")

    assert (done.returncode, done.stderr) == (0, b"")
    assert '"F401"' in (branch.folder / ".runwarden/findings.json").read_text()
    assert '"path": "a.py"' in (branch.folder / ".runwarden/findings.json").read_text()
    assert not mark.exists()


def test_the_review_is_never_written_through_a_link(branch: Repository, tmp_path: Path) -> None:
    """A link at the review's path is replaced; its target is neither changed nor read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run_01TEST.md").write_text("precious")
    link = branch.folder / "reviews/run_01TEST.md"
    link.parent.mkdir()
    link.symlink_to(outside / "run_01TEST.md")
    (branch.folder / "passwd.json").symlink_to("/etc/passwd")
    branch.commit({})

    done = branch.turn()

    assert (outside / "run_01TEST.md").read_text() == "precious"
    assert done.rules == set()
    assert (done.status, done.errors) == (0, "")


def test_failures_end_with_a_line_on_stderr(branch: Repository, tmp_path: Path) -> None:
    """Status 1 with git's own words, not an empty review.

    Status 2 for a bad task, or if a repository module could run.
    """
    task = json.dumps(GOOD).encode()
    unsafe, bad = reviewer(branch), branch.start(b"[]")
    assert not (branch.folder / "reviews").exists()
    unwritten = branch.start(task, result=str(tmp_path / "no-such-folder/result.json"))
    branch.git("checkout", "-q", "--orphan", "empty")
    empty = branch.start(task)
    (branch.folder / ".git").rename(tmp_path / "gone")
    gone = branch.start(task)

    assert (unsafe.returncode, unsafe.stderr.count(b"\n")) == (2, 1)
    assert b"python -P -m service.reviewer" in unsafe.stderr
    done = {"run_id: is missing": bad, "no-such-folder": unwritten, "HEAD": empty, "not a git": gone}
    for words, one in done.items():
        assert (one.status, one.errors.count("\n"), one.result) == (2 if one is bad else 1, 1, {})
        assert words in one.errors


ODD = '[submodule "vendored"]\n\tpath = = [[[\n\tignore = bogus\n\x00'


def test_an_invalid_gitmodules_does_not_fail_a_review(branch: Repository, tmp_path: Path) -> None:
    """Git would read the file to compare submodules and fail; the reviewer needs no submodule.

    An external git directory, in which nothing changes, is enough.
    """
    branch.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},vendor/lib")
    branch.git("commit", "-q", "-m", "submodule")
    elsewhere = tmp_path / "git"
    (branch.folder / ".git").rename(elsewhere)
    (branch.folder / ".git").write_text(f"gitdir: {elsewhere}\n")
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}

    assert branch.turn().status == 0
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before

    branch.commit({"a.py": "import os\n", ".gitmodules": ODD})
    branch.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},vendored")
    branch.git("commit", "-q", "-m", "submodule")

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert done.rules == {("a.py", "F401")}
    assert "compared with main" in done.log


@pytest.mark.parametrize("what", ["link", "folder at its name"])
def test_a_folder_in_the_reviews_place_is_kept(branch: Repository, tmp_path: Path, what: str) -> None:
    """Summary and findings still reach the service; nothing is written through a link or over a folder.

    A folder in the findings' place is replaced, and nothing of it is committed.
    """
    reviews, findings, outside = branch.folder / "reviews", branch.folder / ".runwarden", tmp_path / "outside"
    outside.mkdir()
    (outside / "findings.json").write_text("precious")
    if what == "link":
        reviews.symlink_to(outside)
        findings.symlink_to(outside)
    else:
        (reviews / "run_01TEST.md").mkdir(parents=True)
        (reviews / "run_01TEST.md/kept").write_text("mine\n")
        (findings / "findings.json").mkdir(parents=True)
    branch.commit({"a.py": "import os\n"})

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert "The review is not written to the branch, because reviews" in done.log
    assert "# Review of agent/work, turn 1" in done.log
    assert done.rules == {("a.py", "F401")}
    assert done.result["summary"].startswith("Can be merged, with remarks: 1 minor")
    assert "reviews/" not in done.result["commit_message"]
    assert branch.git("status", "--porcelain", "--", "reviews") == ""
    assert {one.name: one.read_text() for one in outside.iterdir()} == {"findings.json": "precious"}


def test_a_file_replaced_by_a_pipe_or_link_is_not_read(branch: Repository, tmp_path: Path) -> None:
    """A set-up may leave a pipe or link in a file's place; the reviewer neither waits for it nor follows it."""
    branch.commit({"pipe.py": "import os\n", "folder/linked.py": "import os\n", "a.py": "import os\r\n"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/linked.py").write_text("import sys\n")
    (branch.folder / "pipe.py").unlink()
    os.mkfifo(branch.folder / "pipe.py")
    (branch.folder / "folder/linked.py").unlink()
    (branch.folder / "folder").rmdir()
    (branch.folder / "folder").symlink_to(tmp_path / "outside")

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert done.rules == {("a.py", "F401")}
    assert "- Files that were not read, for their size, their encoding or a failed tool: 2." in done.review
