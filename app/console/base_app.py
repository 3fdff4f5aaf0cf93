"""Keys take turns: each one meets the screen that the key before it left, however fast they come.

Textual hands a key to whatever has the focus at once, and acts on it some messages later. On a slow line several keys
arrive together: of `/dark` only the first would reach the screen, and the rest would press its keys.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rich.segment import Segments
from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from storage.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from textual.await_remove import AwaitRemove
    from textual.dom import DOMNode
    from textual.widget import Widget

Result = TypeVar("Result")

PATIENCE_S: Final = 1.0
"""A screen that waits for something while it answers a key must not hold back the others for ever."""
HOLD_S: Final = 10.0
"""Keys wait so long for what they act on to be opened; one that quits, typed before all others, does not."""
QUITS: Final = frozenset({"q", "ctrl+q"})
OPENING: Final = frozenset({"form", "pick"})
"""Groups of workers that end with a sheet over the screen, to which the next key belongs."""
_ROUNDS: Final = 2
"""In the first round the key itself is answered, in the second also what was announced because of it."""


@dataclass(eq=False, slots=True)
class Turn:
    """A key or a paste that is being answered."""

    event: events.Key | events.Paste
    asked: MessagePump | None = None
    """The node that had the keys when this round began."""
    rounds: int = _ROUNDS
    too_long: asyncio.TimerHandle | None = None
    waiting: asyncio.Task[None] | None = None
    """For a sheet that is on its way."""


class BaseApp(App[Result]):
    """An app that answers one key after the other, and whose crash prints no values."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turn: Turn | None = None
        """None: no key waits for another."""
        self._ahead: deque[events.Key | events.Paste] = deque()
        """Typed while the turn was another's."""
        self._held = Turn(events.Key("", None))
        """Has the turn while no key can be answered."""

    def hold_keys(self) -> None:
        """Have keys wait, in order, until `answer_keys`, or for a while."""
        self._turn = self._held = Turn(events.Key("", None))

    def answer_keys(self) -> None:
        """Answer the keys that were held, if they were."""
        self._end_turn(self._held)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Lend the terminal; it is taken back whatever the body raises, which Textual's own forgets to do."""
        failure: Exception | None = None
        with super().suspend():
            try:
                yield
            except Exception as error:  # noqa: BLE001 — raised again below
                failure = error
        if failure is not None:
            raise failure

    async def on_event(self, event: events.Event) -> None:
        """Have a key wait for the one before it."""
        is_held = self._turn is self._held
        if isinstance(event, (events.InputEvent, events.Paste)) and not self._screen_stack and not is_held:
            # The console is closing: what was still under way has nothing left to act on.
            event.stop()
        elif not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
        elif self._turn is None or (
            is_held and self._screen_stack and not self._ahead and getattr(event, "key", "") in QUITS
        ):
            self._turn = Turn(event)
            await self._answer(self._turn)
        else:
            self._ahead.append(event)
            if is_held and self._held.too_long is None:
                self._held.too_long = asyncio.get_running_loop().call_later(HOLD_S, self.answer_keys)

    async def _answer(self, turn: Turn) -> None:
        turn.too_long = asyncio.get_running_loop().call_later(PATIENCE_S, self._end_turn, turn)
        turn.asked = self._first_asked
        await super().on_event(turn.event)
        self._after(turn, turn.asked if turn.event.is_forwarded else self)

    def _after(self, turn: Turn, node: MessagePump) -> None:
        """Come back once this node has dealt with all that it was sent up to now."""
        if not node.call_later(self._dealt_with, turn, node):
            # It is closing: nothing is dealt with there any more.
            self._dealt_with(turn, node)

    def _dealt_with(self, turn: Turn, node: MessagePump) -> None:
        above = node._parent  # noqa: SLF001 — the way that a key itself takes
        if node is not self and above is not None:
            is_answered = turn.event._stop_propagation  # noqa: SLF001 — Textual has no other name for it
            turn.rounds = 1 if is_answered else turn.rounds
            self._after(turn, self if is_answered else above)
            return
        before, turn.asked = turn.asked, self._first_asked
        turn.rounds -= 1
        if turn.rounds > 0 or turn.asked is not before:
            self._after(turn, turn.asked)
        elif on_their_way := [worker for worker in self.workers if worker.group in OPENING and worker.is_running]:
            turn.waiting = asyncio.create_task(self._open_first(turn, on_their_way))
        else:
            self._end_turn(turn)

    async def _open_first(self, turn: Turn, sheets: list[Worker[Any]]) -> None:
        for sheet in sheets:
            # What went wrong with it is said elsewhere; here it only counts that it is over.
            with suppress(WorkerFailed, WorkerCancelled):
                await sheet.wait()
        self._after(turn, self)

    def _end_turn(self, turn: Turn) -> None:
        if turn is not self._turn:
            return
        if turn.too_long is not None:
            turn.too_long.cancel()
        self._turn = Turn(self._ahead.popleft()) if self._ahead else None
        if self._turn is not None:
            self.call_later(self._answer, self._turn)

    @property
    def _first_asked(self) -> MessagePump:
        if not self._screen_stack:
            return self
        return self.focused or self.screen

    def _prune(self, *nodes: "Widget", parent: "DOMNode | None" = None) -> "AwaitRemove":
        # What reads for a screen ends with it: Textual takes its parts away first, and a result would not find them.
        for node in nodes:
            self.workers.cancel_node(node)
        return super()._prune(*nodes, parent=parent)

    def _fatal_error(self) -> None:
        # Textual's own prints locals: tokens may be among them.
        from rich.traceback import Traceback

        self.bell()
        trace = Traceback(show_locals=False, width=None)
        self._exit_renderables.append(Segments(self.console.render(trace, self.console.options)))
        self._close_messages_no_wait()
