"""One run in full, read from the cache and the ledger."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from app.console.ledger_turns import indented, turn_of
from app.console.session.coalesced_task import CoalescedTask
from app.text import safe_text
from widgets.runs.facts import Branch, RunView

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.console.base.screen import BaseScreen
    from app.console.runs.table_loader import TableLoader
    from app.engine import Engine
    from app.events import Event
    from widgets.runs.pane import RunPane

BESIDE: Final = 3
"""Runs shown before and after one on the same branch."""
MOST_BESIDE: Final = 100
"""Runs beyond these are not counted."""
RESTS_S: Final = 0.4
"""How long the cursor rests on a run before the service is asked about it."""


class PaneLoader:
    """Keeps the pane on the run under a table's cursor."""

    def __init__(
        self, screen: "BaseScreen", pane: "RunPane", rows: "TableLoader", otherwise: Callable[[], str]
    ) -> None:
        """Prepare; `otherwise` returns the text while the cursor is on no run."""
        self._screen = screen
        self._pane = pane
        self._rows = rows
        self._otherwise = otherwise
        self._timer: Timer | None = None
        self.load = CoalescedTask(self._read, screen.run_worker).ask

    async def begin(self) -> None:
        """Read with the engine as soon as it is open."""
        await self._screen.session.opened()
        self.load()

    def engine_changed(self, event: "Event") -> None:
        """Read the run again if the event may have changed it."""
        from app.events import ActionChanged, CacheChangedElsewhere, RunsChanged

        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self.load()

    async def _read(self) -> None:
        engine, table, turns = self._screen.session.engine, self._rows.table, self._rows.service_turns
        if engine is None or table.row is None:
            self._pane.show(None, otherwise=self._otherwise())
            return
        view = await read_run(engine, table.row.run_id, stuck=table.is_stuck(table.row.run_id))
        if view is not None and turns.holds(view.detail.run):
            view = self._with_service_facts(view)
        elif view is not None and view.detail.is_final:
            # Ask once the cursor has rested on the run.
            if self._timer is not None:
                self._timer.stop()
            ask = partial(self._screen.run_worker, partial(self._ask, engine, view), exclusive=True, group="told")
            self._timer = self._pane.set_timer(RESTS_S, ask)
        self._pane.show(view)

    async def _ask(self, engine: "Engine", view: RunView) -> None:
        """Ask the service for the figures that only it has."""
        from app.api.errors import ApiError

        # A failing service is reported in the header; the next visit asks again.
        with suppress(ApiError):
            await self._rows.service_turns.ask(engine.extension, view.detail.run)
            row = self._rows.table.row
            if row is not None and row.run_id == view.detail.run.run_id:
                self._pane.show(self._with_service_facts(view))

    def _with_service_facts(self, view: RunView) -> RunView:
        from app.results.service import reason

        turns = self._rows.service_turns.known(view.detail.run)
        count = turns.turns[-1].number if turns is not None and turns.turns else None
        return replace(view, reason=safe_text(reason(turns)) or None, turn_count=count)


async def read_run(engine: "Engine", run_id: str, *, stuck: bool) -> RunView | None:
    """Read a run with the instructions sent from here; None: the cache does not hold it.

    Raises:
        StorageError: Cache or ledger cannot be read.
    """
    cache, ledger = engine.cache, engine.ledger
    detail, ahead = await cache.detail(run_id), await cache.run_clock_ahead()
    if detail is None:
        return None
    # By the service's clock, as all other times of a run.
    seen = replace(detail, first_seen_at=detail.first_seen_at + ahead, last_seen_at=detail.last_seen_at + ahead)
    actions = await ledger.for_run(run_id)
    earlier = (a.subject for a in actions if a.kind == "run.continue" and run_id == a.result_id != a.subject)
    return RunView(
        seen,
        tuple(turn_of(action) for action in actions),
        stuck,
        next(earlier, None),
        Branch(*await cache.on_branch(run_id, each_way=BESIDE, most=MOST_BESIDE)),
        indented(detail.run.raw_json),
        engine.settings.history.confirmed_for,
    )
