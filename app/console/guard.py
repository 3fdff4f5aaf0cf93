"""The base of our apps: a failure that has a name becomes a notice, and a crash prints no values.

Textual has no setting for either. It ends the app at any exception of a handler, an action, a timer or a worker, and
its traceback shows the local variables, tokens among them. The two private methods of `BaseApp` are the only place that
all exceptions pass (`tests/console/test_error_boundary.py` and `tests/pty/test_endings.py` fail without them). An
exception that reaches a message loop also ends that loop, so events and actions are guarded before.
"""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from textual import events
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.worker import Worker, WorkerFailed

from app.console.process import SIGNAL_STATUS, SIGNALS
from app.console.terminal import TerminalDriver
from storage import RunwardenError

if TYPE_CHECKING:
    from app.console.feeds import RunWorker
    from app.console.session import Session

ResultT = TypeVar("ResultT")
CONSOLE_CSS: Final = Path(__file__).with_name("console.tcss")


class BaseApp(App[ResultT]):
    """An app in which no key, click, timer or worker that fails with a `RunwardenError` ends the console."""

    run_worker: "RunWorker"
    session: "Session | None" = None
    """Reports each `RunwardenError`. None: it ends the app."""
    own_filter: LineFilter | None = None
    """Changes the colours of each line after Textual's filters; without colours, in place of the last of them."""

    def __init__(self) -> None:
        super().__init__()
        self.disable_messages(Worker.StateChanged)  # Nobody uses these messages, and each poll starts several workers.

    def on_mount(self) -> None:
        """End on a signal, with 128 + its number as return code, and take the terminal up again after a stop."""
        loop = asyncio.get_running_loop()
        # Only the main thread can handle signals; a test runner may use another.
        with suppress(ValueError, RuntimeError):
            for number in SIGNALS:
                loop.add_signal_handler(number, partial(self.exit, return_code=SIGNAL_STATUS + number))
            if self.terminal is not None:
                loop.add_signal_handler(signal.SIGCONT, self.terminal.resume_application_mode)

    @property
    def terminal(self) -> TerminalDriver | None:
        """The driver that can write escape sequences. None: a browser or a test has another."""
        if isinstance(self._driver, TerminalDriver):
            return self._driver
        return None

    def get_driver_class(self) -> type[Driver]:
        """The driver; a browser and a test have their own."""
        usual = super().get_driver_class()
        return TerminalDriver if usual is LinuxDriver else usual

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        if self.own_filter is None:
            return filters
        # Textual's filter for NO_COLOR turns colours into grey, which is a colour too.
        return [*(filters[:-1] if self.no_color else filters), self.own_filter]

    def get_key_display(self, binding: Binding) -> str:
        """The key as it is shown; enter is a word, since many fonts lack Textual's sign for it."""
        if binding.key == "enter" and not binding.key_display:
            return "enter"
        return super().get_key_display(binding)

    def report_error(self, error: RunwardenError) -> None:
        """Report a failure.

        Raises:
            RunwardenError: The app has no session that could report it.
        """
        if self.session is None:
            raise error
        self.session.report_error(error)

    async def on_event(self, event: events.Event) -> None:
        if self.session is not None and isinstance(event, events.Key | events.MouseDown):
            self.session.note_input()
        try:
            await super().on_event(event)
        except RunwardenError as error:
            self.report_error(error)

    async def run_action(self, *arguments: Any, **options: Any) -> bool:
        try:
            return await super().run_action(*arguments, **options)
        except RunwardenError as error:
            self.report_error(error)
            return True

    def pop_screen(self) -> AwaitComplete:
        """Close the top screen, and first its workers: a late result would not find the screen's widgets."""
        self.workers.cancel_node(self.screen)
        return super().pop_screen()

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

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self.session is not None and isinstance(cause, RunwardenError):
            self.session.report_error(cause)
        # At the end, a screen that is being removed may fail on missing widgets; that does not concern the user.
        elif self.is_running and not self._exit:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        from rich.traceback import Traceback

        self.bell()
        self.panic(Traceback(show_locals=False, width=None))


async def guarded_event(screen: Screen[Any], event: events.Event) -> None:
    """Stand in for a screen's `on_event`: an error that reaches Textual would end the screen's message loop."""
    if isinstance(event, events.Compose):
        # Textual sets the classes of the breakpoints at the first resize, and then styles the whole screen again.
        for cells, points in zip(
            screen.app.size, (screen.HORIZONTAL_BREAKPOINTS, screen.VERTICAL_BREAKPOINTS), strict=True
        ):
            fitting = [name for least, name in sorted(points or ()) if least <= cells]
            screen.add_class(*fitting[-1:], update=False)
    try:
        await Screen.on_event(screen, event)
    except RunwardenError as error:
        if not isinstance(screen.app, BaseApp):
            raise
        screen.app.report_error(error)
