"""The base of our apps: it answers keys in order, each on the screen that the key before it left.

Textual passes a key to the focused widget at once, and the widget acts on it some messages later. On a slow line
several keys arrive together: of `/dark`, the letters would act as keys of the screen before `/` focuses the search.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from rich.segment import Segments
from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from storage.base_error import RunwardenError
from widgets.cursor_view import CURSOR_ACTIONS
from widgets.frame.styled_once import CachedStylesheet, add_own_styles

if TYPE_CHECKING:
    from textual.await_remove import AwaitRemove
    from textual.dom import DOMNode
    from textual.screen import Screen
    from textual.widget import Widget

    from app.console.session import Session

ResultT = TypeVar("ResultT")

PATIENCE_S: Final = 1.0
"""The most time that one key is given before the next one is answered."""
ROWS_S: Final = 2.0
"""The most time that a key waits for the rows that it is about; then it is not answered."""
HOLD_S: Final = 10.0
"""Keys that need the engine wait this long for it, and all keys behind them."""
EARLY_ACTIONS: Final = CURSOR_ACTIONS | {"quit", "help", "leave", "dismiss", "scroll(1)", "scroll(-1)"}
"""Actions that need no engine: the cursor in the rows of the first frame, and the list of keys.

Not a search: until its rows are read, enter would open a run that it has not found.
"""
OPENING: Final = frozenset({"form", "pick"})
"""Groups of workers that end by opening a sheet; the next key belongs to that sheet."""
_ROUNDS: Final = 2
"""The first round answers the key itself, the second the messages that it caused."""


async def _unguarded(work: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
    return await work(*arguments, **options)


@dataclass(eq=False, slots=True)
class PendingKey:
    """A key or a paste being answered."""

    event: events.Key | events.Paste
    target: MessagePump | None = None
    """The node that had the focus when this round began."""
    rounds: int = _ROUNDS
    too_long: asyncio.TimerHandle | None = None
    waiting: asyncio.Task[None] | None = None
    """Waits for rows that are being read, or for a sheet that is about to open."""


class BaseApp(App[ResultT]):
    """An app that answers one key after the other, reports what fails, and prints no values when it crashes."""

    session: "Session | None" = None
    """Reports each `RunwardenError`. None: it ends the app."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stylesheet = CachedStylesheet(self.theme_variables)
        self._current_key: PendingKey | None = None
        """The key being answered, for which others wait."""
        self._queued: deque[events.Key | events.Paste] = deque()
        """Keys typed while another one is answered."""
        self._held: Literal["all", "those that need the engine"] | None = None
        """Keys that wait, and with each of them all behind it."""
        self._held_too_long: asyncio.TimerHandle | None = None
        self._when_early_keys_are_answered: Callable[[], object] | None = None
        self._early_too_long: asyncio.TimerHandle | None = None

    def hold_keys(self) -> None:
        """Queue all keys until `answer_early_keys` or `answer_keys` is called, or for `HOLD_S`."""
        self._held = "all"

    def answer_early_keys(self, then: Callable[[], object]) -> None:
        """Answer the queued keys that need no engine, up to the first one that does, and call `then`."""
        if self._held is not None:
            self._held = "those that need the engine"
        self._when_early_keys_are_answered = then
        # A key that repeats may come faster than it is answered.
        self._early_too_long = asyncio.get_running_loop().call_later(PATIENCE_S, self._end_early_keys)
        self.call_later(self._answer_next)

    def answer_keys(self) -> None:
        """Answer all queued keys."""
        if self._held_too_long is not None:
            self._held_too_long.cancel()
        self._held = self._held_too_long = None
        self.call_later(self._answer_next)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Lend the terminal, and take it back even if the body raises; Textual's own does not."""
        failure: Exception | None = None
        with super().suspend():
            try:
                yield
            except Exception as error:  # noqa: BLE001 — raised again below
                failure = error
        if failure is not None:
            raise failure

    async def on_event(self, event: events.Event) -> None:
        """Queue a key behind the one before it."""
        if isinstance(event, (events.InputEvent, events.Paste)) and not self._screen_stack and self._held is None:
            # The console is closing: queued keys have nothing left to act on.
            event.stop()
        elif not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
        else:
            is_first = not self._queued
            self._queued.append(event)
            if is_first and (key := self._next_key()) is not None:
                await self._answer(key)
            elif self._held is not None and self._held_too_long is None:
                self._held_too_long = asyncio.get_running_loop().call_later(HOLD_S, self.answer_keys)

    def _next_key(self) -> PendingKey | None:
        """Take the next key from the queue. None: one is being answered, or the next one has to wait."""
        if self._current_key is not None or not self._queued:
            return None
        if self._held == "all" or (self._held is not None and self._needs_engine(self._queued[0])):
            return None
        self._current_key = PendingKey(self._queued.popleft())
        if not self._queued and self._held_too_long is not None:
            self._held_too_long.cancel()
            self._held_too_long = None
        return self._current_key

    async def _answer_next(self) -> None:
        """Answer the next key; only as a callback, since the focus may still move for the key before."""
        if (key := self._next_key()) is not None:
            await self._answer(key)
        elif self._current_key is None:
            self._end_early_keys()

    def _end_early_keys(self) -> None:
        if self._early_too_long is not None:
            self._early_too_long.cancel()
        then, self._when_early_keys_are_answered = self._when_early_keys_are_answered, None
        if then is not None and not self._exit:
            then()

    def _needs_engine(self, event: events.Key | events.Paste) -> bool:
        if isinstance(event, events.Paste) or not self._screen_stack:
            return True
        if event.key == "ctrl+q":
            return False
        active = self.screen.active_bindings.get(event.key)
        return active is None or active.binding.action.removeprefix("app.") not in EARLY_ACTIONS

    async def _answer(self, key: PendingKey) -> None:
        """Answer a key, once the rows that it is about are on show."""
        if (rows := self._awaited_rows(key.event)) is None:
            await self._answer_now(key)
        else:
            key.waiting = asyncio.create_task(self._wait_for_rows(key, rows))

    def _awaited_rows(self, event: events.Key | events.Paste) -> Callable[[], Awaitable[object]] | None:
        if isinstance(event, events.Paste) or not self._screen_stack:
            return None
        if (look := getattr(self.screen, "awaited_rows", None)) is None:
            return None
        # Not the active bindings: what they can do depends on the rows.
        chain = self.screen._binding_chain  # noqa: SLF001 — without the keys of a text that has the focus
        bound = [binding for _, bindings in chain for binding in bindings.key_to_bindings.get(event.key, ())]
        return look(bound[0].action) if bound else None

    async def _wait_for_rows(self, key: PendingKey, rows: Callable[[], Awaitable[object]]) -> None:
        screen, focused = self.screen, self.focused

        def is_there() -> bool:
            return bool(self._screen_stack) and self.screen is screen and self.focused is focused

        is_answered = False
        try:
            await asyncio.wait_for(rows(), ROWS_S)
            # Behind a click on another tab or part of the screen the key would act there.
            is_answered = is_there() and self.call_later(self._answer_now, key)
        except TimeoutError:
            if is_there():
                self._drop_keys_about_rows()
        finally:
            if not is_answered:
                self._end_key(key)

    def _drop_keys_about_rows(self) -> None:
        """Drop the next keys too: each would wait as long, and with them the key that gives the reading up."""
        while self._queued and self._awaited_rows(self._queued[0]) is not None:
            self._queued.popleft()
        self.notify("Keys were not answered: the rows are still being read. Press them again.", severity="warning")

    async def _answer_now(self, key: PendingKey) -> None:
        key.too_long = asyncio.get_running_loop().call_later(PATIENCE_S, self._end_key, key)
        key.target = self._focused_node
        await super().on_event(key.event)
        self._continue_after(key, key.target if key.event.is_forwarded else self)

    def _continue_after(self, key: PendingKey, node: MessagePump) -> None:
        """Continue with the key once this node has handled all messages that it has received so far."""
        if not node.call_later(self._handled, key, node):
            # It is closing and handles no more messages.
            self._handled(key, node)

    def _handled(self, key: PendingKey, node: MessagePump) -> None:
        parent = node._parent  # noqa: SLF001 — the way that a key itself takes
        if node is not self and parent is not None:
            # Textual stops each key at the screen as well, after handing it to the app.
            is_stopped = key.event._stop_propagation and parent is not self  # noqa: SLF001 — it has no other name
            is_answered = is_stopped and key.rounds == _ROUNDS
            key.rounds = 1 if is_answered else key.rounds
            self._continue_after(key, self if is_answered else parent)
            return
        before, key.target = key.target, self._focused_node
        key.rounds -= 1
        if key.rounds > 0 or key.target is not before:
            self._continue_after(key, key.target)
        elif opening := [worker for worker in self.workers if worker.group in OPENING and worker.is_running]:
            key.waiting = asyncio.create_task(self._wait_for_sheets(key, opening))
        else:
            self._end_key(key)

    async def _wait_for_sheets(self, key: PendingKey, sheets: list[Worker[Any]]) -> None:
        for sheet in sheets:
            # Its failure is reported elsewhere; only its end matters here.
            with suppress(WorkerFailed, WorkerCancelled):
                await sheet.wait()
        self._continue_after(key, self)

    def _end_key(self, key: PendingKey) -> None:
        if key is not self._current_key:
            return
        if key.too_long is not None:
            key.too_long.cancel()
        self._current_key = None
        self.call_later(self._answer_next)

    @property
    def _focused_node(self) -> MessagePump:
        if not self._screen_stack:
            return self
        return self.focused or self.screen

    # The boundary for failures of keys, workers and all else for which Textual would end the console. Screens, sheets
    # and forms have it around their own messages: a failure there ends their message loop before it gets here.

    @property
    def _guard(self) -> Callable[..., Awaitable[Any]]:
        return _unguarded if self.session is None else self.session.guard

    async def _dispatch_message(self, message: Message) -> None:
        await self._guard(super()._dispatch_message, message)

    async def run_action(self, *arguments: Any, **options: Any) -> bool:
        """Run a key's or a click's action; a `RunwardenError` becomes a notice."""
        return await self._guard(super().run_action, *arguments, **options) is not False

    def run_worker(self, work: Any, *arguments: Any, **options: Any) -> Worker[Any]:
        """Run this coroutine function in the background, within the same boundary."""
        # The guard is bound now: after a switch of profiles, the earlier session still reports failures of its work.
        return super().run_worker(partial(self._guard, work), *arguments, **options)

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self.session is not None and isinstance(cause, RunwardenError):
            self.session.failed(cause)
        # At the end, a screen that is being removed may fail on missing widgets; that does not concern the user.
        elif self.is_running and not self._exit:
            super()._handle_exception(error)

    def _load_screen_css(self, screen: "Screen[Any]") -> None:
        add_own_styles(screen, self)

    def _prune(self, *nodes: "Widget", parent: "DOMNode | None" = None) -> "AwaitRemove":
        # Workers end with their screen: Textual removes its widgets first, and a late result would not find them.
        for node in nodes:
            self.workers.cancel_node(node)
        return super()._prune(*nodes, parent=parent)

    def _fatal_error(self) -> None:
        # Textual's own traceback prints locals, tokens among them.
        from rich.traceback import Traceback

        self.bell()
        trace = Traceback(show_locals=False, width=None)
        self._exit_renderables.append(Segments(self.console.render(trace, self.console.options)))
        self._close_messages_no_wait()
