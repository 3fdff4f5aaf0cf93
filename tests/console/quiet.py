"""When a console is quiet: all messages answered and all short waits over, however slow the machine.

What is on the screen is painted when a test looks at it, when its console begins and ends, and before news comes.

Textual's own pilot watches how busy the processor is, 20 ms at a time, twice a key: slow on a quiet machine, and blind
on a busy one, where a console that was not given any time looks idle.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import RenderableType
from rich.segment import Segment
from textual._compositor import Compositor
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.events import MouseEvent
from textual.pilot import Pilot, WaitForScreenTimeout
from textual.worker import WorkerCancelled

MOMENT_S = 0.1
"""A timer of at most this is a part of the answer to a key, such as the pause before a search."""
ENOUGH_S = 0.5
"""A key waits so long for work in the background, which may hang on purpose; `quiet` waits for all of it."""
CALM_ROUNDS = 2
"""An answer may have been on its way to a queue, in the loop's own hands, while the queues were looked at."""

RENDER_UPDATE = Compositor.render_update


def lines(app: App[Any]) -> list[str]:
    """What is on the screen, line by line."""
    return ["".join(segment.text for segment in strip) for strip in strips(app)]


def strips(app: App[Any]) -> list[list[Segment]]:
    """What is on the screen, line by line, with its colours."""
    paint(app)
    return [list(strip) for strip in app.screen._compositor.render_strips()]


async def wheel(pilot: Pilot[Any], widget: Any, offset: tuple[int, int], event: type[MouseEvent]) -> None:
    """One notch of the mouse's wheel over a widget."""
    await pilot._post_mouse_events([event], widget, offset, times=1)
    await quiet(pilot.app)


def toasts(app: App[Any], part: str = "message") -> list[str]:
    """What the toasts say, in full; or their titles, of those that have one."""
    return [said for notification in app._notifications if (said := getattr(notification, part))]


async def answered(app: App[Any]) -> None:
    """Waits until every message of the screen on show is answered."""
    calm = 0
    while calm < CALM_ROUNDS and app.is_running and app.screen_stack:
        for _ in range(3):
            await asyncio.sleep(0)
        if not await Pilot(app)._wait_for_screen(timeout=60) or not app.screen_stack:
            return
        app.screen._on_timer_update()
        calm = 0 if _is_busy(app) else calm + 1


async def all_answered(pilot: Pilot[Any], timeout: float = 120.0) -> bool:  # noqa: ASYNC109 — Textual's own
    """In the place of Textual's wait for the screen, which gives every node something to do: asks only those at work.

    False where there is no screen or the console has failed, and an error where a node hangs, as there.
    """
    app = pilot.app
    if not app.screen_stack:
        return False
    asked, unanswered = asyncio.Event(), 0

    def answer() -> None:
        nonlocal unanswered
        unanswered -= 1
        if not unanswered:
            asked.set()

    for node in (app, *app.screen.walk_children(with_self=True)):
        unanswered += not _waits(node) and node.call_later(answer)
    if not unanswered:
        return True
    either = [asyncio.create_task(asked.wait()), asyncio.create_task(app._exception_event.wait())]
    done, pending = await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if not done:
        raise WaitForScreenTimeout(f"{unanswered} nodes do not answer")
    return not unanswered


def _waits(node: Any) -> bool:
    """Whether a node has answered all its messages and waits for the next one."""
    queue = node._message_queue
    return not queue.values and bool(queue.ready_event._waiters)


async def quiet(app: App[Any]) -> None:
    """Waits until nothing is on its way any more, work in the background and short timers included."""
    while True:
        await answered(app)
        if running := [worker for worker in app.workers if not worker.is_finished]:
            for worker in running:
                # A newer one of its kind took its place.
                with suppress(WorkerCancelled):
                    await worker.wait()
        elif timers := [timer for node in (app, *app._registry) for timer in node._timers if _is_short(timer)]:
            await asyncio.wait([timer._task for timer in timers], timeout=MOMENT_S)
        else:
            return


def put_off(compositor: Compositor, *, full: bool = False, **how: Any) -> RenderableType | None:
    """In the place of painting each frame, which no terminal gets; what has changed stays known. Pictures are whole."""
    return RENDER_UPDATE(compositor, full=True, **how) if full else None


def paint(app: App[Any]) -> None:
    """Paints what has changed since the last time, once for all frames on the way; what fails of it, fails here."""
    if app.screen_stack:
        RENDER_UPDATE(app.screen._compositor, screen_stack=app._background_screens)


def _is_short(timer: Any) -> bool:
    if timer._task is None:
        return False
    return timer._repeat == 0 and timer._interval <= MOMENT_S and timer._active.is_set() and not timer._task.done()


def _is_busy(app: App[Any]) -> bool:
    screen = app.screen
    return (
        screen._layout_required
        or bool(screen._dirty_widgets or screen._callbacks)
        or any(node._next_callbacks or node._message_queue.values for node in (app, *app._registry))
    )


async def idle(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """In the place of Textual's look at the processor."""
    del min_sleep, max_sleep
    app = active_app.get()
    await answered(app)
    if working := [worker._task for worker in app.workers if worker._task is not None and not worker.is_finished]:
        await asyncio.wait(working, timeout=ENOUGH_S)
        await answered(app)


def kept(parse: Callable[..., list[RuleSet]]) -> Callable[..., list[RuleSet]]:
    """Parses each style sheet once for all apps; Textual keeps them for each app."""
    known: dict[tuple[Any, ...], list[RuleSet]] = {}
    last: tuple[Any, frozenset[Any]] = (None, frozenset())

    def rules(sheet: Stylesheet, *source: Any, **more: Any) -> list[RuleSet]:
        nonlocal last
        # Some fifty sheets are parsed one after the other with the same variables, which are replaced as a whole.
        if sheet._variables is not last[0]:
            last = (sheet._variables, frozenset(sheet._variables.items()))
        key = (last[1], source, *more.values())
        if key not in known:
            known[key] = parse(sheet, *source, **more)
        return known[key]

    return rules
