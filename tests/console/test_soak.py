"""Polls with changes, and visits of every tab: nothing is left over from any of them."""

import asyncio
import gc
from dataclasses import dataclass

from tests.console.conftest import Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.run_board import Board

TABS = ("2", "3", "4", "5", "6", "7", "1")
SHEETS = ("question_mark", "colon", "n", "s")
"""Keys that open something over the room; escape closes it."""


@dataclass(frozen=True)
class Left:
    """What may be left over."""

    tasks: int
    listeners: int
    timers: int
    widgets: int
    workers: int
    subscriptions: int

    @classmethod
    def of(cls, scene: Scene) -> "Left":
        """As it is now."""
        app = scene.app
        screens = [screen for stack in app._screen_stacks.values() for screen in stack]
        signals = [app.theme_changed_signal, app.screen_change_signal, app.mode_change_signal]
        signals += [screen.bindings_updated_signal for screen in screens]
        return cls(
            tasks=len(asyncio.all_tasks()),
            listeners=len(scene.engine.doorbell._listeners),
            timers=sum(len(node._timers) for screen in screens for node in [screen, *screen.walk_children()])
            + len(app._timers),
            widgets=sum(1 for screen in screens for _ in screen.walk_children()),
            workers=len(app.workers),
            subscriptions=sum(len(found) for signal in signals for found in signal._subscriptions.values()),
        )


def happen(board: Board, number: int) -> None:
    """What a service does between two polls: a run ends, another begins, an old one comes alive again."""
    now = MINUTES_INTO_THE_DAY + number / 6
    board.put(f"run_new_{number:05}", "working", created=now, branch_name=f"agent/topic-{number % 40}")
    if number >= 3:
        board.put(f"run_new_{number - 3:05}", "completed", created=now - 0.5, updated=now)
    if number % 7 == 0 and number >= 14:
        board.put(f"run_new_{number - 14:05}", "queued", created=now - 14 / 6, updated=now)
    if number % 25 == 0:
        status = "degraded" if number % 50 else "ok"
        board.health = {**board.health, "github": {"status": status}}
    # As many as there were: what grows is time, not the board.
    for run_id in [run_id for run_id in board.runs if run_id < f"run_new_{number - 60:05}"][:2]:
        del board.runs[run_id]
    board.requests.clear()


async def live(scene: Scene, board: Board, polls: range) -> None:
    """Polls, with a reader who moves about."""
    for number in polls:
        happen(board, number)
        scene.clock.move(seconds=10)
        await scene.engine.refresh()
        await scene.pilot.press("j" if number % 3 else "pagedown")
        if number % 6 == 0:
            await walk(scene)


async def walk(scene: Scene) -> None:
    """Into every room and back, and everything opened and closed once."""
    for key in TABS:
        await scene.pilot.press(key)
        await scene.settle()
    for key in SHEETS:
        await scene.pilot.press(key)
        await scene.pilot.pause()
        await scene.pilot.press("escape")
        await scene.pilot.pause()
    await scene.pilot.press("home")
    await scene.settle()


async def settled(scene: Scene) -> Left:
    """What is left once toasts and threads have gone."""
    scene.app.clear_notifications()
    await scene.settle()
    gc.collect()
    return Left.of(scene)


async def test_polls_and_visits_leave_nothing_behind(staged: Staged, board: Board) -> None:
    """Tasks, listeners, timers, widgets, workers, subscriptions: as many after twelve polls as after six."""
    async with staged((100, 30)) as scene:
        await live(scene, board, range(1, 7))
        before = await settled(scene)
        await live(scene, board, range(7, 13))

        assert await settled(scene) == before
