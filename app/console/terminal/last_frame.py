"""The current screen, kept as the first frame of the next start."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip

from app.text import safe_text
from widgets.runs.table import RunTable

KeepFrame = Callable[[Sequence[int], str, Sequence[str]], None]
"""Keeps a frame for a window size: a title that the time is appended to, and the rows below it."""
LOOK_S: Final = 2.0
EVERY_S: Final = 30.0
"""Seconds between two frames; rendering one costs about as much as a key."""
_DIM: Final = Style(dim=True)


def keep_frames(app: App[Any], keep: KeepFrame, profile: Callable[[], str]) -> Callable[[], None]:
    """Keep a frame soon, then every half minute, so that a killed console leaves one too; the result keeps one at once.

    Only runs of the current profile are kept: the next start begins with it.
    """
    first, due_s = profile(), 0.0

    def keep_now() -> None:
        nonlocal due_s
        if profile() == first and _shows_runs(app) and (strips := app.screen._compositor.render_strips()):  # noqa: SLF001 — the only way
            due_s = monotonic() + EVERY_S
            keep(app.size, *_dimmed(app, strips, f" runwarden  {safe_text(first, limit=28)}   ◌ "))

    def look() -> None:
        if monotonic() > due_s:
            keep_now()

    app.set_interval(LOOK_S, look)
    return keep_now


def _shows_runs(app: App[Any]) -> bool:
    # At the very start there is no table yet, and an empty one is not worth keeping.
    on_runs = app.is_running and app.current_mode == "runs" and len(app.screen_stack) == 1
    return on_runs and any(table.count for table in app.screen.query(RunTable))


def _dimmed(app: App[Any], strips: Sequence[Strip], title: str) -> tuple[str, list[str]]:
    style = next((segment.style for segment in strips[0] if segment.style is not None), Style.null())
    # No closing code: the time is appended in the same colours.
    first = Strip([Segment(title, style + _DIM)]).render(app.console).removesuffix("\x1b[0m")
    return first, ["", *(strip.apply_style(_DIM).render(app.console) for strip in strips[1:])]
