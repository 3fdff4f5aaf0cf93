"""The actions on many runs: mark, continue, copy ids, export."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, assert_never

from textual.binding import Binding

from app.console.messages import FollowRun
from app.console.runs.query_controller import QueryController
from app.console.runs.screen_context import ScreenContext
from app.console.session import LONGEST_COPY, Session
from app.text import SafeText, plural, safe_text
from storage.records import RunFilter, RunSort, WindowRequest
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from app.engine import Engine

FormName = Literal["retry", "continue", "like"]
"""What is done with many runs at once."""
MOST_MARKS: Final = 1_000
"""Runs marked at a time: for more there are filters."""


_hidden = partial(Binding, show=False)
BULK_BINDINGS: Final = (
    _hidden(
        "asterisk",
        "run('mark_all')",
        "mark all",
        key_display="*",
        tooltip="Everything that matches",
        id="runs.mark_all",
    ),
    _hidden("T", "run('retry')", "retry failed", tooltip="The same instructions again", id="runs.retry"),
    _hidden("x", "run('export')", "export", tooltip="The marked runs, or all that match, to a file", id="runs.export"),
)


class BulkActions:
    """The actions on the marked runs, or on all that match the query."""

    def __init__(self, context: ScreenContext, query: QueryController, table: RunTable) -> None:
        self._context = context
        self._session = context.session
        self._query = query
        self._table = table
        self._actions: dict[str, Callable[[], None]] = {
            "mark_all": lambda: context.with_engine(self._mark_all, "pick"),
            "export": lambda: context.with_engine(self._export, "form"),
            "retry": lambda: context.with_engine(partial(self._many, name="retry"), "form"),
        }
        self._for_marked: dict[str, Callable[[], None]] = {
            "continue": lambda: context.with_engine(partial(self._many, name="continue"), "form"),
            "new_like": lambda: context.with_engine(partial(self._many, name="like"), "form"),
            "copy_id": self._copy_ids,
            "follow": self._follow,
        }
        """Actions that apply to all marked runs while there are any, else to one."""

    def do(self, name: str) -> bool:
        """Run this action; False: it does not apply to several runs."""
        action = self._actions.get(name) or (self._for_marked.get(name) if self._table.marks else None)
        if action is not None:
            action()
        return action is not None

    def summary(self, *, is_wide: bool) -> SafeText:
        """The number of marked runs, with their keys if there is room."""
        keys = " · c continues · T retries · N starts alike · f follows · x exports · esc unmarks" if is_wide else ""
        count, cap = len(self._table.marks), self._session.settings.console.send_cap
        capped = f" · sent to {cap:,} at a time" if count > cap else ""
        return safe_text(f"■ {count:,} marked{capped}{keys}")

    def mark_range(self, first_id: str, last_id: str) -> None:
        """Mark every run from one to another."""
        self._context.with_engine(lambda engine: self._mark_range(engine, first_id, last_id), "pick")

    def _follow(self) -> None:
        self._context.post(FollowRun(self._table.marks.ids))

    def _copy_ids(self) -> None:
        ids = self._table.marks.ids
        lines = "\n".join(safe_text(run_id, limit=LONGEST_COPY) for run_id in ids)
        self._session.copy_as_is(lines, f"Copied {len(ids):,} run ids")

    async def _mark_all(self, engine: "Engine") -> None:
        ids = await ids_of(self._session, engine, self._query.condition, self._query.now.sort)
        if all(run_id in self._table.marks for run_id in ids):
            self._table.unmark(ids)
        else:
            self._table.mark_all(ids)

    async def _mark_range(self, engine: "Engine", first_id: str, last_id: str) -> None:
        condition, sort, grouping = self._query.condition, self._query.now.sort, self._query.now.grouping
        around = WindowRequest(condition, sort, 0, 0, grouping=grouping)
        ends = [
            (await engine.cache.window(replace(around, cursor_id=run_id))).cursor_index
            if grouping
            else await engine.cache.index_of(run_id, condition, sort)
            for run_id in (first_id, last_id)
        ]
        known = sorted(index for index in ends if index is not None)
        # A filter may hide one end of the range.
        if not known:
            return
        start, count = known[0], known[-1] - known[0] + 1
        if count > MOST_MARKS:
            self._refuse(f"That would mark {count:,} runs; at most {MOST_MARKS:,} are marked at a time.")
            return
        if grouping:
            rows = (await engine.cache.window(replace(around, offset=start, limit=count))).rows
        else:
            rows = await engine.cache.rows(condition, sort, offset=start, limit=count)
        self._table.mark_all(row.run_id for row in rows)

    def _refuse(self, why: str) -> None:
        self._session.notify(why, severity="warning")

    async def _many(self, engine: "Engine", name: FormName) -> None:
        ids = self._table.marks.ids or ((self._table.row.run_id,) if self._table.row is not None else ())
        await show_many(self._context, engine, name, ids, self._sent)

    def _sent(self, run_ids: tuple[str, ...]) -> None:
        if run_ids:
            # Runs that were left out stay marked, for another attempt.
            self._table.unmark(run_ids)
            self._session.poll_soon()

    async def _export(self, engine: "Engine") -> None:
        from app.console.runs.export import FORMATS, Export, suggested_path, write
        from app.console.sheets.export import ExportScreen

        condition, marks = self._query.condition, self._table.marks.ids
        count = len(marks) or await engine.cache.count(condition)
        export = Export(engine, condition, self._query.now.sort, marks)

        async def written(path: "Path") -> str:
            return f"{plural(await write(export, path), 'run')} written to {path}"

        title = f"Export {count:,} {'marked' if marks else 'matching'} {'run' if count == 1 else 'runs'}"
        sheet = ExportScreen(title, suggested_path(self._session.clock()), FORMATS, written)
        self._context.push_screen(sheet, self._exported)

    def _exported(self, said: str | None) -> None:
        if said is not None:
            self._session.notify(said)


async def ids_of(session: Session, engine: "Engine", condition: RunFilter, sort: RunSort) -> tuple[str, ...]:
    """Ids of all matching runs; none, with a reason, if they are too many."""
    total = await engine.cache.count(condition)
    if total > MOST_MARKS:
        why = f"{total:,} runs match; at most {MOST_MARKS:,} are marked at a time. Narrow the filter first."
        session.notify(why, severity="warning")
        return ()
    return tuple(row.run_id for row in await engine.cache.rows(condition, sort, offset=0, limit=MOST_MARKS))


async def show_many(
    context: ScreenContext,
    engine: "Engine",
    name: FormName,
    ids: "Sequence[str]",
    sent: "Callable[[tuple[str, ...]], None]",
) -> None:
    """Show the form that retries, continues or starts alike these runs; `sent` gets the ids it was done for."""
    from app.console.runs.batch import continued, retried, started_like
    from app.console.runs.many_form import ManyForm

    session, held = context.session, await engine.cache.details(ids)
    runs = tuple(held[run_id].run for run_id in ids if run_id in held)
    match name:
        case "retry":
            task = await retried(engine.ledger, runs)
        case "continue":
            task = await continued(engine.ledger, runs, await engine.cache.final_statuses())
        case "like":
            task = await started_like(engine.ledger, runs)
        case _:
            assert_never(name)
    if not task.runs:
        session.notify(task.nothing, severity="warning")
        return
    form = ManyForm(engine, task, cap=session.settings.console.send_cap, changed=session.batches.put)
    context.push_screen(form, lambda _: sent(form.confirmed))
