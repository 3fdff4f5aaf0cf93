"""A run from its start to its change in a checkout: watched, read, answered and taken over, by either hand."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.console.journeys.conftest import BY_MOUSE, Walked
from tests.console.journeys.steps import NEW_RUN, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import Received, Respond, Step, stamp
from tests.results.repository import git

REVIEW = b"# Review\n\n## src/sign_in.py\n\n1. **major** - line 2: `md5` is not meant for passwords.\n"


def added(path: str, text: bytes) -> bytes:
    """A patch that adds a file."""
    lines = text.splitlines()
    head = (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    )
    return head.encode() + b"".join(b"+" + line + b"\n" for line in lines)


FIRST = added("reviews/r.md", REVIEW) + added("src/sign_in.py", b"import hashlib\nhashlib.md5()\n")
SECOND = added("src/second.py", b"hashlib.scrypt()\n")
LOG = b"building\ntests pass\n"


@dataclass
class Results:
    """What the service tells of the run that was started."""

    service: Service
    turns: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lists = self.service.server.otherwise
        self.service.server.otherwise = self.answer

    def work(self, said: str, outcome: str | None) -> None:
        """The last turn works, or has ended."""
        number = sum(each["instructions"] != said for each in self.turns) + 1
        turn = {"number": number, "instructions": said, "state": outcome or "working", "outcome": outcome}
        self.turns[number - 1 :] = [turn | {"started_at": stamp(MINUTES_INTO_THE_DAY), "caller": "ada"}]
        self.service.board.runs[NEW_RUN] |= {"status": outcome or "working", "updated_at": stamp(1430 + number)}

    def answer(self, request: Received) -> Step:
        found = re.search(rf"/external/runs/{NEW_RUN}(/turns/(\d+))?(/log|/diff)?$", request.path)
        if request.method != "GET" or found is None:
            return self.lists(request)
        if found[3] == "/log":
            return self._log(request)
        if found[3] == "/diff":
            patch = {None: FIRST + SECOND if len(self.turns) > 1 else FIRST, "1": FIRST, "2": SECOND}[found[2]]
            ends = {"Runwarden-Base": "a" * 40, "Runwarden-Head": "b" * 40}
            return Respond(200, patch, {"Content-Type": "text/plain", **ends})
        return Respond(200, {"run_id": NEW_RUN, "turns": self.turns})

    def _log(self, request: Received) -> Step:
        """It comes in two pieces; with the second it has ended."""
        begin = 0 if "offset=-" in request.target else LOG.index(b"tests")
        end = len(LOG) if begin else LOG.index(b"tests")
        where = {"Offset": begin, "Next": end, "Size": end, "Ended": "true" if begin else "false"}
        return Respond(200, LOG[begin:end], {f"Runwarden-Log-{name}": str(value) for name, value in where.items()})


@BY_MOUSE
async def test_a_run_is_started_watched_read_answered_and_taken_over(
    walked: Walked, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log while it works, the findings, the line that one is about, a reply, the second turn's diff, a checkout."""
    checkout = tmp_path / "mine"
    checkout.mkdir()
    git(checkout, "init", "--quiet")
    monkeypatch.chdir(checkout)
    results = Results(service)
    async with walked() as hand:
        await hand.point("acme/web")
        await hand.do("n", "n new run")
        await hand.fill("instructions", "Add sign-in.")
        await hand.do("ctrl+s", "Preview ^s")
        await hand.do("ctrl+s", "Send ^s")
        await hand.see(NEW_RUN)
        await hand.do("escape", "Close esc")
        results.work("Add sign-in.", None)
        await hand.scene.sync()
        assert hand.scene.table.row is not None
        assert hand.scene.table.row.run_id == NEW_RUN, "the cursor goes to what was started"

        await hand.open("agent/started")
        await hand.see("from the service", "Add sign-in.", "working")
        await hand.do("f5", "F5 Log")
        await hand.see("building", "tests pass", "ended")

        results.work("Add sign-in.", "completed")
        await hand.scene.sync()
        await hand.do("f3", "F3 Review")
        await hand.see("1 finding", "not meant for passwords")
        await hand.open("src/sign_in.py:2")
        await hand.see("hashlib.md5()", "from the service")

        await hand.do("c", "c continue")
        await hand.type("Use scrypt.")
        await hand.do("ctrl+s", "preview, then send")
        await hand.do("ctrl+s", "Send ^s")
        await hand.do("escape", "Close esc")
        results.work("Use scrypt.", "completed")
        await hand.scene.sync()
        await hand.do("f4", "F4 Changes")
        for _ in (1, 2):
            await hand.do("greater_than_sign", "▸")
        await hand.see("turn 2 of 2", "src/second.py", "hashlib.scrypt()")

        await hand.do("A", "A apply")
        await hand.see("1 file, +1 -0")
        await hand.do("enter", "enter goes on")
        assert git(checkout, "status", "--porcelain") == b"?? src/\n", hand.scene.text
        assert (checkout / "src/second.py").read_bytes() == b"hashlib.scrypt()\n"
        assert [request.json()["instructions"] for request in service.written] == ["Add sign-in.", "Use scrypt."]  # type: ignore[index]
