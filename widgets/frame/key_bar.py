"""The line at the bottom: the keys that do something now."""

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

MARGIN = 1
GAP = 2


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One key and what it does."""

    key: str
    """As it is shown."""
    does: str
    action: str
    enabled: bool = True
    at_end: bool = False
    """It stays at the right edge, whatever else has to go."""

    @property
    def width(self) -> int:
        """Cells it takes."""
        return cell_len(self.key) + 1 + cell_len(self.does)


class KeyBar(Widget):
    """As many keys as fit, the first ones first."""

    @dataclass
    class Pressed(Message):
        """A key's hint was clicked."""

        action: str

    def __init__(self) -> None:
        super().__init__()
        self._hints: tuple[KeyHint, ...] = ()

    def show(self, hints: tuple[KeyHint, ...]) -> None:
        """Takes the keys of the moment."""
        if hints != self._hints:
            self._hints = hints
            self.refresh()

    def render(self) -> Content:
        """The line."""
        parts: list[tuple[str, str]] = []
        x = 0
        for start, hint in self._placed():
            parts.append((" " * (start - x), ""))
            parts.append((f"{hint.key} ", "$accent bold" if hint.enabled else "$foreground 30%"))
            parts.append((hint.does, "$foreground 70%" if hint.enabled else "$foreground 30%"))
            x = start + hint.width
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Does what the key under the pointer would do."""
        for start, hint in self._placed():
            if start <= event.x < start + hint.width and hint.enabled:
                self.post_message(self.Pressed(hint.action))

    def _placed(self) -> list[tuple[int, KeyHint]]:
        edge = self.size.width - MARGIN
        at_end: list[tuple[int, KeyHint]] = []
        for hint in reversed([hint for hint in self._hints if hint.at_end]):
            at_end.insert(0, (edge - hint.width, hint))
            edge -= hint.width + GAP
        placed: list[tuple[int, KeyHint]] = []
        x = MARGIN
        for hint in self._hints:
            if not hint.at_end and x + hint.width <= edge:
                placed.append((x, hint))
                x += hint.width + GAP
        return [*placed, *at_end]
