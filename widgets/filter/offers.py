"""What could come next in the line: a short list below it, while one types."""

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import SafeText
from widgets.cells import fit

MOST = 8
"""Offers on show."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to go on."""

    start: int
    """Index of the first character it replaces."""
    end: int
    """Index behind the last one."""
    insert: SafeText
    about: str = ""

    def applied(self, line: str) -> tuple[str, int]:
        """The line with the offer in it, and where the cursor then is."""
        return line[: self.start] + self.insert + line[self.end :], self.start + len(self.insert)


class OfferList(Widget):
    """The offers; one may be chosen, else the first is meant."""

    @dataclass
    class Clicked(Message):
        """An offer was clicked."""

        offer: Offer

    def __init__(self) -> None:
        super().__init__()
        self._offers: tuple[Offer, ...] = ()
        self._chosen = 0
        self.display = False

    @property
    def chosen(self) -> Offer | None:
        """The offer that tab takes; None: there is none."""
        return self._offers[self._chosen] if self._offers else None

    def show(self, offers: tuple[Offer, ...]) -> None:
        """Takes the offers."""
        self._offers, self._chosen = offers[:MOST], 0
        self.display = bool(self._offers)
        self.refresh(layout=True)

    def choose(self, step: int) -> None:
        """Goes to another one, around the ends."""
        if self._offers:
            self._chosen = (self._chosen + step) % len(self._offers)
            self.refresh()

    def render(self) -> Content:
        """A line each."""
        width = max((cell_len(offer.insert) for offer in self._offers), default=0)
        return Content("\n").join(self._line(index, width) for index in range(len(self._offers)))

    def on_click(self, event: events.Click) -> None:
        """Takes the offer under the pointer."""
        if event.y < len(self._offers):
            self.post_message(self.Clicked(self._offers[event.y]))

    def _line(self, index: int, width: int) -> Content:
        offer = self._offers[index]
        here = " on $block-cursor-blurred-background" if index == self._chosen else ""
        return Content.assemble(
            (" ▸ " if here else "   ", f"$accent{here}"),
            (fit(offer.insert, width), f"$foreground{here}"),
            (f"  {offer.about} " if offer.about else " ", f"$foreground 70%{here}"),
        )
