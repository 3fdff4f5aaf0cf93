"""The part of the app that is the terminal's and the user's own: title, mouse, suspension, keys, commands."""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingsMap, BindingType

from app.config import Settings
from app.console.keys.key_queue import KeyTurnsApp
from app.console.terminal.window import WindowTitle, lend_mouse
from app.text import safe_text

if TYPE_CHECKING:
    from textual.driver import Driver


LONGEST_COPY: Final = 10_000
"""Characters: an id that was cut would be another one's."""
STILL_OPENING: Final = "Still opening; a moment."


class TerminalApp(KeyTurnsApp[None]):
    """An app that leaves the terminal as it found it, and the keys to whoever presses them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f8", "mouse", "mouse on/off", show=False, tooltip="Off: the terminal selects text", id="app.mouse"),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, tooltip="fg comes back", id="app.suspend"),
    ]

    not_open: str = STILL_OPENING
    """What is said to whoever wants something of the engine before there is one."""
    modes_before: list[Any] | None = None
    """The terminal's modes from before an early picture. None: Textual was the first to change them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.window_title = WindowTitle(None)
        self._mouse_is_ours = settings.console.mouse
        if self.no_color:
            from app.console.terminal.no_colour import Uncoloured

            # In place of Textual's own, which makes grey of colours: grey is one, too.
            self._filters[-1] = Uncoloured()
        if settings.keys:
            self.set_keymap(settings.keys)
        self._bind_commands()

    def take_terminal(self) -> None:
        """From now on the window's title says how things are; what is wrong with the user's own keys is told once."""
        self.window_title = WindowTitle(self._terminal)
        # Continued, nothing of it is on the terminal any more, although nothing has changed.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())
        if self._terminal is not None and self.modes_before is not None:
            self._terminal.attrs_before = self.modes_before  # type: ignore[attr-defined]  # a Linux terminal's
        if self.settings.keys or any(command.key for command in self.settings.commands):
            self.run_worker(self._check_keys())

    def say(self, message: str, *, severity: str = "information") -> None:
        """A toast; foreign parts of it must be safe text already."""
        self.notify(safe_text(message), severity=severity, markup=False, timeout=4)  # type: ignore[arg-type]

    def copy(self, text: str) -> None:
        """Copies a line of foreign text as safe text, and says it: what is pasted into a shell must not act there."""
        safe = safe_text(text, limit=LONGEST_COPY)
        self.copy_to_clipboard(safe)
        self.say(f"Copied {safe}")

    def action_mouse(self) -> None:
        """Gives the mouse to the terminal, to select text with, or takes it back."""
        if self._terminal is None:
            self.say("There is no terminal here to give the mouse to.")
            return
        self._mouse_is_ours = not self._mouse_is_ours
        lend_mouse(self._terminal, to_console=self._mouse_is_ours)
        self.say("The mouse works here again." if self._mouse_is_ours else "The mouse selects text; f8 takes it back.")

    def action_suspend_process(self) -> None:
        """Stops until the shell's `fg`."""
        self.window_title.give_back()
        super().action_suspend_process()

    def _handle_exception(self, error: Exception) -> None:
        # A screen that is taken down half-built complains of what it lacks; whoever left does not want to hear of it.
        if not self._exit:
            super()._handle_exception(error)

    @property
    def _terminal(self) -> "Driver | None":
        """Where escape sequences may be written. None: there is a browser or a test in its place."""
        driver = self._driver
        return driver if driver is not None and driver.can_suspend and not driver.is_headless else None

    def _bind_commands(self) -> None:
        own = [
            Binding(
                command.key, f"own_command({index})", safe_text(command.name, limit=40), show=False, id=f"own.{index}"
            )
            for index, command in enumerate(self.settings.commands)
            if command.key
        ]
        if own:
            self._bindings = BindingsMap.merge([self._bindings, BindingsMap(own)])

    async def _check_keys(self) -> None:
        from app.console.keys.keymap import problems

        # In a thread: it imports every screen.
        for problem in await asyncio.to_thread(problems, self.settings.keys, self.settings.commands):
            self.say(problem, severity="warning")
