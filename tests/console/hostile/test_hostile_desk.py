"""What is not the service's may be hostile too: names, the ledger, files; and what leaves the screen stays harmless."""

import asyncio
import csv
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.text import FORMULA_STARTS
from tests.console.hostile.conftest import foreign
from tests.console.hostile.desk import configuration, ledger_file, now, write_ledger, write_list
from tests.console.hostile.payloads import SEQUENCES
from tests.console.hostile.test_hostile_bytes import hostile_board
from tests.lab import Lab
from tests.pty.ansi import pieces, unprintable
from tests.pty.terminal import ESCAPE, Terminal

NOTIFICATION = re.compile(r"\]777;notify;[^;]*;[^;]*")
COPIED = re.compile(r"\]52;c;([A-Za-z0-9+/=]*)")
FOLDER = "[bold red]表[nope]{run_id} %s"
"""What a field for a path lets through: markup, wide characters, placeholders."""
TO_START = "\x15"
COPYING = (" ", "y", "Y", ESCAPE, "j", "y")
FORM = ("n", "\x14", "j", ESCAPE, ESCAPE, ESCAPE)
"""The templates, from the form of a new run."""
ORGANIZATIONS = ("3", *"yjy", "\r", ESCAPE, "v", ESCAPE)
ACTIVITY = ("6", *"yjyjy", "\r", ESCAPE, "v", ESCAPE)
PROFILES = ("\x0f", "h", ESCAPE)
OWN = (":", "hostile", ESCAPE, ":", "nowhere", ESCAPE, ":", "redmarkup", "\r", "y", ESCAPE)
ALERTS = (*"=+-@<", "\t", "--upload-pack=x", "@/etc/passwd", "4;1;50", "\x1b]52;c;b3duZWQ=\x07", "a;b;c")
"""Beginnings of what a program, a spreadsheet or a terminal would obey."""


@dataclass
class Left:
    """What one long visit sent to the terminal, to programs and to files."""

    seen: bytes
    told: list[list[str]]
    folder: Path
    osc: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    """One visit to a hostile desk, for all that is asked of it below."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch, Lab() as board:
        # A multiplexer's own notifications are none.
        for name in ("TMUX", "STY"):
            patch.delenv(name, raising=False)
        # Megabytes are test_hostile_bytes' subject.
        hostile_board(board, [text[:50_000] for text in SEQUENCES])
        for number, alert in enumerate(ALERTS):
            repository = {"platform": "github", "data": {"owner": alert, "repo": alert}}
            board.put(f"{alert}{number}", "working", created=598.0, branch_name=alert, repository=repository)
            # Of this hour: their repositories are in Insights' figures.
            board.runs[f"{alert}{number}"].update(created_at=now(), updated_at=now())
        terminal = _opened(board, folder)
        try:
            _visit(terminal, board, folder)
        finally:
            terminal.close()
        told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
        yield Left(terminal.seen, told, folder, [p.text for p in pieces(terminal.seen) if p.kind == "osc"])


def _opened(board: Lab, folder: Path) -> Terminal:
    (folder / FOLDER).mkdir()
    (folder / "config.toml").write_text(configuration(board.base_url, folder / "told"))
    write_list(folder / FOLDER / "list.csv")
    asyncio.run(write_ledger(ledger_file(board.base_url, folder / "data")))
    env = {
        "HOME": str(folder),
        "RUNWARDEN_DATA_DIR": str(folder / "data"),
        "RUNWARDEN_CONFIG": str(folder / "config.toml"),
        "RUNWARDEN_TOKEN": "token-of-the-desk",
        "RUNWARDEN_BASE_URL": "",
        "TERM": "foot",
        "TZ": "UTC",
    }
    return Terminal([], env, (140, 40), cwd=folder)


def _visit(terminal: Terminal, board: Lab, folder: Path) -> None:
    terminal.shows("the-marker")
    terminal.press(*COPYING, *FORM, *ORGANIZATIONS, *ACTIVITY, *PROFILES, *OWN)
    _import(terminal, folder)
    for name in ("runs.csv", "runs.json", "figures.csv"):
        terminal.press("1" if name.startswith("runs") else "4", "x", TO_START, f"{folder / FOLDER / name}")
        terminal.type("\r")
        terminal.read_until((folder / FOLDER / name).exists)
    for run in board.runs.values():
        if run["status"] == "working":
            run.update(status="failed", updated_at=now())
    terminal.press("r")
    terminal.wrote(b"\x1b]777;notify;")
    terminal.read_until(lambda: _has_lines(folder / "told"))
    terminal.press("6", "1")
    assert terminal.process.poll() is None, terminal.seen[-2000:]


def _import(terminal: Terminal, folder: Path) -> None:
    terminal.press("3", "I", TO_START, f"{folder / FOLDER / 'list.csv'}", "\r", *"jj", ESCAPE, ESCAPE)
    assert "evil.example" in terminal.seen.decode(errors="replace")


def _has_lines(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


def test_nothing_but_printable_text_is_on_the_screen(left: Left) -> None:
    """Profiles, views, templates, commands, the ledger's rooms, the import, the toasts that name a file."""
    rest = [piece for piece in foreign(left.seen) if not _is_outward(piece.text)]

    assert rest == []


def test_a_notification_through_the_terminal_is_plain_text(left: Left) -> None:
    """A title and a body, whose semicolons and sequences are text."""
    sent = [text for text in left.osc if text.startswith("]777")]

    assert sent
    for text in sent:
        assert NOTIFICATION.fullmatch(text)
        assert not unprintable(text)


def test_a_notify_command_gets_arguments_and_no_options(left: Left) -> None:
    """Nor the name of a file that it would read: a leading dash, at sign or angle bracket is another character."""
    assert left.told
    for arguments in left.told:
        assert len(arguments) == 7
        assert not unprintable("".join(arguments))
        assert not any(argument.startswith(("-", "@", "<")) for argument in arguments)


def test_what_is_copied_is_printable_lines(left: Left) -> None:
    """Ids as safe text, JSON with its own escapes: pasted into a shell, none of it acts."""
    copied = [b64decode(match[1]).decode() for text in left.osc if (match := COPIED.fullmatch(text))]

    assert len(copied) > 5
    assert "owned" not in copied
    for text in copied:
        assert not unprintable(text.replace("\n", ""))
    assert any(text.startswith("{") and json.loads(text) for text in copied)


def test_exports_are_printable(left: Left) -> None:
    """No cell starts a formula; JSON holds the exact text in escapes."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (left.folder / FOLDER).iterdir()}
    del texts["list.csv"]
    for name, text in texts.items():
        assert not unprintable(text.replace("\n", "")), name
    for name in ("runs.csv", "figures.csv"):
        rows = list(csv.reader(texts[name].splitlines()))
        assert len(rows) > len(ALERTS)
        assert not [cell for row in rows for cell in row if cell.startswith(FORMULA_STARTS)]
    assert set(SEQUENCES[:12]) <= {run["branch_name"] for run in json.loads(texts["runs.json"])["runs"]}


def _is_outward(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (NOTIFICATION, COPIED))
