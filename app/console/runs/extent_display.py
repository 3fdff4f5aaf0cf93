"""Missing runs: the texts above the table, below its last run, and in its place while it is empty."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.console.session.troubles import UNREADABLE

if TYPE_CHECKING:
    from textual.containers import Container

    from app.console.runs.filter_display import FilterDisplay
    from app.console.runs.older_runs import OlderRuns
    from app.console.session import Session
    from widgets.filter.bar import FilterBar
    from widgets.filter.extent import Extent
    from widgets.runs.table import RunTable


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
        # Not before it is known: the pane would come later, and push the table aside.
        extent = self._older_runs.extent
        has_none = extent is not None and not extent.held
        self._body.set_class(has_none and not self._table.count, "-empty")
        unreadable = self._session.vitals.storage_trouble is not None
        self._table.say(UNREADABLE if unreadable else self._older_runs.nothing_here())
