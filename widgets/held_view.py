"""A frame worth waiting for: nothing is painted while what belongs on it is a moment away."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Final

from widgets.cursor_view import CursorView

MOMENT_S: Final = 0.05
"""How long an old frame may stand; a wait beyond that has to be seen."""

Still = Callable[[], AbstractContextManager[object]]
"""Between its beginning and its end nothing is painted."""


class HeldView(CursorView, can_focus=True):
    """Between `hold` and `release` the screen keeps its frame: one with rows beats two, the first without them."""

    def __init__(self, still: Still = nullcontext, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id)
        self._still = still
        self._held: ExitStack | None = None
        """What ends the wait. None: nothing is waited for."""

    @property
    def is_held(self) -> bool:
        """Whether the screen keeps its frame."""
        return self._held is not None

    def hold(self) -> None:
        """Paints nothing until `release`, or until a moment has passed since the first of several calls."""
        if self._held is None and self.is_mounted:
            self._held = ExitStack()
            self._held.enter_context(self._still())
            self._held.callback(self.set_timer(MOMENT_S, self.release).stop)

    def release(self) -> None:
        """Paints again, if it was held."""
        held, self._held = self._held, None
        if held is not None:
            held.close()
            self.refresh()

    def on_unmount(self) -> None:
        """The screen must not wait for rows of a table that is gone."""
        self.release()
