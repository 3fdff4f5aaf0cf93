"""Whatever a service says, a command that prints to a terminal sends it printable text."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.console.hostile.conftest import COLOURS, foreign
from tests.console.hostile.desk import configuration, ledger_file, write_ledger, write_list
from tests.console.hostile.payloads import SEQUENCES
from tests.console.hostile.test_hostile_bytes import RefusingBoard, hostile_board
from tests.lab import Lab

COMMANDS = (
    ("runs", "list", "--all"),
    ("runs", "list", "--all", "--json"),
    ("runs", "list", "--all", "--output", "csv"),
    ("runs", "list", "--cached", "--search", "".join(SEQUENCES[:3]).replace("\x00", "")),
    ("runs", "show", f"run_000{SEQUENCES[0]}"),
    ("health",),
    ("health", "--json"),
)


Prints = Callable[..., list[tuple[bytes, int]]]


def test_a_command_prints_no_foreign_sequence(prints: Prints) -> None:
    """Tables, documents and spreadsheets alike: what is on a terminal is obeyed by it."""
    with Lab() as board:
        hostile_board(board, list(SEQUENCES))
        printed = prints(board.base_url, COMMANDS)

    assert [foreign(sent, COLOURS) for sent, _ in printed] == [[]] * len(COMMANDS)


def test_a_refusal_prints_none_either(prints: Prints) -> None:
    """The service's own words for it are text."""
    with RefusingBoard({"message": "".join(SEQUENCES[:20]), "error_code": SEQUENCES[0]}) as board:
        printed = prints(board.base_url, (("runs", "list"), ("runs", "list", "--json")))

    assert all(status != 0 and foreign(sent, COLOURS) == [] for sent, status in printed), printed


def test_the_ledger_and_a_list_are_printed_as_text(prints: Prints, tmp_path: Path) -> None:
    """Organizations and actions as tables, documents and spreadsheets, one action whole; an import and its file."""
    address = "http://127.0.0.1:9/v1"
    config = configuration(address, tmp_path / "told")
    ids = asyncio.run(write_ledger(ledger_file(address, tmp_path / "data")))
    hostile_list = tmp_path / "\x1b]0;owned\x07\x9b31m\u202elist.csv"
    write_list(hostile_list)
    commands = (
        *(("orgs", "list", "--output", form) for form in ("table", "json", "csv")),
        *(("actions", "list", "--output", form) for form in ("table", "csv")),
        ("actions", "show", ids[3]),
        ("actions", "resolve", ids[10], "--send-again", "--confirm", "no"),
        ("orgs", "import", str(hostile_list), "--dry-run"),
        ("orgs", "import", f"{hostile_list}\x1b[2J"),
        ("profiles", "list"),
    )
    for sent, _ in prints(address, commands, config=config, RUNWARDEN_BASE_URL=""):
        assert sent
        assert foreign(sent, COLOURS) == []
