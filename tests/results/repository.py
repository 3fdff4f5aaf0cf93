"""Real repositories for the tests of what a run did."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.config import RepositoryAddress
from app.results.git import Git
from app.results.repository import RunRepositories
from storage.records import Repository, Run, RunDetail, StatusTransition

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "A" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "a@b.example" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *arguments: str, **environment: str) -> bytes:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=ENVIRONMENT | environment, check=True, capture_output=True
    )
    return done.stdout


START = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


@functools.cache
def _template() -> Path:
    """An origin with one commit: made once, copied for each test."""
    folder = Path(tempfile.mkdtemp(prefix="origin-"))
    atexit.register(shutil.rmtree, folder)
    git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "origin.git")
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(folder / "origin.git", "config", key, "true")
    git(folder, "init", "--quiet", "--template=", "--initial-branch=main", "work")
    git(folder / "work", "remote", "add", "origin", "../origin.git")
    (folder / "work/code.py").write_bytes(b"def f():\n    return 1\n")
    (folder / "work/old.txt").write_bytes(b"a\nb\nc\n")
    when = (START - timedelta(hours=1)).isoformat()
    git(folder / "work", "add", "--all")
    git(folder / "work", "commit", "--quiet", "--message", "Begin", GIT_COMMITTER_DATE=when, GIT_AUTHOR_DATE=when)
    git(folder / "work", "push", "--quiet", "origin", "main")
    return folder


class Origin:
    """A bare repository with a default branch, to which agents push: each commit says which turn it was."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.work = folder / "origin.git", folder / "work"
        shutil.copytree(_template(), folder, dirs_exist_ok=True)

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def commit(self, branch: str, files: dict[str, bytes], *, at: float = 60, mark: str = "", start: str = "") -> str:
        """Push a commit so many seconds after the run began; its id."""
        if (self.work / ".git/refs/heads" / branch).exists():
            git(self.work, "switch", "--quiet", branch)
        else:
            begin = [start or "main"] if at > 0 else []
            git(self.work, "switch", "--quiet", "--create", branch, *begin)
        for name, content in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_bytes(content)
        git(self.work, "add", "--all")
        message = f"Work on {branch}" + (f"\n\nRunwarden-Run: {mark}" if mark else "")
        when = (START + timedelta(seconds=at)).isoformat()
        git(self.work, "commit", "--quiet", "--message", message, GIT_COMMITTER_DATE=when, GIT_AUTHOR_DATE=when)
        self.push(branch)
        return (self.work / ".git/refs/heads" / branch).read_text().strip()

    def push(self, *refs: str) -> None:
        git(self.work, "push", "--quiet", "--force", "origin", *refs)


def run_detail(branch: str = "agent/x", *moves: tuple[str, float], raw_json: str = "{}") -> RunDetail:
    """A run of acme/api as it was observed: statuses, and how many seconds after its beginning each came."""
    moves = moves or (("working", 0), ("completed", 120))
    at = [START + timedelta(seconds=seconds) for _, seconds in moves]
    run = Run("run_1", moves[-1][0], branch, Repository.parse("acme/api"), START, at[-1], raw_json)
    olds = [None, *(status for status, _ in moves)]
    steps = tuple(
        StatusTransition("run_1", old, new, when) for old, (new, _), when in zip(olds, moves, at, strict=False)
    )
    return RunDetail(run, START, at[-1], "current", steps)


def repositories(folder: Path, address: str, *, fresh_s: float = 0, **options: Any) -> RunRepositories:
    return RunRepositories(
        folder, (RepositoryAddress("github:acme/api", address),), git=Git(**options), fresh_s=fresh_s
    )
