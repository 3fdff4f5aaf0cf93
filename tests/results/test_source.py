"""Each result comes from git or the service and says which; if neither has it, the reason is given."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.api.errors import UnreachableError
from app.profiles import RepositoryAddress, Settings
from app.results import source
from app.results.source import Results, unpushed_turn
from storage.records.results import Change, Finding, LogChunk, ReportedFinding, Review, RunTurns, Turn, Unavailable
from tests.results.repository import Origin, git, run_detail

PATCH = (
    b"diff --git a/reviews/r.md b/reviews/r.md\nnew file mode 100644\n--- /dev/null\n+++ b/reviews/r.md\n"
    b"@@ -0,0 +1,3 @@\n+### `a.py`\n+\n+- **minor** line 3: x\n"
    b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"
)
NONE = Unavailable("The service keeps no results.")


class Service:
    """The results extension and its client, with fixed answers or a failure."""

    def __init__(self, answer: Any = None, commit: str | None = None, *findings: ReportedFinding) -> None:
        self.answer, self.commit, self.findings = answer, commit, findings or None

    async def _say(self, value: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or value

    async def ask(self, question: Any) -> Any:
        return await question(self)

    async def run_detail(self, run_id: str) -> RunTurns | Unavailable:
        turn = Turn(1, "completed", instructions="Do it", commit=self.commit, findings=self.findings)
        return await self._say(RunTurns(run_id, (turn, Turn(2, "working"))))

    async def run_log(self, run_id: str, turn: int, *, offset: int = 0, **_: object) -> LogChunk | Unavailable:
        return await self._say(LogChunk(offset, 3, 3, ended=True, data=b"abc"))

    async def run_diff(self, run_id: str, turn: int | None = None) -> Change | Unavailable:
        return await self._say(Change("a" * 40, "b" * 40, "", (), PATCH, "service"))


def results(tmp_path: Path, service: Service | None, address: str = "") -> Any:
    entries = (RepositoryAddress("github:acme/api", address),) if address else ()
    return Results(Settings(data_dir=tmp_path / "data", repositories=entries), service)


async def test_the_extension_alone_gives_turns_changes_and_reviews(tmp_path: Path) -> None:
    """The extension gives turns with instructions, the change with its files, and new reviews."""
    found = results(tmp_path, Service())
    turns, change = await found.turns(run_detail()), await found.change(run_detail())
    reviews = await found.reviews(run_detail())

    assert (turns.source, turns.turns[0].instructions) == ("service", "Do it")
    assert change.source == "service"
    assert [(file.path, file.additions) for file in change.files] == [("reviews/r.md", 3), ("a.py", 1)]
    assert (reviews[0].text, reviews[0].findings[0].line) == ("### `a.py`\n\n- **minor** line 3: x", 3)
    assert (await found.log("run_1", 1)).data == b"abc"
    assert isinstance(await found.blob(run_detail(), "a" * 40), Unavailable)


@pytest.mark.parametrize(
    ("later", "shown"),
    [
        ([{"outcome": "cancelled", "from_turn": 1}], 1),
        ([{"outcome": "cancelled"}, {"state": "queued"}], 1),
        ([{"outcome": "failed", "from_turn": 1, "started_at": datetime.now(UTC)}], 1),
        ([{"outcome": "failed", "started_at": datetime.now(UTC)}], None),
        ([{"outcome": "completed", "from_turn": 1, "started_at": datetime.now(UTC)}], None),
        ([{"outcome": "failed", "from_turn": 1, "files": 2, "started_at": datetime.now(UTC)}], 2),
    ],
)
def test_a_runs_unpushed_change_is_its_newest(later: list[dict[str, Any]], shown: int | None) -> None:
    """A turn that never began, or whose agent did not, leaves it; a turn that began without it replaces it."""
    first = Turn(1, "failed", outcome="failed", files=1, started_at=datetime.now(UTC))
    rest = [Turn(number, **{"state": "failed"} | fields) for number, fields in enumerate(later, 2)]

    assert unpushed_turn(RunTurns("run_1", (first, *rest)), None) == shown
    assert unpushed_turn(RunTurns("run_1", (first, *rest)), 1) == 1


async def test_a_long_review_in_a_services_patch_is_not_read_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch of 60 MB takes two seconds, in which the console goes on."""
    threads = list[threading.Thread]()
    monkeypatch.setattr(source, "new_side", lambda *_: threads.append(threading.current_thread()) or b"text")

    assert (await results(tmp_path, Service()).reviews(run_detail()))[0].text == "text"
    assert threads[0] is not threading.main_thread()


async def test_git_alone_gives_turns_changes_and_reviews(tmp_path: Path) -> None:
    """Only the service has the log, so its refusal is shown; a missing turn is reported."""
    origin = Origin(tmp_path / "host")
    review = b"### `code.py`\n\n- **major** line 2: x\n"
    origin.commit("agent/x", {"reviews/r.md": review, "code.py": b"x"}, mark="run_1 turn 1")
    found = results(tmp_path, Service(NONE), origin.url)
    turns, change = await found.turns(run_detail()), await found.change(run_detail(), 1)

    assert (turns.source, change.source) == ("git", "git")
    finding = Finding("code.py", 2, "x", "major", 2)
    assert await found.reviews(run_detail()) == (Review("reviews/r.md", review.decode(), (finding,)),)
    assert await found.log("run_1", 1) == NONE
    assert await found.blob(run_detail(), change.files[0].new_blob or "") == b"x"
    for told, address in ((NONE, origin.url), (None, origin.url), (None, "")):
        got = await results(tmp_path, Service(told), address).change(run_detail(), 9)
        assert isinstance(got, Unavailable)
        assert got.reason.startswith(("The run has no turn 9", "The run run_1 has no turn 9"))


@pytest.mark.parametrize("answer", [NONE, UnreachableError("The service keeps no results.")])
async def test_without_any_source_both_reasons_are_given(tmp_path: Path, answer: Any) -> None:
    """One message has both reasons."""
    found, run = results(tmp_path, Service(answer)), run_detail()
    for got in (await found.turns(run), await found.change(run), await found.change(run, 9), await found.reviews(run)):
        assert isinstance(got, Unavailable)
        assert "add it under [repositories]" in got.reason
        assert "keeps no results" in got.reason


async def test_the_services_commit_id_finds_a_turns_commit(tmp_path: Path) -> None:
    """The commit is found even if the branch is gone and the commit unmarked.

    Without a review, the searched patterns are named.
    """
    origin = Origin(tmp_path / "host")
    commit = origin.commit("agent/x", {"code.py": b"x"}, at=-100, start="main")
    none = await results(tmp_path, None, origin.url).reviews(run_detail())
    git(origin.bare, "branch", "--quiet", "-D", "agent/x")
    change = await results(tmp_path, Service(commit=commit), origin.url).change(run_detail(), 1)

    assert none == Unavailable("No review: none of the 1 changed files matches reviews/*.md.")
    assert (change.source, change.head, change.base_name) == ("git", commit, "its first parent")


async def test_an_agents_findings_are_shown_as_a_review(tmp_path: Path) -> None:
    """The agent's findings link to files like those of Markdown; text in them creates no other markup."""
    known = ReportedFinding("a.py", 3, "x", "minor")
    more = ReportedFinding("b`.py", None, "y\n# z", None, "r", "why\nso", "```\ncode")
    same = await results(tmp_path, Service(None, None, known)).reviews(run_detail())
    both = await results(tmp_path, Service(None, None, more, known)).reviews(run_detail(), 1)

    assert [each.path for each in same] == ["reviews/r.md"]
    assert [each.path for each in both] == ["findings of turn 1", "reviews/r.md"]
    assert {each.source for each in both} == {"service"}
    lines = both[0].text.split("\n")
    assert [(one.path, one.line, one.severity, lines[one.at]) for one in both[0].findings] == [
        ("a.py", 3, "minor", "- **minor** line 3: x"),
        ("b`.py", None, None, "- **finding** `r`: y # z"),
    ]
    assert lines[6:] == [
        *("## ``b`.py``", "", "- **finding** `r`: y # z", "", "  why", "  so"),
        *("", "  ````", "  ```", "  code", "  ````", ""),
    ]
