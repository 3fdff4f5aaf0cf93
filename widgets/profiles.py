"""The list of profiles."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets.option_list import Option

from app.engine.text import safe_text
from widgets.frame import Vitals
from widgets.kit.badges import STYLES, ProfileMark
from widgets.kit.cells import shorten
from widgets.kit.choice_lists import Options

NAME: Final = 24
"""Cells of a profile's name."""


class ProfileFacts(Struct, frozen=True):
    """The known facts about a profile."""

    name: str
    address: str
    is_current: bool
    """Whether the console shows this profile now."""
    read_only: bool
    color: str = ""
    """The colour of its name; empty: none."""
    vitals: Vitals | None = None
    """None: not read yet."""
    problem: str = ""
    """Why our own files for it cannot be read; empty: they can."""


class ProfileList(Options):
    """The profiles, one below the other; the id of an option is its profile's name."""

    DEFAULT_CSS = Path(__file__).with_name("profiles.tcss").read_text("utf-8")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "open", id="profiles.open")]

    def __init__(self) -> None:
        super().__init__(markup=False)

    @property
    def name_at_cursor(self) -> str | None:
        """The profile under the cursor; None: the list is empty."""
        return None if self.highlighted_option is None else self.highlighted_option.id

    def show(self, facts: Sequence[ProfileFacts]) -> None:
        """Show the profiles; the cursor stays on its own, and begins on the current one."""
        names = [each.name for each in facts]
        here = self.name_at_cursor
        first = next((index for index, each in enumerate(facts) if each.is_current), 0)
        options = []
        for each in facts:
            name, style = ProfileMark(each.name, each.color).styled(NAME - 3)
            notes = (each.address, "current" if each.is_current else "", "read-only" if each.read_only else "")
            about = shorten(
                safe_text(" · ".join(filter(None, notes)), limit=300), max(0, self.size.width - NAME - 3), "middle"
            )
            head = ("  ", (name, style), " " * (NAME - cell_len(name)))
            options.append(Option(Content.assemble(*head, (about, STYLES["quiet"])), each.name))
        self.set_options(options)
        self.highlighted = None if not names else names.index(here) if here in names else first
