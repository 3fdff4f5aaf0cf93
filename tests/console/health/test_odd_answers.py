"""Answers that the spec does not have: the commands, the console and the bot judge them alike."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.automations.bot import Bot
from tests.automations.test_acting import Said, automation, configured
from tests.cli.conftest import Inside
from tests.console.conftest import Staged
from tests.lab import Lab

RULE = automation('{ command = ["true"] }').replace('run = "failed"', 'health = "not ok"')
OK, WARNING, CRITICAL, UNKNOWN = range(4)
GLYPHS = {OK: "✓", WARNING: "▲", CRITICAL: "✗", UNKNOWN: "?"}
WORDS = {OK: "", WARNING: "  warning", CRITICAL: "  critical", UNKNOWN: "  unknown"}


async def told_by_a_bot(board: Lab, folder: Path, answer: Any) -> Said:
    """The log of a bot that saw the host well, and then this answer."""
    settings = configured(board, folder, RULE)
    board.health = {"github": "ok"}
    bot = await Bot.open(settings, settings.profile(), said := Said())
    await bot.once()
    board.health = answer
    await bot.once()
    await bot.close()
    return said


async def screen(staged: Staged) -> str:
    """The console after a poll: the runs, and the code hosts."""
    async with staged() as scene:
        runs = scene.text
        await scene.press("2")
        return f"{runs}\n{scene.text}"


@pytest.mark.parametrize(
    ("answer", "level", "status"),
    [
        ({"github": {"status": "OK"}}, OK, "OK"),
        ({"github": {"status": " ok "}}, OK, "ok"),
        ({"github": "Healthy"}, OK, "Healthy"),
        ({"github": "Degraded"}, WARNING, "Degraded"),
        ({"github": {"status": "never heard of"}}, CRITICAL, "never heard of"),
        ({"github": {}}, UNKNOWN, "no status"),
        ({"github": {"status": None}}, UNKNOWN, "no status"),
        ({"github": {"status": " "}}, UNKNOWN, "no status"),
        ({"github": {"status": {"code": 1}}}, CRITICAL, '{"code":1}'),
        ({"github": {"status": True}}, CRITICAL, "true"),
        ({"github": ["ok"]}, CRITICAL, '["ok"]'),
        ({"github": 3}, CRITICAL, "3"),
        ({"github": None}, UNKNOWN, ""),
        ({}, UNKNOWN, ""),
        (None, UNKNOWN, ""),
    ],
)
def test_a_code_host_has_one_verdict(
    board: Lab, staged: Staged, tmp_path_factory: pytest.TempPathFactory, answer: Any, level: int, status: str
) -> None:
    """In `runwarden health`, in the snapshot, in the console's first line and for the bot's rules."""
    folder = tmp_path_factory.mktemp("bot")
    said = asyncio.run(told_by_a_bot(board, folder, answer))
    command_line = Inside(folder, board.base_url)
    found, snapshot = command_line("health"), command_line().out.splitlines()
    shown = asyncio.run(screen(staged))
    header = shown.splitlines()[0]

    assert found.code == level
    assert [facts["outcome"] for event, facts in said if event == "decision"] == (
        ["acting", "done"] if level in {WARNING, CRITICAL} else []
    )
    if not status:
        assert "no code host is connected" in found.out
        assert "no code host is connected" in snapshot
        assert "github" not in header
    else:
        assert f"github {status}" in found.out.splitlines()[0]
        (line,) = [line for line in snapshot if line.startswith(f"github {status} since")]
        assert line.endswith(("ago", "now")) if level == OK else line.endswith(WORDS[level])
        assert f"github {GLYPHS[level]}" in header
        assert status in shown


@pytest.mark.parametrize(
    ("run_id", "shown"),
    [(5, "5"), ("x" * 1_000, "x" * 1_000), ("x" * 10_000, ""), ("", ""), ([], "")],
    ids=["a number", "a long one", "one that is too long", "an empty one", "a list"],
)
def test_a_run_has_one_id(
    board: Lab, staged: Staged, tmp_path_factory: pytest.TempPathFactory, run_id: object, shown: str
) -> None:
    """A number is taken as its digits; an id that cannot be one is left out, and each of them says so."""
    board.runs.clear()
    board.put("run_1", created=1)
    board.put("odd", "working", created=0)
    board.runs["odd"]["run_id"] = run_id
    command_line = Inside(tmp_path_factory.mktemp("cli"), board.base_url)
    document, snapshot = command_line("runs", "list", "--all", "--json").json(), command_line().out
    shown_on_screen = asyncio.run(screen(staged))

    assert [str(run["run_id"]) for run in document["runs"]] == ["run_1", *([shown] if shown else [])]
    assert document.get("dropped", 0) == (0 if shown else 1)
    assert ("entries of the list have no usable run id" in snapshot) == (not shown)
    assert ("1 without an id" in shown_on_screen) == (not shown)
    assert ("1 working" in snapshot, "1 working" in shown_on_screen) == (bool(shown), bool(shown))
