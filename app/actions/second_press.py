"""The second press of a key that sends: it counts only after the preview was seen."""

from collections.abc import Callable
from time import monotonic
from typing import ClassVar


class SecondPress:
    """Decides whether a press of the send key counts: not while the key is held or before the preview was seen."""

    PAUSE_S: ClassVar[float] = 0.8
    """Longer than a terminal takes to begin repeating a held key."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Prepare; `clock` returns seconds."""
        self._clock = clock
        self._since_s: float | None = None
        """When the preview was painted or the key was pressed last; None: it is not painted yet."""

    def forget(self) -> None:
        """Start again: something else is about to be shown."""
        self._since_s = None

    def painted(self) -> None:
        """Start the pause: the preview is on the screen."""
        self._since_s = self._clock()

    def press(self) -> bool:
        """Take a press and return whether it counts; each press restarts the pause, so that a held key never sends."""
        if self._since_s is None:
            return False
        before_s, self._since_s = self._since_s, self._clock()
        return self._since_s - before_s >= self.PAUSE_S
