"""The lines around the runs table: the views with their counts, the query, and which runs are missing."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from textual.widgets import Input

from app.console.runs.query_controller import QueryController
from app.console.runs.query_line import limit_in, problem_texts
from app.console.runs.split import WIDE
from app.console.runs.views import ALL
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE
from app.query import QueryProblem, parse, unknown_status
from app.query.parse import KNOWN_STATUSES
from app.query.terms import closest_name
from app.text import safe_text
from storage.records import RunFilter
from widgets.filter.chips import Facet, ViewTab
from widgets.filter.search import SearchInput
from widgets.runs.row_cells import SearchHighlight

if TYPE_CHECKING:
    from textual.containers import Container

    from app.console.runs.bulk_actions import BulkActions
    from app.console.runs.older_runs import OlderRuns
    from app.console.runs.screen_context import ScreenContext
    from app.console.session import Session
    from widgets.filter.bar import FilterBar
    from widgets.filter.extent import Extent
    from widgets.runs.table import RunTable

ANY: Final = "any"
LineChange = Input.Changed | SearchInput.Left | SearchInput.Cleared


def is_cheap(condition: RunFilter) -> bool:
    """Whether an existing index counts these runs: a count must not cost a search of a million runs."""
    return not (condition.is_scan or condition.branches or condition.not_branches)


class ViewCounts:
    """The number of runs in each view, counted in the background."""

    def __init__(self, context: "ScreenContext", query: QueryController, changed: Callable[[], None]) -> None:
        """Start empty; `changed` is called after each change."""
        self._session = context.session
        self._query = query
        self._changed = changed
        self._counts: dict[str, int] = {}
        """By the line of the view."""
        self.statuses: frozenset[str] | None = None
        """All statuses ever seen, and the spec's; None: not read yet."""
        self._latest = CoalescedTask(self._read, context.start)

    def of(self, line: str) -> int | None:
        """The number of runs in the view with this line, or None."""
        return self._counts.get(line)

    def take(self, extent: "Extent") -> None:
        """Take the table's own count at once, and count the others."""
        self._counts[ALL.query] = extent.held
        query = self._query.now
        if not query.is_changed:
            self._counts.pop(query.view.query, None)
            if extent.is_counted:
                self._counts[query.view.query] = extent.matching
        self._latest.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        self.statuses = KNOWN_STATUSES | set(await engine.cache.known_statuses())
        now, found = self._session.run_now(), dict[str, int]()
        for line in dict.fromkeys(view.query for view in self._query.views):
            if is_cheap(condition := parse(line, now).filter):
                found[line] = await engine.cache.count(condition)
            elif line == self._query.now.view.query and line in self._counts:
                found[line] = self._counts[line]
        if found != self._counts:
            self._counts = found
            self._changed()


class FilterDisplay:
    """Keeps the filter bar and the table's highlights in step with the query."""

    def __init__(
        self,
        context: "ScreenContext",
        bar: "FilterBar",
        table: "RunTable",
        query: QueryController,
        bulk_actions: "BulkActions",
    ) -> None:
        self._session = context.session
        self._bar = bar
        self._table = table
        self._query = query
        self._bulk_actions = bulk_actions
        self.counts = ViewCounts(context, query, self.show_views)

    def show_query(self) -> None:
        """Show the line, the order and the views."""
        now, condition = self._query.now, self._query.condition
        self._table.highlight(SearchHighlight.of(condition))
        if now.cursor is None:
            self._bar.line.put(now.line, 0)
        self._table.sorted_by(now.sort)
        self.show_views()
        self._bar.facets(facets(now.line, condition))
        self.show_remark()

    def search(self) -> None:
        """Focus the line behind a blank: typing begins a new term."""
        line = self._bar.line
        line.focus()
        line.put(f"{line.value.rstrip()} ".lstrip())
        self._query.learn()

    def line_changed(self, message: LineChange) -> None:
        """Apply a change of the line."""
        match message:
            case Input.Changed():
                self._typed()
            case SearchInput.Left():
                self._leave(is_cleared=False)
            case SearchInput.Cleared():
                self._leave(is_cleared=True)

    def _typed(self) -> None:
        """Apply the line as typed, and suggest what could come next."""
        # At once, without a pause: the next key cancels a running search.
        line = self._bar.line
        if line.has_focus:
            self._query.type(line.value, line.cursor_position)
            self._bar.offer(self._query.offers(line.value, line.cursor_position))

    def _leave(self, *, is_cleared: bool) -> None:
        """Go back to the table, with the line as typed or as the view has it."""
        value, cursor = self._bar.line.value, self._bar.line.cursor_position
        self._table.focus()
        self._bar.offer(())
        if is_cleared:
            self._query.reset_line()
        else:
            self._query.leave(value, cursor)

    def show_views(self) -> None:
        """Show the views with the known counts."""
        views, now = self._query.views, self._query.now
        tabs = tuple(ViewTab(safe_text(view.name, limit=30), self.counts.of(view.query)) for view in views)
        self._bar.views.show(tabs, self._query.view_index, is_changed=now.is_changed)

    def show_remark(self) -> None:
        """Show the problem with the line, or else the number of marked runs."""
        problems = self._query.now.query(self._session.run_now()).problems or self._unknown_statuses()
        if problems:
            self._bar.remark(*problem_texts(problems[0]), tone="bad")
        elif self._table.marks:
            self._bar.remark(self._bulk_actions.summary(is_wide=self._bar.app.size.width >= WIDE), tone="busy")
        else:
            self._bar.remark()

    def _unknown_statuses(self) -> tuple[QueryProblem, ...]:
        """Problems with statuses; an excluded one may be unknown, unless it is misspelt."""
        known, condition = self.counts.statuses, self._query.condition
        if known is None or self._query.now.cursor is not None:
            return ()
        excluded = (status for status in condition.not_statuses if closest_name(status, known))
        unknown = [status for status in (*condition.statuses, *excluded) if status not in known]
        return tuple(QueryProblem(0, 0, *unknown_status(status, known)) for status in unknown)

    def explanation(self, otherwise: Callable[[], str]) -> str:
        """The text beside the table while the cursor is on no run: about its group, or what is missing."""
        group = self._table.group
        if group is None:
            return otherwise()
        if group.others:
            return f"{group.others:,} more groups with {group.runs:,} runs: a narrower query shows them."
        folding = "unfolds" if group.is_folded else "folds"
        name = safe_text(group.name, limit=200) or "no branch"
        runs, them = ("1 run", "it") if group.runs == 1 else (f"{group.runs:,} runs", "them")
        return f"{runs} of {name}; enter {folding} {them}, Z all groups, # groups otherwise."

    @property
    def has_count(self) -> bool:
        """Whether a tab shows the number of matching runs."""
        return not self._query.now.is_changed and self.counts.of(self._query.now.view.query) is not None


def facets(line: str, condition: RunFilter) -> tuple[Facet, ...]:
    """The filter's status, repository, branch and time, a word each."""
    flags = {"active": condition.active, "ended": condition.ended, "stuck": condition.stuck}
    states = [name for name, is_set in flags.items() if is_set]
    times = [f"{key} {text}" for key in ("since", "until") if (text := limit_in(line, key))]
    found = (
        ("status", [*states, *_values(condition.statuses, condition.not_statuses)]),
        ("repository", _values(condition.repositories, condition.not_repositories)),
        ("branch", _values(condition.branches, condition.not_branches)),
        ("started", times),
    )
    return tuple(Facet(name, safe_text(_brief(values), limit=60), bool(values)) for name, values in found)


class ExtentDisplay:
    """Keeps the texts about missing runs in step with the cache."""

    def __init__(
        self,
        session: "Session",
        bar: "FilterBar",
        body: "Container",
        table: "RunTable",
        older_runs: "OlderRuns",
        filter_display: "FilterDisplay",
        changed: Callable[[], None],
    ) -> None:
        """Prepare; `body` holds the table, and `changed` is called each time that the lines are brought up to date."""
        self._session = session
        self._bar = bar
        self._body = body
        self._table = table
        self._older_runs = older_runs
        self._filter_display = filter_display
        self._changed = changed

    def take(self, extent: "Extent") -> None:
        """Show what the cache holds now."""
        self._older_runs.extent = extent
        self._filter_display.counts.take(extent)
        self._filter_display.show_views()
        self.show()

    def show(self) -> None:
        """Bring the lines up to date: the fetching goes on, and time passes."""
        if (line := self._older_runs.line(has_counts=self._filter_display.has_count)) is not None:
            self._bar.show(line)
            self._table.end_with(self._older_runs.tail())
            self._changed()
            self.explain()

    def explain(self) -> None:
        """Say why there are no rows, while there are none."""
        # Only once the extent is known: the pane would come later, and push the table aside.
        extent = self._older_runs.extent
        has_none = extent is not None and not extent.held
        self._body.set_class(has_none and not self._table.count, "-empty")
        unreadable = self._session.vitals.storage_trouble is not None
        self._table.say(UNREADABLE if unreadable else self._older_runs.nothing_here())


def _values(shown: Iterable[str], excluded: Iterable[str]) -> list[str]:
    return [*shown, *(f"not {value}" for value in excluded)]


def _brief(values: Sequence[str]) -> str:
    if not values:
        return ANY
    return values[0] if len(values) == 1 else f"{values[0]} +{len(values) - 1}"
