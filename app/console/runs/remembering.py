"""Remembering while the console is at work: known at once, written off the loop, one change after the other."""

import asyncio
from collections.abc import Callable

from app.console.latest import Latest, Start
from app.console.runs.remembered import PreferencesError, PreferencesFile, Remembered

Change = Callable[[Remembered], Remembered]


class PreferencesWriter:
    """What is remembered now, and what is still to be written."""

    def __init__(self, memory: PreferencesFile, start: Start, failed: Callable[[str], None]) -> None:
        """Reads the file.

        Args:
            memory: The file.
            start: Runs a coroutine in the background.
            failed: Is told, once, why nothing can be remembered.
        """
        self.now = memory.read()
        self._memory = memory
        self._failed = failed
        self._has_failed = False
        self._pending: list[Change] = []
        self._writer = Latest(self._write, start)

    def change(self, change: Change) -> None:
        """Remembers something else from now on."""
        after = change(self.now)
        if after != self.now:
            self.now = after
            self._pending.append(change)
            self._writer.ask()

    async def _write(self) -> None:
        pending, self._pending = self._pending, []

        def all_of_them(remembered: Remembered) -> Remembered:
            for change in pending:
                remembered = change(remembered)
            return remembered

        try:
            await asyncio.to_thread(self._memory.change, all_of_them)
        except PreferencesError as error:
            if not self._has_failed:
                self._has_failed = True
                self._failed(str(error))
