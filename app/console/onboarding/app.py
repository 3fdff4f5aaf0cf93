"""The first screen as an app of its own: there is no profile yet that the console could be opened on."""

import os
from pathlib import Path
from typing import ClassVar

from app.console.keys.key_queue import KeyTurnsApp
from app.console.onboarding.screen import OnboardingScreen
from app.console.terminal.crash import end_without_values
from app.console.terminal.hangup import ending_with_terminal
from app.console.terminal.signals import restore_on_signals
from app.console.terminal.size import follow_window
from app.console.themes import DEFAULT, FEW_COLOURS, THEMES


class OnboardingApp(KeyTurnsApp[str]):
    """Ends with the new profile's name, or without one."""

    TITLE = "runwarden"
    CSS_PATH = "../console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(self, file: Path, variables: frozenset[str]) -> None:
        """See `OnboardingScreen`."""
        super().__init__()
        self._file = file
        self._variables = variables
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = FEW_COLOURS if self.console.color_system == "standard" else DEFAULT

    def on_mount(self) -> None:
        """One screen."""
        restore_on_signals(self)
        self.push_screen(OnboardingScreen(self._file, self._variables), self.exit)

    def _fatal_error(self) -> None:
        end_without_values(self)


def run_onboarding(file: Path) -> int:
    """Asks a person on this terminal for a first profile, and writes it.

    Args:
        file: The configuration to write.

    Returns:
        The exit code: 0 also where they left without one, otherwise as a signal or a crash ended it.
    """
    follow_window()
    app = OnboardingApp(file, frozenset(name for name, value in os.environ.items() if value))
    with ending_with_terminal():
        app.run()
    return app.return_code or 0
