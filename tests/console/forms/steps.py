"""What a person does with a form, key by key."""

from typing import Any

from textual.pilot import Pilot

_KEYS = {"\n": "enter", "\t": "tab", " ": "space"}


async def settle(pilot: Pilot[Any]) -> None:
    """Waits until everything that was begun is done and painted."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def write(pilot: Pilot[Any], text: str) -> None:
    """Types the text; a tab goes to the next field."""
    await pilot.press(*(_KEYS.get(char, char) for char in text))


def painted(app: Any) -> str:
    """Everything on the screen, as text."""
    width, height = app.size
    del width
    lines = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in line) for line in lines[:height])
