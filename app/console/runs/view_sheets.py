"""The sheets of the views: which one to show, and keeping what is shown as another."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.config import ViewSettings
from app.console.runs.views import TableQuery, View
from app.console.sheets import Options, PickerScreen, SheetNote
from app.query import written_order
from app.text import safe_text
from widgets.badges import STYLES
from widgets.forms.inputs import LineInput

LONGEST_NAME: Final = 40


class ViewPicker(PickerScreen[str]):
    """Closes with the name of the view to show."""

    TITLE_TEXT = "Views"
    HINT = "enter shows · delete forgets one that was saved here"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,backspace", "forget", "forget", id="views.forget"),
        Binding("u", "undo", "undo", id="views.undo"),
    ]

    def __init__(
        self,
        views: Sequence[View],
        current: View,
        forget: Callable[[View], None],
        undo: Callable[[], Sequence[View]],
    ) -> None:
        """Prepare; `undo` brings back the last forgotten view, and returns all views."""
        super().__init__()
        self._views = list(views)
        self._current = current
        self._forget = forget
        self._undo = undo

    def compose_choice(self) -> ComposeResult:
        """The views, and a note on the one under the cursor."""
        yield Options(*(Option(_entry(view)) for view in self._views))
        yield SheetNote()

    def on_mount(self) -> None:
        """Put the cursor on the current view."""
        names = [view.name for view in self._views]
        self.query_one(Options).highlighted = names.index(self._current.name) if self._current.name in names else 0

    def action_forget(self) -> None:
        """Remove the view under the cursor, if it was saved here."""
        options = self.query_one(Options)
        index = options.highlighted
        if index is None:
            return
        view = self._views[index]
        if view.origin != "saved":
            origin = "built in" if view.origin == "built in" else "in the configuration file: remove it there"
            self.query_one(SheetNote).say(f"{view.name} is {origin}.")
            return
        self._forget(view)
        del self._views[index]
        options.remove_option_at_index(index)

    def action_undo(self) -> None:
        """Bring back the last forgotten view, and go to it."""
        before, self._views = self._views, list(self._undo())
        if (new := [index for index, view in enumerate(self._views) if view not in before]) != []:
            options = self.query_one(Options)
            options.set_options([Option(_entry(view)) for view in self._views])
            options.highlighted = new[0]

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self._views[message.option_index].name)

    @on(OptionList.OptionHighlighted)
    def _on_highlighted(self, message: OptionList.OptionHighlighted) -> None:
        view = self._views[message.option_index]
        order = f" · sorted by {written_order(view.sort)}" if view.sort else ""
        self.query_one(SheetNote).say(f"{view.origin}{order}")


class ViewSaver(PickerScreen[ViewSettings]):
    """Closes with the view to save."""

    TITLE_TEXT = "Keep this as a view"
    HINT = "enter keeps it as a tab"

    def __init__(self, query: TableQuery, views: Sequence[View]) -> None:
        """Prepare; a saved view with the same name is replaced, the other names are taken."""
        super().__init__()
        self._query = query
        self._views = {view.name.casefold(): view for view in views}

    def compose_choice(self) -> ComposeResult:
        """Compose the name and the query."""
        suggested = self._query.view.name if self._query.view.origin == "saved" else ""
        yield LineInput(suggested, placeholder="name", compact=True, max_length=LONGEST_NAME)
        yield Static(
            Content.assemble(
                (safe_text(self._query.line) or "every run", ""),
                (f"  sorted by {written_order(self._query.sort)}", STYLES["quiet"]),
            ),
            markup=False,
        )
        yield SheetNote()

    @on(Input.Changed)
    def _on_typed(self) -> None:
        self._explain()

    @on(Input.Submitted)
    def _on_entered(self, message: Input.Submitted) -> None:
        name = message.value.strip()
        if name and self._explain():
            self.dismiss(ViewSettings(name, self._query.line, self._query.sort, str(self._query.grouping or "")))

    def _explain(self) -> bool:
        """Explain the effect of the name; False: it is taken."""
        name = self.query_one(LineInput).value.strip()
        other = self._views.get(name.casefold())
        note = self.query_one(SheetNote)
        if other is None:
            note.say("")
        elif other.origin == "saved":
            note.say("Replaces the view of this name.", "warn")
        else:
            note.say(f"A view that is {other.origin} has this name: choose another.", "bad")
        return other is None or other.origin == "saved"


def _entry(view: View) -> Content:
    return Content.assemble(
        (f"{safe_text(view.name, limit=24):<25}", "bold"),
        (safe_text(view.query, limit=80) or "every run", "$foreground 70%"),
    )
