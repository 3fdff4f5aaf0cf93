"""Exporting runs: as a table for a spreadsheet, or as JSON with everything stored about each."""

import csv
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from app.atomic_file import replacing
from app.run_document import run_document
from app.text import csv_cell, json_escaped
from app.times import rfc3339
from storage.records import RunDetail, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine import Engine

FORMATS: Final = (".csv", ".ndjson", ".json")
COLUMNS: Final = ("run_id", "status", "repository", "branch_name", "created_at", "updated_at", "state", "stuck")
CHUNK: Final = 500
"""Runs read and written at a time, so that a million of them need little memory."""


@dataclass(frozen=True, slots=True)
class Export:
    """The runs to export."""

    engine: "Engine"
    condition: RunFilter
    sort: RunSort
    marks: tuple[str, ...]
    """Ids of the marked runs; empty: all that match the condition."""


def suggested_path(now: datetime) -> Path:
    """A file name with subject and time, in the current folder."""
    return Path(f"runs-{now.astimezone():%Y%m%d-%H%M}.csv")


async def write(what: Export, path: Path) -> int:
    """Write the runs in the format of the file's name, completely or not at all; return their number.

    Raises:
        OSError: The file cannot be written.
        StorageError: The cache cannot be read.
    """
    with replacing(path) as file:
        return await _FILES[path.suffix.lower()](what, file)


async def _as_csv(what: Export, file: IO[str]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    async for details, stuck in _chunks(what):
        writer.writerows([csv_cell(value) for value in _row(detail, stuck)] for detail in details)
        count += len(details)
    return count


async def _as_ndjson(what: Export, file: IO[str]) -> int:
    count = 0
    async for details, stuck in _chunks(what):
        file.writelines(f"{_json(detail, stuck)}\n" for detail in details)
        count += len(details)
    return count


async def _as_json(what: Export, file: IO[str]) -> int:
    file.write('{"runs": [')
    count = 0
    async for details, stuck in _chunks(what):
        for detail in details:
            file.write(f"{',' if count else ''}\n{_json(detail, stuck)}")
            count += 1
    file.write(f'\n], "count": {count}}}\n')
    return count


_FILES: Final = {".csv": _as_csv, ".ndjson": _as_ndjson, ".json": _as_json}


async def _chunks(what: Export) -> AsyncIterator[tuple[Sequence[RunDetail], frozenset[str]]]:
    cache = what.engine.cache
    stuck = await cache.stuck()
    # Runs that arrive during the export shift the pages: a run met twice is written once.
    ids = list(what.marks)
    offset = 0
    while not what.marks and (rows := await cache.rows(what.condition, what.sort, offset=offset, limit=CHUNK * 10)):
        ids += [row.run_id for row in rows]
        offset += len(rows)
    ids = list(dict.fromkeys(ids))
    for start in range(0, len(ids), CHUNK):
        held = await cache.details(ids[start : start + CHUNK])
        yield [held[run_id] for run_id in ids[start : start + CHUNK] if run_id in held], stuck


def _row(detail: RunDetail, stuck: frozenset[str]) -> tuple[object, ...]:
    run = detail.run
    return (
        run.run_id,
        run.status,
        run.repository.label,
        run.branch_name,
        rfc3339(run.created_at),
        rfc3339(run.updated_at),
        detail.presence,
        run.run_id in stuck,
    )


def _json(detail: RunDetail, stuck: frozenset[str]) -> str:
    document = run_document(detail.run, detail, stuck=detail.run.run_id in stuck)
    # Escaped: control sequences stay plain letters when the file is printed.
    return json_escaped(json.dumps(document, allow_nan=False))
