"""A day of the console in fast motion: thousands of polls with changes, and nothing is left over from any of them."""

import asyncio
import gc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.console.conftest import Scene, Staged
from tests.console.soak.day import Day, day, happen
from tests.run_board import Board

TABS = ("2", "3", "4", "5", "6", "7", "1")
SHEETS = ("question_mark", "colon", "n", "s")
"""Keys that open something over the room; escape closes it."""
HOUR = 360
"""Polls, one every ten seconds."""
WARM = 2 * HOUR + 1
"""What is remembered of drawing (by Textual and Rich, up to a bound each) has filled up by then, all but a rest."""
MOST_GROWTH_MB = 10.0
"""Of anonymous memory over eight hours: the rest of those caches, SQLite's up to their bound, the allocator's slack."""
MOST_LATE_GROWTH_MB = 3.0
"""Of it over the last four hours: what is bounded is full, and something kept from each poll would go on growing."""


@pytest.fixture
def today() -> Iterator[Day]:
    """A service whose runs change from poll to poll."""
    with day() as today:
        yield today


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


def anonymous_mb() -> float:
    """Memory that is the process's own."""
    gc.collect()
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def live(scene: Scene, goes_on: Callable[[int], None], polls: range, *, walk_every: int = 20) -> None:
    """Polls, with a reader who moves about."""
    for number in polls:
        goes_on(number)
        scene.clock.move(seconds=10)
        await scene.engine.refresh()
        await scene.pilot.press("j" if number % 3 else "pagedown")
        if number % 10 == 0:
            await scene.tick()
        if number % walk_every == 0:
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
        await live(scene, partial(happen, board), range(1, 7), walk_every=6)
        before = await settled(scene)
        await live(scene, partial(happen, board), range(7, 13), walk_every=6)

        assert await settled(scene) == before


@pytest.mark.campaign
@pytest.mark.timeout(3600)
async def test_a_day_of_polls_leaves_the_memory_flat(staged: Staged, today: Day) -> None:
    """Eight hours of a poll every ten seconds, after two hours in which what is remembered of drawing fills up."""
    async with staged((100, 30), base_url=today.base_url) as scene:
        await live(scene, today.goes_on, range(1, WARM))
        before, memory = await settled(scene), anonymous_mb()
        print(f"\nanonymous memory: {memory:.1f} MB")
        grown = [0.0]
        for hour in range(8):
            start = WARM + hour * HOUR
            await live(scene, today.goes_on, range(start, start + HOUR))
            after = await settled(scene)
            grown.append(anonymous_mb() - memory)
            print(f"after {hour + 1} h: {grown[-1]:+.1f} MB", flush=True)

        assert after == before
        assert grown[-1] < MOST_GROWTH_MB
        assert grown[-1] - grown[4] < MOST_LATE_GROWTH_MB
