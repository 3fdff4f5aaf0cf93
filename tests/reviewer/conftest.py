"""Real git repositories, and the reviewer run on them as the service runs it: as a process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.reviewer.finding import ReviewFinding
from service.reviewer.source import SourceFile
from service.reviewer.survey import SOURCE_CHECKS
from tests.service_process import ROOT, git


@dataclass(frozen=True)
class Done:
    """What one turn left behind."""

    status: int
    log: str
    errors: str
    review: str
    result: dict[str, str]

    @property
    def body(self) -> str:
        """The review without the record at its end."""
        return self.review.rpartition("<!-- runwarden-review")[0]

    def section(self, title: str) -> str:
        """The text under a heading of the second level."""
        return self.body.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class Repository:
    """A checkout with a default branch, to be worked in as a developer would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        return git("-c", "core.hooksPath=/dev/null", *arguments, cwd=self.folder)

    def commit(self, files: dict[str, str | bytes | None], message: str = "change") -> str:
        """Write files (None deletes) and commit them."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def default_branch_is_here(self) -> None:
        """Make this commit the default branch's, and start a branch from it."""
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.git("checkout", "-q", "-b", "agent/work")

    def turn(
        self,
        instructions: str = "Review this.",
        number: int = 1,
        *,
        flags: tuple[str, ...] = ("-P",),
        arguments: tuple[str, ...] = (),
        **task: Any,
    ) -> Done:
        """Run the reviewer on the checkout."""
        document = {
            "run_id": "run_01TEST",
            "turn": number,
            "agent": "reviewer",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
            "branch": "agent/work",
            "default_branch": "main",
            "instructions": instructions,
            "inputs": {},
            "conversation": [],
        } | task
        return self.start(json.dumps(document).encode(), flags=flags, arguments=arguments)

    def start(
        self,
        task: bytes,
        *,
        flags: tuple[str, ...] = ("-P",),
        arguments: tuple[str, ...] = (),
        result: Path | None = None,
    ) -> Done:
        """Run the reviewer on any bytes."""
        result = result or self.folder.parent / "result.json"
        result.unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "RUNWARDEN_RESULT": str(result)}
        done = subprocess.run(
            [sys.executable, *flags, "-m", "service.reviewer", *arguments],
            cwd=self.folder,
            env=environment,
            input=task,
            capture_output=True,
            check=False,
            timeout=300,
        )
        review = self.folder / "reviews" / "run_01TEST.md"
        is_file = review.is_file() and not review.is_symlink()
        return Done(
            done.returncode,
            done.stdout.decode("utf-8"),
            done.stderr.decode("utf-8"),
            review.read_text(encoding="utf-8") if is_file else "",
            json.loads(result.read_text()) if result.exists() else {},
        )

    def accept(self) -> None:
        """Commit what the reviewer left, as the service does."""
        self.git("add", "-A", "-f", "--", ":/", ":(exclude).runwarden/findings.json")
        self.git("commit", "-q", "-m", "review")


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """An empty repository."""
    return Repository(tmp_path / "checkout")


@pytest.fixture
def branch(repo: Repository) -> Repository:
    """A tidy, tested project with a default branch, and a fresh branch checked out."""
    repo.commit(
        {
            "README.md": "# Api\n\nSee [the module](src/api.py).\n",
            "src/api.py": '"""Api."""\n\n\ndef add(one: int, other: int) -> int:\n    return one + other\n',
            "tests/test_api.py": "from src.api import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        }
    )
    repo.default_branch_is_here()
    return repo


def found(text: str | bytes, path: str = "src/module.py") -> list[ReviewFinding]:
    """What the checks of single files say about a text."""
    source = SourceFile(path, text.encode() if isinstance(text, str) else text)
    return [finding for check in SOURCE_CHECKS for finding in check(source)]


def rules(text: str | bytes, path: str = "src/module.py") -> set[str]:
    """The ids of the rules that apply to a text."""
    return {finding.rule.id for finding in found(text, path)}
