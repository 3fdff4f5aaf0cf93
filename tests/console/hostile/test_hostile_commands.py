"""Whatever a service says, a command that prints to a terminal sends it printable text."""

from collections.abc import Callable

import pytest

from tests.console.hostile.conftest import foreign
from tests.console.hostile.payloads import SEQUENCES
from tests.console.hostile.test_hostile_bytes import RefusingBoard, hostile_board
from tests.pty.terminal import Terminal
from tests.run_board import Board, served

COMMANDS = (
    ("runs", "list", "--all"),
    ("runs", "list", "--all", "--json"),
    ("runs", "list", "--all", "--output", "csv"),
    ("runs", "list", "--cached", "--search", "".join(SEQUENCES[:3]).replace("\x00", "")),
    ("runs", "show", f"run_000{SEQUENCES[0]}"),
    ("health",),
    ("health", "--json"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:5])[:40].split("\x1b")[0])
def test_a_command_prints_no_sequence_of_somebody_elses(
    terminals: Callable[..., Terminal], arguments: tuple[str, ...]
) -> None:
    """Tables, documents and spreadsheets alike: what is on a terminal is obeyed by it."""
    with served(Board()) as board:
        hostile_board(board, list(SEQUENCES))
        terminal = terminals(board.base_url, arguments=arguments)
        terminal.end()

    assert foreign(terminal.seen, set()) == []


@pytest.mark.parametrize("arguments", [("runs", "list"), ("runs", "list", "--json")])
def test_a_refusal_prints_none_either(terminals: Callable[..., Terminal], arguments: tuple[str, ...]) -> None:
    """The service's own words for it are text."""
    with served(RefusingBoard({"message": "".join(SEQUENCES[:20]), "error_code": SEQUENCES[0]})) as board:
        terminal = terminals(board.base_url, arguments=arguments)

        assert terminal.end() != 0

    assert foreign(terminal.seen, set()) == []
