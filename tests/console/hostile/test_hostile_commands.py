"""Whatever a service says, a command that prints to a terminal sends it printable text."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.console.hostile.conftest import COLOURS, foreign
from tests.console.hostile.desk import configuration, ledger_file, write_ledger, write_list
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

    assert foreign(terminal.seen, COLOURS) == []


def test_a_refusal_prints_none_either(terminals: Callable[..., Terminal]) -> None:
    """The service's own words for it are text."""
    with served(RefusingBoard({"message": "".join(SEQUENCES[:20]), "error_code": SEQUENCES[0]})) as board:
        for arguments in (("runs", "list"), ("runs", "list", "--json")):
            terminal = terminals(board.base_url, arguments=arguments)

            assert terminal.end() != 0
            assert foreign(terminal.seen, COLOURS) == []


def test_the_ledger_and_a_list_are_printed_as_text(terminals: Callable[..., Terminal], tmp_path: Path) -> None:
    """Organizations and actions as tables, documents and spreadsheets, one action whole; an import and its file."""
    address = "http://127.0.0.1:9/v1"
    config = configuration(address, tmp_path / "told")
    ids = asyncio.run(write_ledger(ledger_file(address, tmp_path / "data")))
    hostile_list = tmp_path / "\x1b]0;owned\x07\x9b31m\u202elist.csv"
    write_list(hostile_list)
    for arguments in (
        *(("orgs", "list", "--output", form) for form in ("table", "json", "csv")),
        *(("actions", "list", "--output", form) for form in ("table", "csv")),
        ("actions", "show", ids[3]),
        ("actions", "resolve", ids[10], "--send-again", "--confirm", "no"),
        ("orgs", "import", str(hostile_list), "--dry-run"),
        ("orgs", "import", f"{hostile_list}\x1b[2J"),
        ("profiles", "list"),
    ):
        terminal = terminals(address, arguments=arguments, config=config, RUNWARDEN_BASE_URL="")
        terminal.end()

        assert terminal.seen
        assert foreign(terminal.seen, COLOURS) == []
