"""Two ways out of a hostile screen: Insights' figures as files, and a notification that has room for one text."""

import csv
import json
import re
from pathlib import Path

import pytest

from app.text import FORMULA_STARTS
from tests.console.hostile.conftest import foreign
from tests.console.hostile.desk import now
from tests.console.hostile.payloads import SEQUENCES
from tests.console.hostile.test_hostile_bytes import Terminals, hostile_board
from tests.pty.ansi import pieces, unprintable
from tests.pty.terminal import Terminal
from tests.run_board import Board, served

NOTIFICATION = re.compile(r"\]9;Runwarden: [^\x00-\x1f\x7f-\x9f]*")
FORMULAS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "4;1;50")
TO_START = "\x15"
NAME = "[bold red]図[nope]{path} %s"
"""A folder's name with markup, wide characters and placeholders in it."""
DESKTOP = "[notify]\nbell = false\ndesktop = true\nhold_s = 0\n"


def hostile_figures(board: Board) -> None:
    """Runs of this hour, so that their repositories are in the figures, under every name that could act."""
    for number, payload in enumerate((*SEQUENCES, *FORMULAS)):
        repository = {"platform": "github", "data": {"owner": payload, "repo": payload or "r"}}
        board.put(f"run_{number}", "completed", branch_name=payload, repository=repository, created=0)
        board.runs[f"run_{number}"].update(created_at=now(), updated_at=now())
    board.put("run_marker", "failed", created=1.0, branch_name="the-marker")
    board.runs["run_marker"].update(created_at=now(), updated_at=now())


def test_exported_figures_hold_no_sequence_and_no_formula(terminals: Terminals, tmp_path: Path) -> None:
    """Repositories named to act are text to a terminal and to a spreadsheet; so is the toast that names the file."""
    (tmp_path / NAME).mkdir()
    table, document = tmp_path / NAME / "figures.csv", tmp_path / NAME / "figures.json"
    with served(Board()) as board:
        hostile_figures(board)
        terminal = terminals(board.base_url)
        terminal.shows("the-marker")
        terminal.type("4")
        terminal.shows("Outcomes", "runs since")
        for file in (table, document):
            terminal.type("e")
            terminal.shows("Export these figures")
            terminal.type(f"{TO_START}{file}\r")
            terminal.read_until(file.exists)
            terminal.press("t")
            terminal.forget()

    assert foreign(terminal.seen) == []
    rows = list(csv.reader(table.read_text(encoding="utf-8").splitlines()))
    assert len({row[3] for row in rows}) > len(FORMULAS)
    assert not [cell for row in rows for cell in row if cell.startswith(FORMULA_STARTS)]
    for file in (table, document):
        assert not unprintable(file.read_text(encoding="utf-8").replace("\n", ""))
    told = json.loads(document.read_text(encoding="utf-8"))
    assert [each for each in told["repositories"] if SEQUENCES[1] in each["repository"]]


def test_a_notification_of_one_text_ends_where_ours_ends(terminals: Terminals, monkeypatch: pytest.MonkeyPatch) -> None:
    """OSC 9: a branch that would close it, begin another or be a progress bar is text in it, to its last byte."""
    for name in ("TMUX", "STY", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    with served(Board()) as board:
        hostile_board(board, list(SEQUENCES))
        terminal = terminals(board.base_url, config=DESKTOP, TERM="xterm-kitty")
        terminal.shows("the-marker")
        for run in board.runs.values():
            if run["status"] == "working":
                run.update(status="failed", updated_at=now())
        terminal.press("r")
        terminal.wrote(b"\x1b]9;")
        terminal.press("6")

    sent = _notifications(terminal)
    assert sent
    assert all(NOTIFICATION.fullmatch(text) and not unprintable(text) for text in sent)
    assert [piece for piece in foreign(terminal.seen) if piece.text not in sent] == []


def _notifications(terminal: Terminal) -> list[str]:
    return [piece.text for piece in pieces(terminal.seen) if piece.kind == "osc" and piece.text.startswith("]9")]
