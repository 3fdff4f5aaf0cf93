"""A run's screen over scripted results."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from app.results.diff import Patch
from app.results.git import GitError
from storage.records import RunDetail
from storage.records.results import Artifact, Change, Finding, LogChunk, LogStep, Review, RunTurns, Turn, Unavailable
from tests.console.conftest import Scene, Staged
from tests.lab import START

PATCH = b"""\
diff --git a/src/sign_in.py b/src/sign_in.py
index 1111111..2222222 100644
--- a/src/sign_in.py
+++ b/src/sign_in.py
@@ -1,7 +1,8 @@
 \"\"\"Signing in.\"\"\"
 import hashlib

-LIMIT = 10
+LIMIT = 12
+RETRIES = 3

 def sign_in(name, password):
-    return hashlib.md5(password).hexdigest() == stored(name)
+    return hashlib.sha256(password).hexdigest() == stored(name)
diff --git a/docs/old name.md b/docs/new name.md
similarity index 100%
rename from docs/old name.md
rename to docs/new name.md
diff --git a/logo.png b/logo.png
index 3333333..4444444 100644
Binary files a/logo.png and b/logo.png differ
diff --git a/reviews/run_1.md b/reviews/run_1.md
new file mode 100644
index 0000000..5555555
--- /dev/null
+++ b/reviews/run_1.md
@@ -0,0 +1,2 @@
+# Review
+One finding.
"""
OLD = b'"""Signing in."""\nimport hashlib\n\nLIMIT = 10\n\ndef sign_in(name, password):\n    return 1\n'
NEW = b'"""Signing in."""\nimport hashlib\n\nLIMIT = 12\nRETRIES = 3\n\ndef sign_in(name, password):\n    return 1\n'
REVIEW = """\
# Review of fix/login-timeout

Looked at **2 files**. One finding is worth mending before this is merged.

## src/sign_in.py

1. **major** - line 8: `md5` is not meant for passwords. Use a slow hash, such as `hashlib.scrypt`.
2. **minor** - line 4: the limit is not explained.
"""
FINDINGS = (
    Finding("src/sign_in.py", 8, "md5 is not meant for passwords. Use a slow hash.", "major", at=6),
    Finding("src/sign_in.py", 4, "The limit is not explained.", "minor", at=7),
)
LOG = (
    b"".join(b"12:00:%02d \x1b[32mINFO\x1b[0m  step %d of the build\n" % (n % 60, n) for n in range(400))
    + b"Fetching  10%\rFetching 100%\r\n\x1b[1;31mERROR: tests failed\x1b[0m\nretrying\n"
)


NOTHING = "Nothing says where acme/web is: add it under [repositories]. The service does not offer results."


def change_of(patch: bytes, **known: Any) -> Change:
    """A change with the files that its patch names."""
    known = {"base": "a" * 40, "head": "b" * 40, "base_name": "merge base with main", **known}
    return Change(files=Patch(patch).changed_files(), patch=patch, **known)


def two_turns() -> tuple[Turn, ...]:
    """A failed turn, and a successful one an hour later."""
    begun = START + timedelta(hours=8)
    again, instructions = begun + timedelta(hours=1), "Mend the flaky sign-in test.\nDo not touch the fixtures."
    failed = Turn(1, "failed", instructions, "nightly", begun, begun + timedelta(minutes=2), "failed", "exit code 3")
    ended = again + timedelta(minutes=4, seconds=43)
    completed = Turn(2, "completed", "Try again, with a longer time-out.", "ada", again, ended, "completed")
    result = {
        "commit": "c0ffee" + "0" * 34,
        "summary": "Wait for the session",
        "files": 4,
        "additions": 6,
        "deletions": 2,
    }
    return failed, replace(completed, **result)


@dataclass
class ScriptedResults:
    """The results of a run, as scripted by a test."""

    turns_: Any = field(default_factory=lambda: RunTurns("run", two_turns()))
    change_: Any = field(default_factory=lambda: change_of(PATCH))
    reviews_: Any = field(default_factory=lambda: (Review("reviews/run_1.md", REVIEW, FINDINGS),))
    log_: bytes | Unavailable = LOG
    steps_: tuple[LogStep, ...] | None = None
    """The log as steps of ten bytes each."""
    repositories: Any = field(
        default_factory=lambda: Mock(
            mirror=Mock(side_effect=GitError(NOTHING)),
            address=Mock(return_value=None),
        )
    )
    """The changes, as if no repository is configured."""
    ended: bool = True
    left: dict[str, bytes] = field(default_factory=dict)
    """The contents of artifacts."""
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def turns(self, detail: RunDetail) -> Any:
        return self.turns_

    async def change(self, detail: RunDetail, turn: int | None = None) -> Any:
        self.asked.append(("change", turn))
        return self.change_

    async def reviews(self, detail: RunDetail, turn: int | None = None) -> Any:
        return self.reviews_

    async def artifact(self, run_id: str, turn: int, artifact: Artifact) -> bytes | Unavailable:
        return self.left.get(artifact.name, Unavailable("It was pruned."))

    async def file(self, detail: RunDetail, path: str, turn: int | None = None) -> Any:
        return Unavailable(NOTHING)

    async def blob(self, detail: RunDetail, blob: str) -> bytes | Unavailable:
        return {"1111111": OLD, "2222222": NEW}.get(blob, Unavailable("It is not here."))

    async def log(
        self, run_id: str, turn: int, *, offset: int = 0, wait_s: float = 0, before: int | None = None
    ) -> LogChunk | Unavailable:
        self.asked.append(("log", turn, offset))
        if isinstance(self.log_, Unavailable):
            return self.log_
        if self.steps_ is not None and before is not None:
            begin, size = max(0, offset), 10 * len(self.steps_)
            return LogChunk(begin, size, size, ended=self.ended, data=b"", steps=self.steps_[begin // 10 :])
        size = len(self.log_)
        begin = max(0, size + offset) if offset < 0 else min(offset, size)
        data = self.log_[begin : begin + 256 * 1024]
        return LogChunk(begin, begin + len(data), size, ended=self.ended, data=data)


OnShow = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def run_on_show(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> OnShow:
    """Opens the second run of the board, with these results."""

    @asynccontextmanager
    async def stage(results: ScriptedResults, size: tuple[int, int] = (140, 40)) -> AsyncIterator[Scene]:
        monkeypatch.setattr("app.runs.screen_run.Results", lambda *_: results)
        async with staged(size) as scene:
            await scene.press("j", "j", "j", "enter")
            yield scene

    return stage
