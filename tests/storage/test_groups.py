"""Groups of runs: the worst first, folded or followed by their runs; a window is a part of the whole list."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from storage.cache import window as windows
from storage.cache.read_runs import Remembered
from storage.cache.window import rows, within
from storage.records import Repository, Run, RunFilter, RunSort, RunWindow, WindowRequest
from storage.records.query import Grouping
from tests.storage.conftest import NOON, Connections, connected, store

REPOSITORIES = ("acme/api", "acme/web", "acme/*", "gitlab:acme/tools")


def run(number: int, status: str = "completed") -> Run:
    at = NOON + timedelta(minutes=number)
    branch = ("main", "", f"agent/{number}")[number % 3]
    return Run(f"run_{number:03}", status, branch, Repository.parse(REPOSITORIES[number % 7 % 4]), at, at, "{}")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Connections]:
    """A writer and a reader of forty runs; `acme/web` fails most, one run of `acme/api` is stuck."""
    found = [
        run(n, {1: "failed", 8: "failed", 2: "failed", 0: "working", 4: "working"}.get(n, "completed"))
        for n in range(40)
    ]
    with connected(tmp_path, found) as opened:
        opened[0].execute("INSERT INTO stuck SELECT id, 0, 0 FROM runs WHERE run_id = 'run_000'")
        yield opened


def ask(database: Connections, grouping: Grouping, offset: int = 0, limit: int = 100, **fields: object) -> RunWindow:
    request = WindowRequest(fields.pop("condition", RunFilter()), RunSort(), offset, limit, grouping=grouping, **fields)  # type: ignore[arg-type]
    return windows.window(database[1], request, Remembered())


def drawn(window: RunWindow) -> list[str]:
    """Every row of a window by its run or its group."""
    return [
        head.name if (head := window.head(index)) else row.run_id if (row := window.row(index)) else "?"
        for index in range(window.offset, window.total)
    ]


def test_the_worst_group_comes_first_with_its_numbers(database: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are sorted by failed, then stuck and active runs. Groups beyond the limit share one line."""
    folded = ask(database, Grouping("repository"))

    assert [head.name for _, head in folded.heads][:3] == ["acme/web", "acme/*", "acme/api"]
    assert [(head.runs, head.failed, head.stuck, head.active) for _, head in folded.heads] == [
        (11, 2, 0, 0), (11, 1, 0, 0), (12, 0, 1, 2), (6, 0, 0, 0),
    ]  # fmt: skip
    assert (folded.total, folded.runs, folded.rows) == (4, 40, ())
    assert ask(database, Grouping("repository"), condition=RunFilter(statuses=("failed",))).runs == 3
    monkeypatch.setattr(windows, "MAX_GROUPS", 2)
    last = ask(database, Grouping("repository", is_folded=False)).heads[-1][1]
    assert (last.others, last.runs, last.rows) == (2, 18, 0)
    for text, by in (("repository", Grouping("repository")), ("branch unfolded", Grouping("branch", is_folded=False))):
        assert (Grouping.read(text), str(by)) == (by, text)
    assert Grouping.read("") is Grouping.read("colour") is None


@pytest.mark.parametrize("by", ["repository", "branch"])
@pytest.mark.parametrize(
    "condition", [RunFilter(), RunFilter(repositories=("acme/*",), search="run_0")], ids=["all", "some"]
)
def test_a_window_is_a_part_of_the_whole(database: Connections, by: str, condition: RunFilter) -> None:
    """Heads are followed by their runs in order; a group whose name looks like a pattern stays folded."""
    grouping = Grouping(by, is_folded=False, others=frozenset({"main"}))  # type: ignore[arg-type]
    whole = ask(database, grouping, condition=condition)
    expected = []
    for _, head in whole.heads:
        expected.append(head.name)
        if not head.is_folded:
            condition_of = within(condition, grouping.by, head.name)
            expected += [row.run_id for row in rows(database[1], condition_of, RunSort(), 0, 99, Remembered())]

    assert drawn(whole) == expected
    assert {head.name for _, head in whole.heads if head.is_folded} <= {"main", "acme/*"}
    for offset in range(0, whole.total, 3):
        piece = ask(database, grouping, offset, 5, condition=condition)
        first = min(offset, max(0, whole.total - 5))
        assert (piece.offset, piece.total) == (first, whole.total)
        assert drawn(piece)[:5] == expected[first : first + 5]


def test_a_grouped_window_moves_with_its_anchor(database: Connections) -> None:
    """A run that arrives above moves anchor and cursor; in a folded group, the cursor's run has no row."""
    grouping = Grouping("repository", is_folded=False)
    whole = ask(database, grouping)
    at = drawn(whole).index("run_014")
    store(database[0], [run(43, "failed")])

    moved = ask(database, grouping, at, 4, anchor_id="run_014", anchor_index=at, cursor_id="run_014")

    assert drawn(ask(database, grouping))[moved.cursor_index or 0] == "run_014"
    assert moved.offset == at + moved.shift == moved.cursor_index
    assert ask(database, Grouping("repository"), cursor_id="run_014").cursor_index is None
    unchanged = ask(database, grouping, at, 4, cursor_id="run_014", cursor_index=at, is_fresh=False)
    assert (unchanged.shift, unchanged.cursor_index) == (0, at)
