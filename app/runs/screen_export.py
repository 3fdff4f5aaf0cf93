"""Exports of runs, as a spreadsheet table or as JSON with all stored data, and the sheet for any export."""

import csv
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TextIO

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from app.console.sheets import PickerScreen, SheetNote, typed_path
from app.engine.atomic_file import replacing
from app.engine.text import csv_cell, json_escaped, plural
from app.engine.times import rfc3339
from app.runs.document import run_document
from storage.errors import StorageError
from storage.records import RunFilter, RunSort
from widgets.forms.inputs import LineInput
from widgets.kit import hidden

if TYPE_CHECKING:
    from app.console.base import BaseScreen
    from app.engine.engine import Engine
    from app.runs.screen_views import TableQuery
    from storage.cache.cache import Cache

FORMATS: Final = (".csv", ".ndjson", ".json")
ENDINGS: Final = ".csv, .ndjson or .json"


class ExportFile:
    """One file that is being written."""

    def __init__(self, file: TextIO, suffix: str) -> None:
        self._file = file
        self._suffix = suffix
        self.table = csv.writer(file, lineterminator="\n")
        self.count = 0

    def add(self, row: Sequence[object], document: Mapping[str, object]) -> None:
        if self._suffix == ".csv":
            self.table.writerow(map(csv_cell, row))
        else:
            # Escaped: control sequences stay plain letters when the file is printed.
            text = json_escaped(json.dumps(document, allow_nan=False))
            comma = "," if self.count else ""
            self._file.write(f"{text}\n" if self._suffix == ".ndjson" else f"{comma}\n{text}")
        self.count += 1


@contextmanager
def exporting(
    path: Path, key: str, columns: Sequence[str], more: Mapping[str, object] | None = None
) -> Iterator[ExportFile]:
    """Write many items in the format of the file's name; the JSON document is `{key: items, "count": n, …more}`.

    Raises:
        OSError: The file cannot be written.
    """
    suffix = path.suffix.lower()
    with replacing(path) as file:
        export = ExportFile(file, suffix)
        if suffix == ".json":
            file.write(f'{{"{key}": [')
        elif suffix == ".csv":
            export.table.writerow(columns)
        yield export
        if suffix == ".json":
            file.write(f"\n], {json.dumps({'count': export.count, **(more or {})}).removeprefix('{')}\n")


COLUMNS: Final = (
    *("run_id", "status", "repository", "branch_name", "created_at", "updated_at", "state", "stuck"),
    *("agent", "findings"),
)
CHUNK: Final = 500
"""Runs read and written at a time, so that a million of them need little memory."""


async def write(cache: "Cache", condition: RunFilter, sort: RunSort, marks: Sequence[str], path: Path) -> int:
    """Write the marked runs, or all that match, in the format of the file's name, completely or not at all.

    Returns their number; raises as `exporting` does, or a StorageError.
    """
    stuck = await cache.stuck()
    ids = list(marks)
    while not marks and (rows := await cache.rows(condition, sort, offset=len(ids), limit=CHUNK * 10)):
        ids += [row.run_id for row in rows]
    # Runs that arrive during the export shift the pages: a run met twice is written once.
    ids = list(dict.fromkeys(ids))
    with exporting(path, "runs", COLUMNS) as file:
        for start in range(0, len(ids), CHUNK):
            details = await cache.details(ids[start : start + CHUNK])
            for detail in [details[run_id] for run_id in ids[start : start + CHUNK] if run_id in details]:
                run = detail.run
                is_stuck = detail.run.run_id in stuck
                times = rfc3339(run.created_at), rfc3339(run.updated_at)
                row = run.run_id, run.status, run.repository.label, run.branch_name, *times, detail.presence, is_stuck
                # An empty cell means unknown.
                extra = detail.summary.agent, None if (findings := detail.summary.findings) is None else str(findings)
                file.add((*row, *extra), run_document(run, detail, stuck=is_stuck))
        return file.count


async def show_export(screen: "BaseScreen", engine: "Engine", query: "TableQuery", marks: tuple[str, ...]) -> None:
    """Show the sheet that writes the marked runs to a file; without marks, all that match."""
    session = screen.session
    condition = query.condition(session.run_now())
    count = len(marks) or await engine.cache.count(condition)

    async def write_export(path: Path) -> str:
        return f"{plural(await write(engine.cache, condition, query.sort, marks, path), 'run')} written to {path}"

    title = f"Export {count:,} {'marked' if marks else 'matching'} {'run' if count == 1 else 'runs'}"
    suggested = Path(f"runs-{session.clock().astimezone():%Y%m%d-%H%M}.csv")
    if outcome := await screen.app.push_screen_wait(ExportScreen(title, suggested, write_export)):
        session.notify(outcome)


class ExportScreen(PickerScreen[str]):
    """Writes the file and closes with the result as text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("ctrl+s", "replace", "replace the file", id="export.replace", priority=True)
    ]

    def __init__(self, title: str, suggested: Path, write: Callable[[Path], Awaitable[str]]) -> None:
        """Prepare; `write` writes the file completely or not at all, and may raise OSError and StorageError."""
        super().__init__()
        self.TITLE_TEXT = title
        self.HINT = f"{ENDINGS}, by its ending · enter save"
        self._suggested = suggested
        self._write_file = write
        self._replacing: Path | None = None
        """The existing file that the user was warned of."""

    def compose_choice(self) -> ComposeResult:
        yield LineInput(str(self._suggested), compact=True, select_on_focus=False)
        yield SheetNote()

    @on(Input.Changed)
    def clear_note(self) -> None:
        self._replacing = None
        self.query_one(SheetNote).say("")

    @on(Input.Submitted)
    def export_to(self, message: Input.Submitted) -> None:
        path = typed_path(message.value)
        note = self.query_one(SheetNote)
        if (reason := export_problem(path)) is not None:
            note.say(reason, "bad")
        elif any(worker.name == str(path.absolute()) for worker in self.app.workers if not worker.is_finished):
            note.say("This file is being written: wait, or name another.", "warn")
        elif path.exists():
            self._replacing = path
            note.say("The file exists: ctrl+s replaces it, esc keeps it.", "warn")
        else:
            self._start(path)

    def action_replace(self) -> None:
        """Replace the file that the user was warned of."""
        if self._replacing is not None:
            self._start(self._replacing)

    def _start(self, path: Path) -> None:
        async def write() -> None:
            try:
                result = await self._write_file(path)
            except OSError as error:
                self.report_failure(f"{path} cannot be written: {error.strerror or error}.")
            except StorageError as error:
                self.report_failure(str(error))
            else:
                self.finish(result)

        self._replacing = None
        self.query_one(SheetNote).say("Writing…", "busy")
        self.begin(write, name=str(path.absolute()), group="export")


def export_problem(path: Path) -> str | None:
    """Why a file cannot have this name; None if the name looks usable before writing."""
    if path.suffix.lower() not in FORMATS:
        return f"End the name in {ENDINGS}: it chooses the format."
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file."
        if not path.parent.is_dir():
            return f"There is no folder {path.parent}."
    except OSError as error:
        return f"Not a possible file name: {error.strerror or error}. Name another."
    return None
