"""The sheets that choose what the table shows: a view, statuses, names, a stretch of time, the order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.config import ViewSettings
from app.console.fuzzy import fuzzy
from app.console.runs.views import TableQuery, View, chosen_order
from app.console.sheets import Options, PickerScreen, SheetNote
from app.console.sheets.mark_picker import Picked
from app.query import parse, written_order
from app.text import safe_text
from app.times import stamp
from storage.records import SORTABLE, RunField, RunSort
from widgets.badges import STYLES
from widgets.choice_lists import NEXT_MARK, ChoiceMark, PickItem, PickList
from widgets.forms.inputs import LineInput

MOST: Final = 200
"""Names listed at a time."""
PAGE: Final = 8
PRESETS: Final = (
    ("any time", ""),
    ("the last hour", "1h"),
    ("the last 24 hours", "24h"),
    ("the last 7 days", "7d"),
    ("the last 30 days", "30d"),
    ("the last 90 days", "90d"),
)
DAYS_BACK: Final = 7
"""Days before today that a digit chooses, up to the same weekday of last week."""

Limits = tuple[str, str]
"""From and until in the query language; empty: no limit."""


def limits_of(day: date) -> Limits:
    """Return the limits of a day of the local calendar: its date, if the day begins at midnight UTC."""
    begin, end = (datetime.combine(each, time.min).astimezone() for each in (day, day + timedelta(days=1)))
    if begin.astimezone(UTC).time() == time.min and end.astimezone(UTC).time() == time.min:
        name = f"{begin.astimezone(UTC):%Y-%m-%d}"
        return name, name
    return begin.isoformat(timespec="minutes"), (end - timedelta(microseconds=1)).isoformat()


class ValuePicker(PickerScreen[Picked]):
    """Closes with the names to show and to exclude, found by a few of their letters; both empty: any name."""

    HINT = "tab marks, again excludes · enter applies · ctrl+x any"
    CLICKABLE: ClassVar[Mapping[str, str]] = {
        "tab marks, again excludes": "mark",
        "enter applies": "apply",
        "ctrl+x any": "nothing",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "mark", "mark", priority=True, id="picker.mark"),
        Binding("ctrl+x", "nothing", "any", priority=True, id="picker.any_value"),
        Binding("down,ctrl+n", "move(1)", "down", show=False, priority=True, id="picker.down"),
        Binding("up,ctrl+p", "move(-1)", "up", show=False, priority=True, id="picker.up"),
        Binding("pagedown", f"move({PAGE})", "page down", show=False, priority=True, id="picker.page_down"),
        Binding("pageup", f"move(-{PAGE})", "page up", show=False, priority=True, id="picker.page_up"),
    ]

    def __init__(self, title: str, names: Iterable[str], wanted: tuple[str, ...], excluded: tuple[str, ...]) -> None:
        """Prepare with the known names, best first; `wanted` and `excluded` may hold patterns."""
        super().__init__()
        self.TITLE_TEXT = title
        self._names = tuple(dict.fromkeys((*wanted, *excluded, *names)))
        only: ChoiceMark = "only"
        self._marks: dict[str, ChoiceMark] = {**dict.fromkeys(wanted, only), **dict.fromkeys(excluded, "not")}

    def compose_choice(self) -> ComposeResult:
        """Compose the search line and its matches."""
        yield LineInput(placeholder="type to find; * matches anything", compact=True)
        yield PickList()

    def on_mount(self) -> None:
        """List every name."""
        self._find("")

    @on(Input.Changed)
    def _on_typed(self, message: Input.Changed) -> None:
        self._find(message.value.strip())

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Close with the choice; without marks, the name under the cursor."""
        value = self.query_one(PickList).value
        if not self._marks and value is not None:
            self._marks[value] = "only"
        self.dismiss(self._picked)

    @on(PickList.Clicked)
    def _on_clicked(self, message: PickList.Clicked) -> None:
        if message.is_final:
            self._marks[message.value] = "only"
            self.dismiss(self._picked)
        else:
            self.action_mark()

    @property
    def _picked(self) -> Picked:
        return tuple(self._marked("only")), tuple(self._marked("not"))

    def _marked(self, wanted: ChoiceMark) -> Iterator[str]:
        return (value for value, mark in self._marks.items() if mark == wanted)

    def action_mark(self) -> None:
        """Show the name under the cursor; then exclude it; then neither."""
        picks = self.query_one(PickList)
        if picks.value is None:
            return
        mark = NEXT_MARK[self._marks.pop(picks.value, None)]
        if mark is not None:
            self._marks[picks.value] = mark
        self._find(self.query_one(Input).value.strip())

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        self.query_one(PickList).move(step)

    def action_nothing(self) -> None:
        """Close without a name: the filter then matches runs of every name."""
        self.dismiss(((), ()))

    def _find(self, text: str) -> None:
        self.query_one(PickList).show(tuple(self._found(text)), self._marks)

    def _found(self, text: str) -> Iterator[PickItem]:
        if not text:
            yield from (PickItem(name) for name in self._names[:MOST])
            return
        is_pattern = "*" in text
        if is_pattern:
            yield PickItem(text, "pattern")
        # The star of a pattern is not among the letters to search for.
        letters = text.replace("*", "")
        matches = [(match, name) for name in self._names if (match := fuzzy(letters, name)) is not None]
        for (_, found), name in sorted(matches, key=lambda pair: -pair[0][0])[:MOST]:
            yield PickItem(name, found=tuple(found))
        if not is_pattern and text not in self._names:
            yield PickItem(text, "as typed")


class DatesPicker(PickerScreen[Limits]):
    """Closes with the earliest and the latest start."""

    TITLE_TEXT = "Started"
    HINT = "enter applies · 1 to 7 days back · tab to the limits"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(back), f"day({back})", f"{back} days back", show=False) for back in range(1, DAYS_BACK + 1)),
    ]

    def __init__(self, since: str, until: str, now: datetime) -> None:
        super().__init__()
        self._since, self._until, self._now = since, until, now
        today = now.astimezone().date()
        self._days = tuple(today - timedelta(days=back) for back in range(1, DAYS_BACK + 1))

    def compose_choice(self) -> ComposeResult:
        """Compose the usual stretches, the last week's days, and the two limits."""
        days = (f"{back}  {day:%A, %d %b}" for back, day in enumerate(self._days, 1))
        yield Options(*(Option(Content(name)) for name in (*(name for name, _ in PRESETS), *days)))
        yield LineInput(self._since, placeholder="from: 2h, 7d, 2026-05-01", compact=True, id="since")
        yield LineInput(self._until, placeholder="until: 1d, 2026-05-31", compact=True, id="until")
        yield SheetNote()

    def on_mount(self) -> None:
        """Put the cursor on the current limits."""
        presets = [since for _, since in PRESETS]
        chosen = self._since if not self._until else None
        self.query_one(Options).highlighted = presets.index(chosen) if chosen in presets else 0
        if chosen not in presets:
            self.query_one("#since", LineInput).focus()
        self._explain()

    @on(OptionList.OptionSelected)
    def _on_preset(self, message: OptionList.OptionSelected) -> None:
        if (back := message.option_index - len(PRESETS) + 1) > 0:
            self.action_day(back)
        else:
            self.dismiss((PRESETS[message.option_index][1], ""))

    def action_day(self, back: int) -> None:
        """Close with the day this many days ago."""
        self.dismiss(limits_of(self._days[back - 1]))

    @on(Input.Changed)
    def _on_typed(self) -> None:
        self._explain()

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        if self._explain():
            self.dismiss((self._text("since"), self._text("until")))

    def _explain(self) -> bool:
        """Explain the limits; False: they are invalid."""
        line = " ".join(f"{key}:{self._text(key)}" for key in ("since", "until") if self._text(key))
        query = parse(line, self._now)
        note = self.query_one(SheetNote)
        if query.problems:
            note.say(f"{query.problems[0].message} {query.problems[0].cure}", "bad")
        else:
            note.say(self._meaning(query.filter.since, query.filter.until))
        return not query.problems

    def _meaning(self, since: datetime | None, until: datetime | None) -> str:
        begin = f"from {stamp(since)}" if since else ""
        return " ".join(part for part in (begin, f"until {stamp(until)}" if until else "") if part) or "any time"

    def _text(self, key: str) -> str:
        return self.query_one(f"#{key}", LineInput).value.strip()


class OrderPicker(PickerScreen[RunSort]):
    """Closes with the order; choosing the current column reverses it."""

    TITLE_TEXT = "Sort by"
    HINT = "enter sorts; the current one again reverses it"

    def __init__(self, sort: RunSort) -> None:
        """Prepare with the current order."""
        super().__init__()
        self._sort = sort

    def compose_choice(self) -> ComposeResult:
        """Compose the columns."""
        yield Options(*(Option(self._entry(field)) for field in SORTABLE))

    def on_mount(self) -> None:
        """Put the cursor on the current column."""
        self.query_one(Options).highlighted = [field.name for field in SORTABLE].index(self._sort.column)

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(chosen_order(SORTABLE[message.option_index].name, self._sort))

    def _entry(self, field: RunField) -> Content:
        is_current = field.name == self._sort.column
        is_down = self._sort.descending if is_current else field.begins_descending
        arrow = ("↓" if is_down else "↑") if is_current else " "
        return Content.assemble(
            (f"{field.name:<12}", "bold" if is_current else ""),
            (f"{arrow} ", "$accent"),
            (field.descending if is_down else field.ascending, "$foreground 70%"),
        )


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
