"""The commands, the console and the bot judge answers that the spec does not define in the same way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.automations.bot import Bot
from tests.automations.test_acting import Said, automation, configured
from tests.cli.conftest import CommandLine
from tests.console.conftest import Staged
from tests.console.quiet import QuietLoop
from tests.lab import Lab

RULE = automation('{ command = ["true"] }').replace('run = "failed"', 'health = "not ok"')
OK, WARNING, CRITICAL, UNKNOWN = range(4)
GLYPHS = {OK: "✓", WARNING: "▲", CRITICAL: "✗", UNKNOWN: "?"}
WORDS = {OK: "", WARNING: "  warning", CRITICAL: "  critical", UNKNOWN: "  unknown"}
ANSWERS: list[tuple[Any, int, str]] = [
    ({"github": {"status": " OK "}}, OK, "OK"),
    ({"github": "Degraded"}, WARNING, "Degraded"),
    ({"github": {"status": "never heard of"}}, CRITICAL, "never heard of"),
    ({"github": {"status": " "}}, UNKNOWN, "no status"),
    ({"github": ["ok"]}, CRITICAL, '["ok"]'),
    ({"github": None}, UNKNOWN, ""),
]


async def told_by_a_bot(board: Lab, folder: Path, answer: Any) -> Said:
    """Return the log of a bot that saw the host healthy, and then this answer."""
    settings = configured(board, folder, RULE)
    board.health = {"github": "ok"}
    bot = await Bot.open(settings, settings.profile(), said := Said())
    await bot.once()
    board.health = answer
    await bot.once()
    await bot.close()
    return said


async def screen(staged: Staged) -> str:
    """Return the console after a poll: the runs, and the code hosts."""
    async with staged() as scene:
        runs = scene.text
        await scene.press("2")
        return f"{runs}\n{scene.text}"


@pytest.mark.parametrize(("answer", "level", "status"), ANSWERS)
def test_every_surface_gives_a_code_host_the_same_verdict(
    board: Lab, tmp_path: Path, answer: Any, level: int, status: str
) -> None:
    """`runwarden health`, the snapshot and the bot's rules agree on it."""
    said = asyncio.run(told_by_a_bot(board, tmp_path, answer))
    command_line = CommandLine(tmp_path, board.base_url)
    found, snapshot = command_line("health"), command_line().out.splitlines()

    assert found.code == level
    assert [facts["outcome"] for event, facts in said if event == "decision"] == (
        ["acting", "done"] if level in {WARNING, CRITICAL} else []
    )
    if not status:
        assert "no code host is connected" in found.out
        assert "no code host is connected" in snapshot
    else:
        assert f"github {status}" in found.out.splitlines()[0]
        (line,) = [line for line in snapshot if line.startswith(f"github {status} since")]
        assert line.endswith(("ago", "now")) if level == OK else line.endswith(WORDS[level])


async def test_the_console_gives_each_answer_the_same_verdict(board: Lab, staged: Staged) -> None:
    """The header shows the verdict, and Health shows the status that the service sent."""
    async with staged(synced=False) as scene:
        await scene.press("2")
        # Answers that name no host come first, since a host that was seen once stays on the screen.
        for answer, level, status in reversed(ANSWERS):
            board.health = answer
            scene.clock.move(hours=1)
            await scene.sync()

            assert ("github" in scene.lines[0]) == bool(status), answer
            assert not status or f"github {GLYPHS[level]}" in scene.lines[0], answer
            assert status in scene.text, answer


def test_every_surface_gives_a_run_the_same_id(
    board: Lab, staged: Staged, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A numeric id is read as its digits; runs without a usable id are left out, and every surface counts them."""
    board.runs.clear()
    board.put("run_1", created=1)
    for number, run_id in enumerate((5, "x" * 1_000, "x" * 10_000, "", [])):
        board.put(f"odd_{number}", "working", created=0)
        board.runs[f"odd_{number}"]["run_id"] = run_id
    command_line = CommandLine(tmp_path_factory.mktemp("cli"), board.base_url)
    document = command_line("runs", "list", "--all", "--json").json()
    snapshot = command_line().out
    with asyncio.Runner(loop_factory=QuietLoop) as runner:
        shown = runner.run(screen(staged))

    assert {str(run["run_id"]) for run in document["runs"]} == {"run_1", "5", "x" * 1_000}
    assert document["dropped"] == 3
    assert "3 entries of the list have no usable run id" in snapshot
    assert "2 working" in snapshot
    assert "3 without an id" in shown
    assert "2 working" in shown
