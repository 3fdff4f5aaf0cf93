"""Real git repositories, and the reviewer run on them in the test's own process."""

import json
import shutil
import sys
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.reviewer.__main__ import main
from tests.service_process import git

API = '"""Api."""\n\n\ndef add(one: int, other: int) -> int:\n    return one + other\n'
DEFAULT_BRANCH = "refs/remotes/origin/main"


@dataclass(frozen=True)
class Done:
    """The results of one turn."""

    status: int
    log: str
    errors: str
    review: str
    result: dict[str, str]
    findings: list[dict[str, Any]]

    @property
    def rules(self) -> set[tuple[str, str]]:
        return {(finding["path"], finding["rule"]) for finding in self.findings}

    def section(self, title: str) -> str:
        return self.review.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class Repository:
    """A checkout with a default branch, in which a test works like a developer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.exists():
            folder.mkdir()
            self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        return git("-c", "core.hooksPath=/dev/null", *arguments, cwd=self.folder)

    def commit(self, files: dict[str, str | bytes | None]) -> None:
        """Write files (None deletes) and commit them with everything else there, except the findings."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A", "-f", "--", ":/", ":(exclude).runwarden")
        self.git("commit", "-q", "--allow-empty", "-m", "change")

    def turn(self, instructions: str = "Review this.", number: int = 1, *arguments: str, **task: Any) -> Done:
        names = {"agent": "reviewer", "branch": "agent/work", "default_branch": "main"}
        document = {"run_id": "run_01TEST", "turn": number, "instructions": instructions, "inputs": {}} | names
        return self.start(json.dumps(document | task).encode(), *arguments)

    def start(self, task: bytes, *arguments: str, result: str = "") -> Done:
        written = Path(result or self.folder.parent / "result.json")
        written.unlink(missing_ok=True)
        log, errors = StringIO(), StringIO()
        streams = {"stdin": SimpleNamespace(buffer=BytesIO(task)), "stdout": log, "stderr": errors}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setenv("RUNWARDEN_RESULT", str(written))
            patch.setattr(sys, "argv", ["reviewer", *arguments])
            safe = SimpleNamespace(flags=SimpleNamespace(safe_path=True), **streams)
            patch.setattr("service.reviewer.__main__.sys", safe)
            status = main()
        review, findings = self.folder / "reviews/run_01TEST.md", self.folder / ".runwarden/findings.json"
        return Done(
            status,
            log.getvalue(),
            errors.getvalue(),
            review.read_text("utf-8") if review.is_file() else "",
            json.loads(written.read_text()) if written.exists() else {},
            json.loads(findings.read_text())["findings"] if findings.is_file() else [],
        )


@pytest.fixture(scope="session")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = Repository(tmp_path_factory.mktemp("tidy") / "checkout")
    checkout.commit({"README.md": "# Api\n", "src/api.py": API})
    checkout.git("update-ref", DEFAULT_BRANCH, "HEAD")
    checkout.git("checkout", "-q", "-b", "agent/work")
    return checkout.folder


@pytest.fixture
def branch(tidy: Path, tmp_path: Path) -> Repository:
    return Repository(Path(shutil.copytree(tidy, tmp_path / "checkout", symlinks=True)))
