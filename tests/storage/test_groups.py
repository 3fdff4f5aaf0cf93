"""Runs in groups: the worst first, folded or followed by their runs, and a window is a piece of the whole."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from storage.cache import window as windows
from storage.cache.read_runs import Remembered
from storage.cache.window import rows, within
from storage.records import Repository, Run, RunFilter, RunSort, RunWindow, WindowRequest
from storage.records.query import Grouping
from tests.storage.conftest import NOON, Connections, connected

REPOSITORIES = ("acme/api", "acme/web", "acme/*", "gitlab:acme/tools")


def run(number: int, status: str) -> Run:
    at = NOON + timedelta(minutes=number)
    branch = ("main", "", f"agent/{number}")[number % 3]
    return Run(f"run_{number:03}", status, branch, Repository.parse(REPOSITORIES[number % 7 % 4]), at, at, "{}")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Connections]:
    """A writer and a reader of forty runs, some of which failed or are at work."""
    with connected(tmp_path, [run(n, ("working", "failed", "completed")[n % 3]) for n in range(40)]) as opened:
        yield opened


def ask(database: Connections, grouping: Grouping, wanted: RunFilter, offset: int = 0, limit: int = 100) -> RunWindow:
    request = WindowRequest(wanted, RunSort(), offset, limit, grouping=grouping)
    return windows.window(database[1], request, Remembered())


def drawn(window: RunWindow) -> list[str]:
    """Every row of a window by its run or its group."""
    return [
        head.name if (head := window.head(index)) else row.run_id if (row := window.row(index)) else "?"
        for index in range(window.offset, window.total)
    ]


@pytest.mark.parametrize("by", ["repository", "branch"])
@pytest.mark.parametrize(
    "condition", [RunFilter(), RunFilter(repositories=("acme/*",), search="run_0")], ids=["all", "some"]
)
def test_a_window_is_a_piece_of_the_whole(database: Connections, by: str, condition: RunFilter) -> None:
    """Heads followed by their runs in order; a group whose name is a pattern stays folded."""
    grouping = Grouping(by, is_folded=False).toggled("main")  # type: ignore[arg-type]
    whole = ask(database, grouping, condition)
    expected = []
    for _, head in whole.heads:
        expected.append(head.name)
        if not head.is_folded:
            condition_of = within(condition, grouping.by, head.name)
            expected += [row.run_id for row in rows(database[1], condition_of, RunSort(), 0, 99, Remembered())]

    assert drawn(whole) == expected
    assert {head.name for _, head in whole.heads if head.is_folded} <= {"main", "acme/*"}
    for offset in range(0, whole.total, 3):
        piece = ask(database, grouping, condition, offset, 5)
        first = min(offset, max(0, whole.total - 5))
        assert (piece.offset, piece.total) == (first, whole.total)
        assert drawn(piece)[:5] == expected[first : first + 5]
