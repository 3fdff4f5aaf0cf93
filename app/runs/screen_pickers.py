"""The sheets that choose the rows of the table: a view, names, a stretch of time, the order, the columns."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace
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
from app.runs.screen_views import TableQuery, View, limit_in
from storage.records import SORTABLE, STATUS_ORDER, RunFilter, RunRow, RunSort
from widgets.forms.inputs import LineInput
from widgets.kit import hidden
from widgets.kit.badges import STYLES, run_badge
from widgets.kit.choice_lists import NEXT_MARK, ChoiceMark, Options, PickItem, PickList, fuzzy
from widgets.runs.columns import COLUMN_BY_KEY, HIDDEN_IF_EMPTY, ColumnChoice
from widgets.runs.table import RunTable, chosen_order

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
    begin = local_moment(day)
    end = local_moment(day + timedelta(days=1))
    if begin.time() == end.time() == time.min:
        return f"{begin:%Y-%m-%d}", f"{begin:%Y-%m-%d}"
    return begin.astimezone().isoformat(timespec="minutes"), (end - INSTANT).astimezone().isoformat()


def date_terms(limits: Limits) -> list[str]:
    return [f"{key}:{text}" for key, text in zip(("since", "until"), limits, strict=True) if text]


Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""The values to show and the values to exclude."""


class ValuePicker(PickerScreen[Picked]):
    """Closes with the values to show and to exclude, found with a few of their letters; both empty: any value."""

    CLICKABLE: ClassVar[Mapping[str, str]] = {
        "tab mark": "mark",
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

    def __init__(
        self,
        title: str,
        items: Iterable[PickItem],
        chosen: tuple[str, ...],
        excluded: tuple[str, ...] | None = None,
        *,
        takes_text: bool = False,
    ) -> None:
        """Prepare with the known values, best first.

        `wanted` and `excluded` may hold other values. Without `excluded`, values cannot be excluded. With `takes_text`,
        what was typed can be chosen as well, such as a pattern.
        """
        super().__init__()
        self.TITLE_TEXT = title
        self.HINT = f"tab mark{'' if excluded is None else ', again exclude'} · enter apply · ctrl+x any"
        self._marks: dict[str, ChoiceMark] = dict.fromkeys(chosen, "only")
        self._marks |= dict.fromkeys(excluded or (), "not")
        item_of = {item.value: item for item in items}
        self._items = [item_of.get(value, PickItem(value)) for value in dict.fromkeys((*self._marks, *item_of))]
        self._can_exclude = excluded is not None
        self._takes_text = takes_text

    def compose_choice(self) -> ComposeResult:
        yield LineInput(placeholder=f"type to find{'; * matches any text' if self._takes_text else ''}", compact=True)
        yield PickList()

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Close with the choice; without marks, choose the value under the cursor."""
        if not self._marks and (value := self.query_one(PickList).value) is not None:
            self._marks[value] = "only"
        only = tuple(value for value, mark in self._marks.items() if mark == "only")
        excluded = tuple(value for value, mark in self._marks.items() if mark == "not")
        # Without a match there is nothing to apply.
        self.dismiss((only, excluded) if self._marks else None)

    async def on_click(self, event: events.Click) -> None:
        """Choose with a double click, whatever its first click has marked."""
        value = self.query_one(PickList).value
        if event.chain > 1 and "option" in event.style.meta and value is not None:
            self._marks[value] = "only"
            self.action_apply()

    @on(OptionList.OptionSelected)
    def action_mark(self) -> None:
        """Cycle the value under the cursor: shown, excluded, neither."""
        if (value := self.query_one(PickList).value) is not None:
            mark = NEXT_MARK[self._marks.pop(value, None)]
            if mark == "only" or (mark == "not" and self._can_exclude):
                self._marks[value] = mark
            self._find()

    def action_move(self, step: int) -> None:
        """Move the cursor; a single step wraps around the ends."""
        picks = self.query_one(PickList)
        if picks.highlighted is not None:
            index = picks.highlighted + step
            count = picks.option_count
            picks.highlighted = index % count if abs(step) == 1 else min(max(0, index), count - 1)

    def action_nothing(self) -> None:
        """Close without a value, which makes the filter match every value."""
        self.dismiss(((), ()))

    @on(events.Mount)
    @on(Input.Changed)
    def _find(self) -> None:
        text = self.query_one(Input).value.strip()
        # Leave the star of a pattern out of the search.
        letters = text.replace("*", "")
        matches = [(match, item) for item in self._items if (match := fuzzy(letters, item.text)) is not None]
        if text:
            matches.sort(key=lambda pair: -pair[0][0])
        items = [replace(item, found=tuple(positions)) for (_, positions), item in matches[:200]]
        if self._takes_text and "*" in text:
            items.insert(0, PickItem(text, note="pattern"))
        elif self._takes_text and text and all(item.value != text for item in self._items):
            items.append(PickItem(text, note="as typed"))
        self.query_one(PickList).show(tuple(items), self._marks)


async def value_sheet(cache: "Cache", condition: RunFilter, key: KeyName, here: RunRow | None) -> ValuePicker:
    """A sheet of the statuses, repositories or branches of the cached runs; `here` is the run under the cursor."""
    if key == "status":
        counts = await cache.status_counts(condition)
        unusual = sorted({*counts, *condition.statuses, *condition.not_statuses}.difference(STATUS_ORDER))
        items = [PickItem(name, run_badge(name), f"{counts.get(name, 0):,}") for name in (*STATUS_ORDER, *unusual)]
        return ValuePicker("Filter by status", items, condition.statuses, condition.not_statuses)
    if key == "repo":
        names = here.repository if here else "", *await cache.repositories()
        chosen = condition.repositories
        excluded = condition.not_repositories
        title = "Filter by repository"
    else:
        names = (
            here.branch_name if here else "",
            *await cache.branches(replace(condition, branches=(), not_branches=())),
        )
        chosen = condition.branches
        excluded = condition.not_branches
        title = "Filter by branch"
    return ValuePicker(title, map(PickItem, filter(None, names)), chosen, excluded, takes_text=True)


class DatesPicker(PickerScreen[Limits]):
    """Closes with the earliest and the latest start."""

    TITLE_TEXT = "Started"
    HINT = "enter apply · 1 to 7 days back · tab to the limits"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(hidden(str(back), f"day({back})", f"{back} days back") for back in range(1, DAYS_BACK + 1))
    ]

    def __init__(self, line: str, now: datetime) -> None:
        super().__init__()
        self._since, self._until, self._now = limit_in(line, "since"), limit_in(line, "until"), now
        days = [now.astimezone().date() - timedelta(days=back) for back in range(1, DAYS_BACK + 1)]
        dates = [(f"{back}  {day:%A, %d %b}", limits_of(day)) for back, day in enumerate(days, 1)]
        self._choices = [*((name, (since, "")) for name, since in PRESETS), *dates]

    def compose_choice(self) -> ComposeResult:
        yield Options(*(Option(Content(name)) for name, _ in self._choices))
        yield LineInput(self._since, placeholder="from: 2h, 7d, 2026-05-01", compact=True, id="since")
        yield LineInput(self._until, placeholder="until: 1d, 2026-05-31", compact=True, id="until")
        yield SheetNote()

    def on_mount(self) -> None:
        presets = [(since, "") for _, since in PRESETS]
        is_preset = (self._since, self._until) in presets
        self.query_one(Options).highlighted = presets.index((self._since, "")) if is_preset else 0
        if not is_preset:
            self.query_one("#since", LineInput).focus()
        self._explain()

    @on(OptionList.OptionSelected)
    def choose_preset(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[message.option_index][1])

    def action_day(self, back: int) -> None:
        self.dismiss(self._choices[len(PRESETS) + back - 1][1])

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        if self._explain():
            self.dismiss(self._limits)

    @on(Input.Changed)
    def _explain(self) -> bool:
        """Explain the limits; False: they are invalid."""
        query = parse(" ".join(date_terms(self._limits)), self._now)
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
        arrow = "  "
        if is_current:
            arrow = "↓ " if is_down else "↑ "
        words = field.descending if is_down else field.ascending, "$foreground 70%"
        choices.append((Content.assemble(name, (arrow, "$accent"), words), chosen_order(field.name, sort)))
    return ChoiceSheet("Sort by", choices, [field.name for field in SORTABLE].index(sort.column))


def view_picker(views: Sequence[View], current: View) -> ChoiceSheet[tuple[View, bool]]:
    """A sheet that closes with a view, and whether to forget it instead of showing it."""
    names = [view.name for view in views]
    choices = list[tuple[Content, tuple[View, bool]]]()
    for view in views:
        order = f"  sorted by {written_order(view.sort)}" if view.sort else ""
        text = f"{safe_text(view.query, limit=80) or 'every run'}{order}"
        name = f"{safe_text(view.name, limit=24):<25}"
        choices.append((Content.assemble((name, "bold"), (text, "$foreground 70%")), (view, False)))
    index = names.index(current.name) if current.name in names else 0
    sheet = ChoiceSheet("Views", choices, index, forget=lambda choice: (choice[0], True))
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
        name = self.query_one(LineInput).value.strip()
        other = self._explain()
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
        yield Options(*self._entries())

    def on_mount(self) -> None:
        self.query_one(Options).highlighted = 0

    @property
    def _key(self) -> str:
        return self._table.columns.choice.every_key[self.query_one(Options).highlighted or 0]

    @on(OptionList.OptionSelected)
    def action_switch(self) -> None:
        self._change(self._table.columns.choice.with_toggled(self._key))

    def action_shift(self, step: int) -> None:
        self._change(self._table.columns.choice.with_moved(self._key, step))

    def action_size(self, cells: int | None) -> None:
        """Widen the column by this many cells; None: fit its text."""
        key = self._key
        columns = self._table.columns
        drawn = {placed.column.title: placed.width for placed in columns.layout.placed}
        width = columns.choice.widths.get(key) or drawn.get(key) or COLUMN_BY_KEY[key].width
        self._change(columns.choice.with_width(key, None if cells is None else width + cells))

    def action_usual(self) -> None:
        self._change(ColumnChoice())

    def action_keep(self) -> None:
        self.dismiss(self._table.columns.choice)

    def action_leave(self) -> None:
        self._table.set_columns(self._before)
        self.dismiss(None)

    def _change(self, choice: ColumnChoice) -> None:
        key = self._key
        options = self.query_one(Options)
        self._table.set_columns(choice)
        options.set_options(self._entries())
        options.highlighted = choice.every_key.index(key)

    def _entries(self) -> list[Option]:
        choice = self._table.columns.choice
        entries = []
        for key in choice.every_key:
            width = choice.widths.get(key)
            box = ("■ ", "$accent") if key in choice.shown else ("□ ", "$foreground 70%")
            note = "where known" if key in HIDDEN_IF_EMPTY else ""
            if COLUMN_BY_KEY[key].frozen:
                note = "stays in view"
            notes = f"{f'{width} wide' if width else 'automatic':<18}{note}"
            entries.append(Option(Content.assemble(box, f"{key:<14}", (notes, STYLES["quiet"]))))
        return entries
