"""Real repositories for the tests of what a run did."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.profiles import RepositoryAddress
from app.results.git import Git
from app.results.repository import RunRepositories
from storage.records import Repository, Run, RunDetail, StatusTransition
from storage.records.results import Change

START = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
IDENTITY = {f"GIT_{role}_NAME": "A" for role in ("AUTHOR", "COMMITTER")}
IDENTITY |= {f"GIT_{role}_EMAIL": "a@b.example" for role in ("AUTHOR", "COMMITTER")}


def git(folder: Path, *arguments: str, **environment: str) -> bytes:
    """Run git without any user's configuration, and return its output."""
    env = IDENTITY | {"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"} | environment
    return subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True).stdout


def commit(folder: Path, message: str, at: float = 0) -> None:
    """Commit all changes, this many seconds after the run began."""
    when = (START + timedelta(seconds=at)).isoformat()
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message, GIT_COMMITTER_DATE=when, GIT_AUTHOR_DATE=when)


@functools.cache
def _template() -> Path:
    """An origin with one commit, created once and copied for each test."""
    folder = Path(tempfile.mkdtemp(prefix="origin-"))
    atexit.register(shutil.rmtree, folder)
    bare, work = folder / "origin.git", folder / "work"
    git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "origin.git")
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(bare, "config", key, "true")
    git(folder, "init", "--quiet", "--template=", "--initial-branch=main", "work")
    git(work, "remote", "add", "origin", "../origin.git")
    (work / "code.py").write_bytes(b"def f():\n    return 1\n")
    (work / "old.txt").write_bytes(b"a\nb\nc\n")
    commit(work, "Begin", at=-3600)
    git(work, "push", "--quiet", "origin", "main")
    return folder


class Origin:
    """A bare repository with a default branch, to which agents push commits that name their turn."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.work = folder / "origin.git", folder / "work"
        shutil.copytree(_template(), folder, dirs_exist_ok=True)

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def commit(self, branch: str, files: dict[str, bytes], *, at: float = 60, mark: str = "", start: str = "") -> str:
        """Push a commit this many seconds after the run began; return its id."""
        if (self.work / ".git/refs/heads" / branch).exists():
            git(self.work, "switch", "--quiet", branch)
        else:
            begin = [start or "main"] if at > 0 else []
            git(self.work, "switch", "--quiet", "--create", branch, *begin)
        for name, content in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_bytes(content)
        commit(self.work, f"Work on {branch}" + (f"\n\nRunwarden-Run: {mark}" if mark else ""), at)
        git(self.work, "push", "--quiet", "--force", "origin", branch)
        return (self.work / ".git/refs/heads" / branch).read_text().strip()


def run_detail(branch: str = "agent/x", *moves: tuple[str, float], raw_json: str = "{}") -> RunDetail:
    """A run of acme/api as observed: statuses, and the seconds after its start at which each came."""
    steps: list[StatusTransition] = []
    for status, seconds in moves or (("working", 0), ("completed", 120)):
        old = steps[-1].new if steps else None
        steps.append(StatusTransition("run_1", old, status, START + timedelta(seconds=seconds)))
    run = Run("run_1", steps[-1].new, branch, Repository.parse("acme/api"), START, steps[-1].at, raw_json)
    return RunDetail(run, START, steps[-1].at, "current", tuple(steps))


def repositories(folder: Path, address: str, *, fresh_s: float = 0, **options: Any) -> RunRepositories:
    addresses = (RepositoryAddress("github:acme/api", address),)
    return RunRepositories(folder, addresses, git=Git(**options), fresh_s=fresh_s)


async def change_of(
    runs: RunRepositories, detail: RunDetail, turn: int | None = None, service_commits: Mapping[int, str] | None = None
) -> Change:
    """The change of a turn, or of the whole run, from its repository."""
    return await (await runs.history(detail, service_commits)).change(turn)
