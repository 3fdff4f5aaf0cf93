"""Runs in groups on the screen: folded and unfolded, marked across groups, and remembered."""

from tests.console.conftest import SMALL, Scene, Staged
from tests.console.runs.conftest import cursor_line
from tests.console.scenes import app_on


def heads(scene: Scene) -> list[str]:
    return [line[2:24].strip() for line in scene.lines if line[2:3] in {"▸", "▾"}]


async def test_runs_are_grouped_folded_and_marked(staged: Staged) -> None:
    """The worst group first; enter, a click, `z` and `Z` fold; the heads are not marked."""
    async with staged(SMALL) as scene:
        await scene.press("runs.group")
        assert [name[2:] for name in heads(scene)] == [
            "acme/web", "acme/payment-service", "acme/infrastructure", "gitlab:acme/tools", "acme/api"
        ]  # fmt: skip
        assert "12 runs     ✗ 1 failed" in cursor_line(scene)
        assert "[All 60]" in scene.text

        await scene.press("j", "enter", "j", "j", "j")
        assert "▾ acme/payment-service" in scene.text
        assert "fix/login-timeout" in cursor_line(scene)

        await scene.press("runs.fold")
        assert "▸ acme/payment-service" in cursor_line(scene)

        await scene.press("runs.fold_all")
        assert "▾ acme/payment-service" in cursor_line(scene)

        await scene.press("asterisk")
        assert len(scene.table.marks) == 60


async def test_groups_are_remembered_with_the_view(staged: Staged) -> None:
    """A saved view brings its own; others keep those of the table, also in the next console."""
    async with staged(SMALL) as scene:
        await scene.press("runs.group", "runs.fold_all", "runs.save_view", *"Mine", "enter")
        await scene.press("runs.group", "right_square_bracket")
        assert "acme/api" not in "".join(heads(scene))
        assert "main" in "".join(heads(scene))

        app = app_on(scene.app.settings, scene.clock, scene.engine)
        async with app.run_test(size=SMALL) as pilot:
            again = Scene(pilot, scene.engine, scene.clock)
            await again.settle()
            assert any("main" in head for head in heads(again))

            await again.press("left_square_bracket")
            assert "[Mine 60]" in again.text
            assert heads(again)[0].startswith("▾ acme/web")
