"""The sheets that choose the rows of the table: a view, names, a stretch of time, the order, the columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace
from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.console.sheets import ChoiceSheet, PickerScreen, SheetNote
from app.engine.text import safe_text
from app.engine.times import INSTANT, local_moment, stamp
from app.profiles import ViewSettings
from app.runs.query import KeyName, parse, written_order
from app.runs.screen_views import TableQuery, View, chosen_order, limit_in
from storage.records import SORTABLE, STATUS_ORDER, RunFilter, RunRow, RunSort
from widgets.forms.inputs import LineInput
from widgets.kit import hidden
from widgets.kit.badges import STYLES, Badge, run_badge
from widgets.kit.cells import fit
from widgets.kit.choice_lists import NEXT_MARK, ChoiceMark, Options, PickItem, PickList, fuzzy
from widgets.runs.columns import FROZEN, SPARED, ColumnChoice
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from storage.cache.cache import Cache

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
"""The limits from and until in the query language; empty: no limit."""


def limits_of(day: date) -> Limits:
    """The limits of a day of the local calendar: its date, if the day begins at midnight UTC."""
    begin, end = local_moment(day), local_moment(day + timedelta(days=1))
    if begin.time() == end.time() == time.min:
        return f"{begin:%Y-%m-%d}", f"{begin:%Y-%m-%d}"
    return begin.astimezone().isoformat(timespec="minutes"), (end - INSTANT).astimezone().isoformat()


def dated(limits: Limits) -> list[str]:
    """The limits as terms of a query."""
    return [f"{key}:{text}" for key, text in zip(("since", "until"), limits, strict=True) if text]


Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""The values to show and the values to exclude."""


class ValuePicker(PickerScreen[Picked]):
    """Closes with the names to show and to exclude, found with a few of their letters; both empty: any name."""

    HINT = "tab mark, again exclude · enter apply · ctrl+x any"
    CLICKABLE: ClassVar[Mapping[str, str]] = {
        "tab mark, again exclude": "mark",
        "enter apply": "apply",
        "ctrl+x any": "nothing",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "mark", "mark", priority=True, id="picker.mark"),
        Binding("ctrl+x", "nothing", "any", priority=True, id="picker.any_value"),
        hidden("down", "move(1)", "down", priority=True, id="picker.down"),
        hidden("up", "move(-1)", "up", priority=True, id="picker.up"),
        hidden("pagedown", f"move({PAGE})", "page down", priority=True, id="picker.page_down"),
        hidden("pageup", f"move(-{PAGE})", "page up", priority=True, id="picker.page_up"),
    ]

    def __init__(self, title: str, names: Iterable[str], wanted: tuple[str, ...], excluded: tuple[str, ...]) -> None:
        """Prepare with the known names, best first; `wanted` and `excluded` may hold patterns."""
        super().__init__()
        self.TITLE_TEXT = title
        self._names = tuple(dict.fromkeys((*wanted, *excluded, *names)))
        self._marks: dict[str, ChoiceMark] = dict.fromkeys(wanted, "only")
        self._marks |= dict.fromkeys(excluded, "not")

    def compose_choice(self) -> ComposeResult:
        """Compose the search line and its matches."""
        yield LineInput(placeholder="type to find; * matches any text", compact=True)
        yield PickList()

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Close with the choice; without marks, choose the name under the cursor."""
        if not self._marks and (value := self.query_one(PickList).value) is not None:
            self._marks[value] = "only"
        only = tuple(name for name, mark in self._marks.items() if mark == "only")
        self.dismiss((only, tuple(name for name, mark in self._marks.items() if mark == "not")))

    @on(PickList.Clicked)
    def _on_clicked(self, message: PickList.Clicked) -> None:
        if message.is_final:
            self._marks[message.value] = "only"
            self.action_apply()
        else:
            self.action_mark()

    def action_mark(self) -> None:
        """Cycle the name under the cursor: shown, excluded, neither."""
        if (value := self.query_one(PickList).value) is not None:
            if (mark := NEXT_MARK[self._marks.pop(value, None)]) is not None:
                self._marks[value] = mark
            self._find()

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        self.query_one(PickList).move(step)

    def action_nothing(self) -> None:
        """Close without a name, which makes the filter match every name."""
        self.dismiss(((), ()))

    @on(events.Mount)
    @on(Input.Changed)
    def _find(self) -> None:
        text = self.query_one(Input).value.strip()
        # Leave the star of a pattern out of the search.
        matches = [(match, name) for name in self._names if (match := fuzzy(text.replace("*", ""), name)) is not None]
        if text:
            matches.sort(key=lambda pair: -pair[0][0])
        items = [PickItem(name, found=tuple(positions)) for (_, positions), name in matches[:200]]
        if "*" in text:
            items.insert(0, PickItem(text, "pattern"))
        elif text and text not in self._names:
            items.append(PickItem(text, "as typed"))
        self.query_one(PickList).show(tuple(items), self._marks)


async def value_sheet(
    cache: "Cache", condition: RunFilter, key: KeyName, here: RunRow | None
) -> "PickerScreen[Picked]":
    """A sheet of the statuses, repositories or branches of the cached runs; `here` is the run under the cursor."""
    if key == "status":
        by_status = await cache.status_counts(condition)
        unusual = sorted({*by_status, *condition.statuses, *condition.not_statuses}.difference(STATUS_ORDER))
        counts = {status: by_status.get(status, 0) for status in (*STATUS_ORDER, *unusual)}
        return MarkPicker("Filter by status", counts, condition.statuses, condition.not_statuses)
    if key == "repo":
        names = here.repository if here else "", *await cache.repositories()
        wanted, excluded, title = condition.repositories, condition.not_repositories, "Filter by repository"
    else:
        names = (
            here.branch_name if here else "",
            *await cache.branches(replace(condition, branches=(), not_branches=())),
        )
        wanted, excluded, title = condition.branches, condition.not_branches, "Filter by branch"
    return ValuePicker(title, filter(None, names), wanted, excluded)


class DatesPicker(PickerScreen[Limits]):
    """Closes with the earliest and the latest start."""

    TITLE_TEXT = "Started"
    HINT = "enter apply · 1 to 7 days back · tab to the limits"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(hidden(str(back), f"day({back})", f"{back} days back") for back in range(1, DAYS_BACK + 1))
    ]

    def __init__(self, line: str, now: datetime) -> None:
        """Prepare with the limits in this query."""
        super().__init__()
        self._since, self._until, self._now = limit_in(line, "since"), limit_in(line, "until"), now
        days = [now.astimezone().date() - timedelta(days=back) for back in range(1, DAYS_BACK + 1)]
        dates = [(f"{back}  {day:%A, %d %b}", limits_of(day)) for back, day in enumerate(days, 1)]
        self._choices = [*((name, (since, "")) for name, since in PRESETS), *dates]

    def compose_choice(self) -> ComposeResult:
        """Compose the usual stretches, the last week's days, and the two limits."""
        yield Options(*(Option(Content(name)) for name, _ in self._choices))
        yield LineInput(self._since, placeholder="from: 2h, 7d, 2026-05-01", compact=True, id="since")
        yield LineInput(self._until, placeholder="until: 1d, 2026-05-31", compact=True, id="until")
        yield SheetNote()

    def on_mount(self) -> None:
        """Put the cursor on the current limits."""
        presets = [(since, "") for _, since in PRESETS]
        is_preset = (self._since, self._until) in presets
        self.query_one(Options).highlighted = presets.index((self._since, "")) if is_preset else 0
        if not is_preset:
            self.query_one("#since", LineInput).focus()
        self._explain()

    @on(OptionList.OptionSelected)
    def _on_preset(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[message.option_index][1])

    def action_day(self, back: int) -> None:
        """Close with the day this many days ago."""
        self.dismiss(self._choices[len(PRESETS) + back - 1][1])

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        if self._explain():
            self.dismiss(self._limits)

    @on(Input.Changed)
    def _explain(self) -> bool:
        """Explain the limits; False: they are invalid."""
        query = parse(" ".join(dated(self._limits)), self._now)
        note = self.query_one(SheetNote)
        if query.problems:
            note.say(f"{query.problems[0].message} {query.problems[0].fix}", "bad")
        else:
            limits = ("from", query.filter.since), ("until", query.filter.until)
            note.say(" ".join(f"{word} {stamp(at)}" for word, at in limits if at) or "any time")
        return not query.problems

    @property
    def _limits(self) -> Limits:
        since, until = (line.value.strip() for line in self.query(LineInput))
        return since, until


def order_sheet(sort: RunSort) -> ChoiceSheet[RunSort]:
    """A sheet of the orders to choose from; choosing the current column reverses it."""
    choices = list[tuple[Content, RunSort]]()
    for field in SORTABLE:
        is_current = field.name == sort.column
        is_down = sort.descending if is_current else field.begins_descending
        name = f"{field.name:<12}", "bold" if is_current else ""
        arrow = f"{'↓' if is_down else '↑'} " if is_current else "  ", "$accent"
        words = field.descending if is_down else field.ascending, "$foreground 70%"
        choices.append((Content.assemble(name, arrow, words), chosen_order(field.name, sort)))
    return ChoiceSheet("Sort by", choices, [field.name for field in SORTABLE].index(sort.column))


def view_picker(views: Sequence[View], current: View) -> ChoiceSheet[tuple[View, bool]]:
    """A sheet that closes with a view, and whether to forget it instead of showing it."""
    names, choices = [view.name for view in views], list[tuple[Content, tuple[View, bool]]]()
    for view in views:
        order = f"  sorted by {written_order(view.sort)}" if view.sort else ""
        text = f"{safe_text(view.query, limit=80) or 'every run'}{order}"
        name = f"{safe_text(view.name, limit=24):<25}"
        choices.append((Content.assemble((name, "bold"), (text, "$foreground 70%")), (view, False)))
    here = names.index(current.name) if current.name in names else 0
    sheet = ChoiceSheet("Views", choices, here, forget=lambda choice: (choice[0], True))
    sheet.HINT = "enter or 1-9 show · delete remove a saved one"
    return sheet


class ViewSaver(PickerScreen[ViewSettings]):
    """Closes with the view to save."""

    TITLE_TEXT = "Save as a view"
    HINT = "enter save as a tab"
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("ctrl+s", "replace", "replace the view", id="views.replace", priority=True)
    ]

    def __init__(self, query: TableQuery, views: Sequence[View]) -> None:
        """Prepare; a saved view with the same name is replaced, the other names are taken."""
        super().__init__()
        self._query = query
        self._views = {view.name.casefold(): view for view in views}

    def compose_choice(self) -> ComposeResult:
        """Compose the name and the query."""
        suggested = self._query.view.name if self._query.view.origin == "saved" else ""
        yield LineInput(suggested, placeholder="name", compact=True, max_length=40)
        order = f"  sorted by {written_order(self._query.sort)}", STYLES["quiet"]
        yield Static(Content.assemble(safe_text(self._query.line) or "every run", order), markup=False)
        yield SheetNote()

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        if self._explain() is None:
            self.action_replace()

    def action_replace(self) -> None:
        """Close with the view, even if it replaces one that was saved here."""
        name, other = self.query_one(LineInput).value.strip(), self._explain()
        if name and (other is None or other.origin == "saved"):
            self.dismiss(ViewSettings(name, self._query.line, self._query.sort, str(self._query.grouping or "")))

    @on(Input.Changed)
    def _explain(self) -> View | None:
        """Explain the effect of the name; return the existing view with this name."""
        other = self._views.get(self.query_one(LineInput).value.strip().casefold())
        note = self.query_one(SheetNote)
        if other is None:
            note.say("")
        elif other.origin == "saved":
            note.say("There is such a view: ctrl+s replaces it, esc keeps it.", "warn")
        else:
            note.say(f"A view that is {other.origin} has this name: choose another.", "bad")
        return other


class ColumnPicker(PickerScreen[ColumnChoice]):
    """Applies each change to the table at once; closes with the choice, or with None after restoring the columns."""

    TITLE_TEXT = "Columns"
    HINT = "space show · + down · - up · > wider · < narrower · = fits · enter save"
    CLICKABLE: ClassVar[Mapping[str, str]] = {
        "space show": "switch",
        "+ down": "shift(1)",
        "- up": "shift(-1)",
        "> wider": "size(2)",
        "< narrower": "size(-2)",
        "= fits": "size(None)",
        "enter save": "keep",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "switch", "show or hide", id="columns.toggle"),
        Binding("shift+down,plus", "shift(1)", "move down", id="columns.move_down"),
        Binding("shift+up,minus", "shift(-1)", "move up", id="columns.move_up"),
        Binding("greater_than_sign,right", "size(2)", "wider", id="columns.wider"),
        Binding("less_than_sign,left", "size(-2)", "narrower", id="columns.narrower"),
        Binding("equals_sign", "size(None)", "automatic width", id="columns.fit"),
        Binding("0", "usual", "default", id="columns.usual"),
        Binding("enter", "keep", "keep", id="columns.keep", priority=True),
    ]

    def __init__(self, table: RunTable) -> None:
        super().__init__()
        self._table = table
        self._before = table.columns.choice

    def compose_choice(self) -> ComposeResult:
        """Compose the list of columns."""
        yield Options(*self._entries())

    def on_mount(self) -> None:
        """Put the cursor on the first column."""
        self.query_one(Options).highlighted = 0

    @property
    def _key(self) -> str:
        return self._table.columns.choice.every_key[self.query_one(Options).highlighted or 0]

    @on(OptionList.OptionSelected)
    def action_switch(self) -> None:
        """Show or hide the column."""
        self._change(self._table.columns.choice.toggled(self._key))

    def action_shift(self, step: int) -> None:
        """Move the column among the shown ones."""
        order = [column.title for column in self._table.columns.choice.columns]
        if self._key in order:
            there = order.index(self._key) + step
            if 0 <= there < len(order):
                self._change(self._table.columns.choice.moved(self._key, order[there]))

    def action_size(self, cells: int | None) -> None:
        """Widen the column by this many cells; None: fit its text."""
        width = self._table.columns.choice.widths.get(self._key) or self._table.columns.width_of(self._key)
        self._change(self._table.columns.choice.sized(self._key, None if cells is None else width + cells))

    def action_usual(self) -> None:
        """Go back to the default columns."""
        self._change(ColumnChoice())

    def action_keep(self) -> None:
        """Close with the choice."""
        self.dismiss(self._table.columns.choice)

    def action_leave(self) -> None:
        """Restore the columns and close."""
        self._table.set_columns(self._before)
        self.dismiss(None)

    def _change(self, choice: ColumnChoice) -> None:
        key, options = self._key, self.query_one(Options)
        self._table.set_columns(choice)
        options.set_options(self._entries())
        options.highlighted = choice.every_key.index(key)

    def _entries(self) -> list[Option]:
        choice, entries = self._table.columns.choice, []
        for key in choice.every_key:
            width = choice.widths.get(key)
            box = ("■ ", "$accent") if key in choice.shown else ("□ ", "$foreground 70%")
            where = "stays in view" if key in FROZEN else "where known" if key in SPARED else ""
            notes = f"{f'{width} wide' if width else 'automatic':<18}{where}"
            entries.append(Option(Content.assemble(box, f"{key:<14}", (notes, STYLES["quiet"]))))
        return entries


class MarkPicker(PickerScreen[Picked]):
    """Closes with the values to show and to exclude; both empty: all values. Without a mark, the one at the cursor."""

    CLICKABLE: ClassVar[Mapping[str, str]] = {"enter apply": "apply", "0 any": "nothing"}
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("q", "leave", "cancel"),
        hidden("space", "mark", "mark", id="statuses.mark"),
        hidden("minus", "exclude", "exclude", id="statuses.exclude"),
        hidden("enter", "apply", "apply", id="statuses.apply", priority=True),
        Binding("backspace,0", "nothing", "any status", id="picker.any"),
    ]

    def __init__(
        self,
        title: str,
        counts: Mapping[str, int],
        wanted: tuple[str, ...],
        excluded: tuple[str, ...] | None = None,
        *,
        badge_of: Callable[[str], Badge] = run_badge,
    ) -> None:
        """Prepare; without `excluded` values cannot be excluded."""
        super().__init__()
        self.TITLE_TEXT = title
        self.HINT = f"space mark{'' if excluded is None else ' · - exclude'} · enter apply · 0 any"
        self._counts = {name: counts.get(name, 0) for name in (*counts, *wanted, *(excluded or ()))}
        self._marked, self._excluded, self._can_exclude = set(wanted), set(excluded or ()), excluded is not None
        self._badge_of = badge_of

    def compose_choice(self) -> ComposeResult:
        """Compose the values with their counts."""
        yield Options(*(Option(self._prompt(value), value) for value in self._counts), markup=False)

    def on_mount(self) -> None:
        """Put the cursor on the first marked value."""
        first = next((at for at, value in enumerate(self._counts) if value in self._marked), 0)
        self.query_one(Options).highlighted = first

    @property
    def _here(self) -> set[str]:
        option = self.query_one(Options).highlighted_option
        return {option.id} if option is not None and option.id is not None else set()

    @on(OptionList.OptionSelected)
    def action_mark(self) -> None:
        """Mark or unmark the value, with a click as well."""
        self._marked ^= self._here
        self._excluded -= self._here
        self._redraw()

    def action_exclude(self) -> None:
        """Exclude the value, or include it again."""
        if self._can_exclude:
            self._excluded ^= self._here
            self._marked -= self._here
            self._redraw()

    async def on_click(self, event: events.Click) -> None:
        """Choose with a double click, which must not unmark what its first click has marked."""
        if event.chain > 1 and isinstance(event.widget, Options):
            self._marked |= self._here
            self.action_apply()

    def action_apply(self) -> None:
        """Close with the choice."""
        chosen = self._marked if self._marked or self._excluded else self._here
        excluded = tuple(value for value in self._counts if value in self._excluded)
        self.dismiss((tuple(value for value in self._counts if value in chosen), excluded))

    def action_nothing(self) -> None:
        """Close with all values."""
        self.dismiss(((), ()))

    def _redraw(self) -> None:
        for value in self._here:
            self.query_one(Options).replace_option_prompt(value, self._prompt(value))

    def _prompt(self, value: str) -> Content:
        badge = self._badge_of(value)
        box = "⊘" if value in self._excluded else "■" if value in self._marked else "□"
        cells = max([20, *(cell_len(self._badge_of(each).text) + 1 for each in self._counts)])
        count = f"{self._counts[value]:>12,} ", STYLES["quiet"]
        return Content.assemble((f"  {box} ", "$foreground"), (fit(badge.text, cells), badge.style), count)
