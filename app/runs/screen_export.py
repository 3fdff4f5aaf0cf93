"""Exporting runs: as a table for a spreadsheet, or as JSON with everything stored about each."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.console.sheets import ExportScreen
from app.engine.export import exporting
from app.engine.text import plural
from app.engine.times import rfc3339
from app.runs.document import run_document
from storage.records import RunFilter, RunSort

if TYPE_CHECKING:
    from app.console.base import BaseScreen
    from app.engine.engine import Engine
    from app.runs.screen_views import TableQuery

COLUMNS: Final = (
    *("run_id", "status", "repository", "branch_name", "created_at", "updated_at", "state", "stuck"),
    *("agent", "findings"),
)
CHUNK: Final = 500
"""Runs read and written at a time, so that a million of them need little memory."""


class Export(Struct, frozen=True):
    """The runs to export."""

    engine: "Engine"
    condition: RunFilter
    sort: RunSort
    marks: tuple[str, ...]
    """Ids of the marked runs; empty: all that match the condition."""


async def write(what: Export, path: Path) -> int:
    """Write the runs in the format of the file's name, completely or not at all; return their number.

    Raises:
        OSError: The file cannot be written.
        StorageError: The cache cannot be read.
    """
    cache = what.engine.cache
    stuck = await cache.stuck()
    # Runs that arrive during the export shift the pages: a run met twice is written once.
    ids = list(what.marks)
    offset = 0
    while not what.marks and (rows := await cache.rows(what.condition, what.sort, offset=offset, limit=CHUNK * 10)):
        ids += [row.run_id for row in rows]
        offset += len(rows)
    ids = list(dict.fromkeys(ids))
    with exporting(path, "runs", COLUMNS) as file:
        for start in range(0, len(ids), CHUNK):
            held = await cache.details(ids[start : start + CHUNK])
            for detail in [held[run_id] for run_id in ids[start : start + CHUNK] if run_id in held]:
                run, is_stuck = detail.run, detail.run.run_id in stuck
                times = rfc3339(run.created_at), rfc3339(run.updated_at)
                row = run.run_id, run.status, run.repository.label, run.branch_name, *times, detail.presence, is_stuck
                # An empty cell: not known.
                known = detail.summary.agent, None if (findings := detail.summary.findings) is None else str(findings)
                file.add((*row, *known), run_document(run, detail, stuck=is_stuck))
        return file.count


async def show_export(screen: "BaseScreen", engine: "Engine", query: "TableQuery", marks: tuple[str, ...]) -> None:
    """Show the sheet that writes the marked runs to a file; without marks, all that match."""
    session = screen.session
    condition = query.condition(session.run_now())
    count = len(marks) or await engine.cache.count(condition)
    export = Export(engine, condition, query.sort, marks)

    async def written(path: Path) -> str:
        return f"{plural(await write(export, path), 'run')} written to {path}"

    title = f"Export {count:,} {'marked' if marks else 'matching'} {'run' if count == 1 else 'runs'}"
    suggested = Path(f"runs-{session.clock().astimezone():%Y%m%d-%H%M}.csv")
    if outcome := await screen.app.push_screen_wait(ExportScreen(title, suggested, written)):
        session.notify(outcome)
