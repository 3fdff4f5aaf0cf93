"""A failure of our own files becomes a notice: no key of any screen makes the console exit."""

import asyncio
from functools import partial
from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import Screen

from app.api.errors import UnreachableError
from app.results.git import GitError
from app.runs.screen import RunsScreen
from storage import RunwardenError
from tests.console.conftest import MESSAGE, SMALL, Disk, Scene, Staged
from tests.waiting import until

WAYS = (
    *("", "enter", "2", "3", "4", "5", "6", "7"),
    *("s", "t", "runs.export", "runs.save_view", "n", "3 n"),
)
"""The keys that open each screen, and some sheets and forms, from the list of runs."""


def kinds_of(screen: Screen[Any]) -> list[type]:
    """The widget's own classes, without Textual's."""
    return [kind for kind in type(screen).__mro__ if issubclass(kind, DOMNode) and kind.__module__.startswith("app.")]


def bindings_of(screen: Screen[Any]) -> list[Binding]:
    """The bindings that its own classes declare, one for each action; those that leave the screen come last."""
    ours = kinds_of(screen)
    found = [binding for kind in ours for binding in Binding.make_bindings(vars(kind).get("BINDINGS", ()))]
    actions = {binding.action: binding for binding in reversed(found)}
    return sorted(actions.values(), key=lambda binding: "escape" in binding.key)


def actor_of(screen: Screen[Any], action: str) -> type:
    """The class that defines the action; screens that inherit it behave the same."""
    name = f"action_{action.partition('(')[0].rpartition('.')[2]}"
    return next((kind for kind in kinds_of(screen) if name in vars(kind)), Screen)


async def there(scene: Scene, way: str) -> Screen[Any]:
    """Opens a screen from the initial runs, since earlier keys may have searched, grouped or marked."""
    await scene.to_all_runs()
    await scene.press(*way.split())
    return scene.app.screen


async def takes_messages(node: MessagePump) -> None:
    """Returns once its message loop has handled another message."""
    answered = asyncio.Event()
    node.call_later(answered.set)
    await until(answered.is_set, f"{node} takes messages")


async def press_all(scene: Scene, disk: Disk, way: str, pressed: set[tuple[type, str]]) -> None:
    """Presses every binding of a screen while our files fail; shared ones are pressed once."""
    screen = await there(scene, way)
    assert isinstance(screen, RunsScreen) is (way == ""), f"{way!r} leads nowhere"
    for binding in bindings_of(screen):
        key = (actor_of(screen, binding.action), binding.action)
        if key in pressed:
            continue
        pressed.add(key)
        if scene.app.screen is not screen:
            disk.fails = False
            screen = await there(scene, way)
        disk.fails = True
        await scene.app.run_action(binding.action, screen)
        await scene.pilot.pause()

        assert scene.app.is_running, f"{binding.key} behind {way!r} ended the console"

    disk.fails = False


async def test_no_key_crashes_the_console_while_files_fail(staged: Staged, disk: Disk) -> None:
    """Every binding of every screen is pressed, while every method of cache and ledger fails."""
    async with staged(SMALL) as scene:
        pressed: set[tuple[type, str]] = set()
        for way in WAYS:
            await press_all(scene, disk, way, pressed)


async def test_a_message_and_a_worker_have_the_same_boundary(staged: Staged, disk: Disk) -> None:
    """An exception in a handler or worker of a screen or of the app is reported, and everything continues."""
    async with staged() as scene:
        fail = scene.engine.cache.links
        screen = await there(scene, "s")
        disk.fails = True
        screen.call_later(fail)
        screen.run_worker(fail)
        screen.set_timer(0.001, fail)
        # A screen behind a sheet is laid out a moment later.
        await scene.shows(MESSAGE)

        disk.fails = False
        await takes_messages(screen)
        await there(scene, "")
        await scene.sync()
        assert MESSAGE not in scene.text
        disk.fails = True
        scene.app.call_later(fail)
        await scene.shows(MESSAGE)
        disk.fails = False

        async def fail_with(error: RunwardenError) -> None:
            raise error

        # A toast, since the rows on the screen may still be correct.
        for kind in (UnreachableError, GitError):
            scene.app.screen.call_later(fail_with, kind(f"{kind.__name__} is said."))
            scene.app.screen.run_worker(partial(fail_with, kind(f"{kind.__name__} is said.")))
            await scene.settle()

            assert scene.toasts.count(f"{kind.__name__} is said.") == 2
            assert scene.app.is_running
