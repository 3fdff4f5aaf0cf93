"""What the service alone knows of a run: in columns that a person adds, and beside the table."""

import pytest

from app.results.service import ServiceExtension
from storage.records.results import RunTurns, Turn, Unavailable
from tests.console.conftest import Staged
from tests.waiting import until
from widgets.runs.columns import ColumnChoice

REASON = "The agent ended with \x1b[2J exit code 3."


async def test_turns_lines_and_the_reason_come_from_the_service(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for only of the runs on show, once each; a failed run's reason stands beside the table."""
    asked: list[str] = []

    async def turns(_: ServiceExtension, run_id: str) -> RunTurns | Unavailable:
        asked.append(run_id)
        return RunTurns(run_id, (Turn(1, "failed"), Turn(2, "failed", additions=1200, deletions=7, reason=REASON)))

    monkeypatch.setattr(ServiceExtension, "turns", turns)
    monkeypatch.setattr("app.console.runs.loaders.RESTS_S", 0.01)
    async with staged() as scene:
        while scene.table.row is None or scene.table.row.status != "failed":
            await scene.press("j")
        await scene.shows("reason The agent ended with ␛[2J exit", "in 2 turns")
        assert "\x1b" not in scene.text
        told = len(asked)
        scene.table.set_columns(ColumnChoice(("status", "repository", "turns", "lines", "pull")))
        await scene.tick(seconds=1)
        await until(lambda: scene.text.count("+1,200 -7") == len(scene.table.rows_on_show))

        await scene.tick(seconds=1)
        assert "pull request" in scene.text
        assert told >= 1
        assert len(asked) == len(set(asked)) == len(scene.table.rows_on_show)
