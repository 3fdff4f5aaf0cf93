"""The sheet that switches to another profile."""

from typing import ClassVar, Final

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from app.console.base import ALL
from app.console.session import Session
from app.console.sheets import PickerScreen
from app.engine.text import safe_text
from widgets.forms.inputs import LineInput
from widgets.kit import after_refresh, hidden
from widgets.kit.badges import STYLES, ProfileMark
from widgets.kit.cells import shorten
from widgets.kit.choice_lists import Options, fuzzy

NAME: Final = 24
"""Cells of a profile's name."""


class ProfileSwitcher(PickerScreen[str]):
    """Closes with the name of the profile to show; None: no change."""

    TITLE_TEXT = "Switch profile"
    HINT = "enter open"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", id="profiles.open"),
        hidden("down", "move(1)", "down", priority=True, id="picker.down"),
        hidden("up", "move(-1)", "up", priority=True, id="picker.up"),
        hidden("ctrl+o", "leave", "cancel", priority=True, id="profiles.leave"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def compose_choice(self) -> ComposeResult:
        """Compose the search and its matches."""
        yield LineInput(placeholder="type to find", compact=True)
        yield Options(markup=False)

    def on_mount(self) -> None:
        """List the profiles, and begin with the search."""
        self._find()
        self.query_one(LineInput).focus()

    def on_resize(self) -> None:
        """Draw for the new width, the first one included."""
        after_refresh(self, self._find)

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        profiles = self.query_one(Options)
        profiles.action_cursor_down() if step > 0 else profiles.action_cursor_up()

    @on(Input.Submitted)
    def action_open(self) -> None:
        """Close with the profile under the cursor."""
        option = self.query_one(Options).highlighted_option
        self.dismiss(None if option is None else option.id)

    @on(OptionList.OptionSelected)
    def _on_chosen(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(message.option_id)

    @on(Input.Changed)
    def _find(self) -> None:
        """List the profiles that match; the cursor stays on its own, and begins on the current one."""
        text, profiles, session = self.query_one(LineInput).value.strip(), self.query_one(Options), self._session
        current = session.profile.name
        about = {
            own.name: (own.base_url, "current" if own.name == current else "", "read-only" if own.read_only else "")
            for own in session.engines.profiles
        }
        about[ALL] = "their runs in one list", "", ""
        scores = {name: match[0] for name in about if (match := fuzzy(text, name)) is not None}
        names = sorted(scores, key=lambda name: -scores[name])
        options = []
        for name in names:
            shown, style = ProfileMark(name, session.settings.color_of(name)).styled(NAME - 3)
            notes = safe_text(" · ".join(filter(None, about[name])), limit=300)
            room = max(0, profiles.size.width - NAME - 3)
            head = ("  ", (shown, style), " " * (NAME - cell_len(shown)))
            options.append(Option(Content.assemble(*head, (shorten(notes, room, "middle"), STYLES["quiet"])), name))
        before = profiles.highlighted_option
        profiles.set_options(options)
        here = next((name for name in (before and before.id, current) if name in scores), None)
        profiles.highlighted = names.index(here) if here is not None else 0 if names else None
