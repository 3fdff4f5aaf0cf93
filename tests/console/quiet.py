"""Driving a console: a key waits until it is answered, and no longer.

Textual's pilot watches how busy the processor is, 20 ms at a time and twice a key. That is slow on a quiet machine, and
wrong on a busy one, where a console that gets no processor time looks idle. Here, the event loop itself reports when it
has nothing left to run.
"""

import asyncio
import unicodedata
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from selectors import DefaultSelector, SelectorKey
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from textual import events, keys
from textual.app import App
from textual.css import stylesheet
from textual.css.model import RuleSet
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea
from textual.worker import WorkerCancelled

from storage.thread import DatabaseThread
from tests.waiting import COLD_START_S, until
from widgets.kit import NO_KEY

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

T = TypeVar("T")

RESIZE_S = 0.009
FRAME_S = 0.02
MOMENT_S = 0.1
"""Timers up to this many seconds belong to an answer: the pause before a search or a resize, but not the next frame."""
MAX_FRAMES = 8
"""A screen behind a sheet may repaint with every frame forever; no key needs more frames than this."""
ENOUGH_S = 0.5
"""How long a pilot's key waits for background work, which may hang on purpose."""
UNKEYED = ("runs.", "run.", "facts.")
"""How the ids of actions begin that have no key."""


class _Selector(DefaultSelector):
    """Asks the loop before it waits: `before_waiting` returns whether the loop has something to run by now."""

    def __init__(self, before_waiting: Callable[[bool], bool]) -> None:
        super().__init__()
        self._before_waiting = before_waiting

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        ready = super().select(0)
        has_work = bool(ready) or (timeout is not None and timeout <= 0)
        if self._before_waiting(has_work):
            return ready
        return super().select(timeout)


class QuietLoop(asyncio.SelectorEventLoop):
    """Reports when nothing is left to run: no callback, no job on a thread and no short timer."""

    def __init__(self) -> None:
        self.rounds = 0
        """How often the loop looked for something to run; between two looks, nothing on a screen changes."""
        self._resting: asyncio.Future[None] | None = None
        self._has_worked = False
        self._jobs = 0
        self._moments: list[asyncio.TimerHandle] = []
        self._waited: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._watched = _Selector(self._before_waiting)
        super().__init__(self._watched)

    @property
    def listens(self) -> bool:
        """Whether anyone waits for a socket besides the loop's own."""
        return len(self._watched.get_map()) > 1

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        """Schedule as usual, and count the short timers."""
        handle = super().call_at(when, *arguments, **options)
        delay_s = when - self.time()
        if (delay_s <= RESIZE_S or FRAME_S < delay_s <= MOMENT_S) and not self._repeats():
            self._moments.append(handle)
        return handle

    def run_in_executor(self, executor: Any, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run as usual, and count the jobs."""
        return self.counted(super().run_in_executor(executor, call, *arguments))

    def counted(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """Count the future as a job until it is done."""
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    async def rest(self, at_most_s: float | None = None) -> bool:
        """Wait until nothing is left to run, or for this long; return whether anything ran, and all of it ended."""
        self._resting, self._has_worked = self.create_future(), False
        try:
            await asyncio.wait_for(self._resting, at_most_s)
        except TimeoutError:
            return False
        return self._has_worked

    def _repeats(self) -> bool:
        """Whether the running task has waited before, as one that animates an indicator does."""
        task = asyncio.current_task(self) if self.is_running() else None
        if task is None or task in self._waited:
            return task is not None
        self._waited.add(task)
        return False

    def _job_done(self, _: object) -> None:
        self._jobs -= 1

    def _before_waiting(self, has_work: bool) -> bool:
        self.rounds += 1
        if self._resting is None or has_work or self._jobs or self._has_moments():
            self._has_worked = True
            return has_work
        if not self._resting.done():
            self._resting.set_result(None)
        self._resting = None
        return True

    def _has_moments(self) -> bool:
        now = self.time()
        self._moments = [handle for handle in self._moments if handle.when() > now and not handle.cancelled()]
        return bool(self._moments)


class QuietPilot(Pilot[Any]):
    """Waits for the effects of a key or a click, instead of for the processor."""

    async def press(self, *pressed: str) -> None:
        """Press keys, each after the one before is answered."""
        for key in pressed:
            self.app.post_message(key_event(key))
            await self.pause()

    async def pause(self, delay: float | None = None) -> None:
        """Wait until all is answered; for background work, half a second at most."""
        await answered(self.app, ENOUGH_S)
        if running := _running(self.app):
            await asyncio.wait([asyncio.ensure_future(_ended(worker)) for worker in running], timeout=ENOUGH_S)
            await answered(self.app, ENOUGH_S)


def key_event(key: str) -> events.Key:
    """The event of a key, by its character or its name."""
    if len(key) > 1 or key.isalnum():
        return events.Key(key, keys.key_to_character(keys.REPLACED_KEYS.get(key, key)))
    name = unicodedata.name(key).lower().replace("-", "_").replace(" ", "_")
    return events.Key(keys.KEY_NAME_REPLACEMENTS.get(name, name), key)


async def answered(app: App[Any], at_most_s: float | None = None) -> None:
    """Wait until every message is answered and the screen is laid out, or for this long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuietLoop)
    await loop.rest(at_most_s)
    for _ in range(MAX_FRAMES):
        if not (app.is_running and app.screen_stack):
            return
        if loop.listens and at_most_s is None:
            await _handlers_end(app)
        # Paint the next frame now, instead of after Textual's sixtieth of a second.
        await Pilot(app).wait_for_animation()
        if not await loop.rest(at_most_s):
            return


async def _handlers_end(app: App[Any]) -> None:
    """Ask the nodes that may have one: a handler that waits for a service leaves the loop idle."""
    asked: set[MessagePump] = set()
    for node in (app, *app.screen.walk_children(with_self=True)):
        if type(node).__module__.startswith("app.") and node.call_later(lambda node=node: asked.discard(node)):
            asked.add(node)
    await until(lambda: not (asked and app.is_running), "the handlers end", COLD_START_S, saw=lambda: asked)


async def quiet(app: App[Any]) -> None:
    """Wait until nothing is in progress, including background work."""
    await answered(app)
    ends: dict[Any, asyncio.Future[None]] = {}
    while running := _running(app):
        ends |= {worker: asyncio.ensure_future(_ended(worker)) for worker in running if worker not in ends}
        # A worker may not end at all: it may open a sheet and wait for the answer.
        waited = [ends[worker] for worker in running]
        await asyncio.wait(waited, timeout=MOMENT_S, return_when=asyncio.FIRST_COMPLETED)
        await answered(app)


def _running(app: App[Any]) -> list[Any]:
    """The unfinished workers; none if each of them waits for the answer of an open sheet."""
    running = [worker for worker in app.workers if not worker.is_finished]
    return running if len(running) > _ASKING.get(app, 0) else []


async def _ended(worker: Any) -> None:
    # A newer worker of its kind may have replaced it.
    with suppress(WorkerCancelled):
        await worker.wait()


@dataclass
class Driver:
    """A running app and its user, who presses keys, waits for what they do, and reads the screen."""

    pilot: Pilot[Any]
    painted: tuple[int, list[str]] = field(default=(0, []), kw_only=True)
    """The lines of the screen, and the round of the loop in which they were painted."""

    @property
    def app(self) -> Any:
        return self.pilot.app

    @property
    def screen(self) -> Any:
        return self.app.screen

    @property
    def lines(self) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, QuietLoop)
        # A test that asserts several things about one screen paints it once.
        if self.painted[0] != loop.rounds:
            self.painted = loop.rounds, lines(self.app)
        return self.painted[1]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """The screen's words as one line, without frames and line breaks."""
        return " ".join(self.text.replace("│", " ").replace("▌", " ").split())

    async def settle(self) -> None:
        """Waits until nothing is in progress."""
        await quiet(self.app)

    async def shows(self, *words: str) -> None:
        """Waits until all the words are on the screen, however its lines break."""

        async def are_shown() -> bool:
            await self.settle()
            shown = self.words
            return all(word in shown for word in words)

        await until(are_shown, f"the screen shows {words}", saw=lambda: self.text)

    async def press(self, *keys: str) -> None:
        """Press keys, each after the app has answered the one before, including reads in the background.

        Characters for a field come at once, as from a fast typist. The id of an action without a key stands for a key
        that a user configured.
        """
        pressed = deque(keys)
        while pressed:
            burst = [pressed.popleft()]
            if isinstance(self.app.focused, Input | TextArea):
                while pressed and len(burst[-1]) == len(pressed[0]) == 1:
                    burst.append(pressed.popleft())
            for key in burst:
                self.app.post_message(key_event(f"{NO_KEY}{key}" if key.startswith(UNKEYED) else key))
            await self.settle()

    async def fill(self, text: str) -> None:
        """Fills fields one after the other, each by a paste; a tab moves to the next field."""
        for number, part in enumerate(text.split("\t")):
            if number:
                await self.press("tab")
            if part:
                self.app.post_message(events.Paste(part))
                await self.settle()


def lines(app: App[Any]) -> list[str]:
    """The lines of the screen."""
    return _shown(app, styles=False).split("\n")


def strips(app: App[Any]) -> list[list[Segment]]:
    """The lines of the screen, with colours."""
    console = Console(width=1000)
    shown = _shown(app, styles=True).split("\n")
    return [list(Text.from_ansi(line).render(console)) for line in shown]


def _shown(app: App[Any], *, styles: bool) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Console, "export_svg", lambda console, **_: console.export_text(styles=styles))
        return app.export_screenshot().removesuffix("\n")


def count_database_jobs(patch: pytest.MonkeyPatch) -> None:
    """Count the jobs of databases on a quiet loop, as the loop counts those of its executors."""
    submit = DatabaseThread.submit

    def submitted(thread: DatabaseThread, call: Callable[[], T]) -> asyncio.Future[T]:
        future, loop = submit(thread, call), asyncio.get_running_loop()
        return loop.counted(future) if isinstance(loop, QuietLoop) else future

    patch.setattr(DatabaseThread, "submit", submitted)


def paint_on_demand(patch: pytest.MonkeyPatch) -> None:
    """Widgets draw only when a test or a mouse event reads the screen, so intermediate frames are skipped."""
    render = Widget.render_lines

    def painted(ask: Callable[..., T]) -> Callable[..., T]:
        def asking(*arguments: Any, **how: Any) -> T:
            with pytest.MonkeyPatch.context() as painting:
                painting.setattr(Widget, "render_lines", render)
                return ask(*arguments, **how)

        return asking

    patch.setattr(App, "export_screenshot", painted(App.export_screenshot))
    patch.setattr(Screen, "get_style_at", painted(Screen.get_style_at))
    patch.setattr(Widget, "render_lines", lambda *_: [])


_TOKENS: dict[frozenset[tuple[str, str]], dict[str, Any]] = {}
_RULES: dict[tuple[Any, ...], list[RuleSet]] = {}


def parse_style_sheets_once(patch: pytest.MonkeyPatch) -> None:
    """Parse each style sheet once for all apps: by default, each app parses fifty."""
    tokenize, parse = stylesheet.tokenize_values, stylesheet.parse
    tokens, rules = _TOKENS, _RULES

    def tokenized(variables: dict[str, str]) -> dict[str, Any]:
        key = frozenset(variables.items())
        if key not in tokens:
            tokens[key] = tokenize(variables)
        return tokens[key]

    def parsed(*source: Any, variable_tokens: dict[str, Any], **how: Any) -> list[RuleSet]:
        key = (id(variable_tokens), source, *how.values())
        if key not in rules:
            rules[key] = list(parse(*source, variable_tokens=variable_tokens, **how))
        return rules[key]

    patch.setattr(stylesheet, "tokenize_values", tokenized)
    patch.setattr(stylesheet, "parse", parsed)


_ASKING: WeakKeyDictionary[App[Any], int] = WeakKeyDictionary()
TOASTS: WeakKeyDictionary[App[Any], list[tuple[str, str]]] = WeakKeyDictionary()
"""The titles and messages of the toasts so far."""


def note_what_is_said_and_asked(patch: pytest.MonkeyPatch) -> None:
    """Record each toast, even if the app shows none, and count the workers that wait for a sheet's answer."""
    notify, ask = App.notify, App.push_screen_wait

    def noting(app: App[Any], message: str, *, title: str = "", **how: Any) -> None:
        TOASTS.setdefault(app, []).append((title, message))
        notify(app, message, title=title, **how)

    async def asking(app: App[Any], *sheet: Any) -> Any:
        _ASKING[app] = _ASKING.get(app, 0) + 1
        try:
            return await ask(app, *sheet)
        finally:
            _ASKING[app] -= 1

    patch.setattr(App, "notify", noting)
    patch.setattr(App, "push_screen_wait", asking)
