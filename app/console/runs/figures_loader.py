"""Reading the figures of runs that only the service has: turns, lines and pull requests."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from app.console.runs.screen_context import ScreenContext
from app.console.session.coalesced_task import CoalescedTask
from widgets.runs.columns import FIGURES
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.results.service import ServiceTurns
    from storage.records import RunDetail
    from storage.records.run import RunFigures

PAUSE: Final = timedelta(seconds=30)
"""The pause after a failed request."""


class FiguresLoader:
    """Reads figures from the cache, then from the service, run by run and behind all other requests."""

    def __init__(self, context: ScreenContext, table: RunTable) -> None:
        self._session = context.session
        self.table = table
        self._task = CoalescedTask(self._read, context.start)
        self._figures: dict[str, RunFigures] = {}
        self._states: dict[str, object] = {}
        """The state for which each run's figures are complete."""
        self._not_before: datetime | None = None

    @cached_property
    def service_turns(self) -> "ServiceTurns":
        """The service's turns of the runs that it was asked about."""
        from app.results.service import ServiceTurns  # keeps the first frame quick

        return ServiceTurns()

    def look(self) -> None:
        """Read the missing figures of the runs in view."""
        is_paused = self._not_before is not None and self._session.clock() < self._not_before
        if not is_paused and FIGURES & set(self.table.choice.shown) and self._lacking():
            self._task.ask()

    def _lacking(self) -> list[str]:
        rows = self.table.rows_on_show
        return [row.run_id for row in rows if self._states.get(row.run_id) != (row.status, row.updated_at)]

    async def _read(self) -> None:
        from app.api.budget import Priority
        from app.api.errors import ApiError

        engine = self._session.engine
        if engine is None:
            return
        details = list((await engine.cache.details(self._lacking())).values())
        self._show(details)
        extension = replace(engine.extension, client=engine.client.at(Priority.BACKFILL))
        for detail in details:
            if detail.run.run_id not in self._lacking():
                continue  # It has left the view.
            try:
                await self.service_turns.ask(extension, detail.run)
            except ApiError:
                self._not_before = self._session.clock() + PAUSE
                return
            self._states[detail.run.run_id] = detail.run.status, detail.run.updated_at
            self._show([detail])

    def _show(self, details: "Sequence[RunDetail]") -> None:
        from app.results.service import figures

        self._figures |= {each.run.run_id: figures(each, self.service_turns.known(each.run)) for each in details}
        self.table.show_figures(dict(self._figures))
