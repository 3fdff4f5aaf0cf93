"""What is done with many runs at once: finding and marking them, the form for many, and the export."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, assert_never

from app.console.base.screen import BaseScreen
from app.console.runs.views import TableQuery
from app.console.session import Session
from app.text import plural
from storage.records import RunFilter, RunSort, WindowRequest

if TYPE_CHECKING:
    from app.engine import Engine

FormName = Literal["retry", "continue", "like"]
"""What is done with many runs at once."""
MOST_MARKS: Final = 1_000
"""Runs marked at a time: for more there are filters."""


async def ids_of(session: Session, engine: "Engine", condition: RunFilter, sort: RunSort) -> tuple[str, ...]:
    """Ids of all matching runs; none, with a reason, if they are too many."""
    total = await engine.cache.count(condition)
    if total > MOST_MARKS:
        why = f"{total:,} runs match; at most {MOST_MARKS:,} are marked at a time. Narrow the filter first."
        session.notify(why, severity="warning")
        return ()
    return tuple(row.run_id for row in await engine.cache.rows(condition, sort, offset=0, limit=MOST_MARKS))


async def ids_between(
    session: Session, engine: "Engine", query: TableQuery, first_id: str, last_id: str
) -> tuple[str, ...]:
    """Ids of all runs from one to another; none, with a reason, if they are too many."""
    around = WindowRequest(query.condition(session.run_now()), query.sort, 0, 0, grouping=query.grouping)
    ends = [
        (await engine.cache.window(replace(around, cursor_id=run_id))).cursor_index for run_id in (first_id, last_id)
    ]
    known = sorted(index for index in ends if index is not None)
    # A filter may hide one end of the range.
    if not known:
        return ()
    start, count = known[0], known[-1] - known[0] + 1
    if count > MOST_MARKS:
        why = f"That would mark {count:,} runs; at most {MOST_MARKS:,} are marked at a time."
        session.notify(why, severity="warning")
        return ()
    return tuple(row.run_id for row in (await engine.cache.window(replace(around, offset=start, limit=count))).rows)


async def show_many(
    screen: BaseScreen,
    engine: "Engine",
    name: FormName,
    ids: Sequence[str],
    sent: Callable[[tuple[str, ...]], None],
) -> None:
    """Show the form that retries, continues or starts alike these runs; `sent` gets the ids it was done for."""
    from app.console.runs.batch import continued, retried, started_like
    from app.console.runs.many_form import ManyForm

    session, held = screen.session, await engine.cache.details(ids)
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
    screen.app.push_screen(form, lambda _: sent(form.confirmed))


async def show_export(screen: BaseScreen, engine: "Engine", query: TableQuery, marks: tuple[str, ...]) -> None:
    """Show the sheet that writes the marked runs, or else all that match, to a file."""
    from app.console.runs.export import FORMATS, Export, suggested_path, write
    from app.console.sheets.export import ExportScreen

    session = screen.session
    condition = query.condition(session.run_now())
    count = len(marks) or await engine.cache.count(condition)
    export = Export(engine, condition, query.sort, marks)

    async def written(path: Path) -> str:
        return f"{plural(await write(export, path), 'run')} written to {path}"

    def exported(outcome: str | None) -> None:
        if outcome is not None:
            session.notify(outcome)

    title = f"Export {count:,} {'marked' if marks else 'matching'} {'run' if count == 1 else 'runs'}"
    screen.app.push_screen(ExportScreen(title, suggested_path(session.clock()), FORMATS, written), exported)
