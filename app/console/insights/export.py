"""The exported figures: the same numbers as in charts and tables."""

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Final

from app.atomic_file import replacing
from app.text import csv_cell, json_escaped
from storage.records.insights import Concurrency, Outcomes, RepositoryFigures
from widgets.insights.figures import InsightsView

FORMATS: Final = (".csv", ".json")
COLUMNS: Final = ("figure", "from", "to", "repository", "measure", "value")

OUTCOMES: Final = {name: name for name in ("completed", "failed", "unfinished", "ended_otherwise")}
DURATIONS: Final = {"success": "success_rate", "p50_s": "p50_s", "p95_s": "p95_s", "timed": "timed_runs"}
"""The measures, with their names in JSON."""

CsvRow = tuple[str, str, str, str, str, float | int | None]


def write(view: InsightsView, path: Path) -> None:
    """Write the figures in the format of the file's name, completely or not at all.

    Raises:
        OSError: The file could not be written.
    """
    text = as_json(view) if path.suffix.lower() == ".json" else as_csv(view)
    with replacing(path) as file:
        file.write(text)


def as_csv(view: InsightsView) -> str:
    """Format as CSV, one figure a line."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _csv_rows(view):
        writer.writerow([csv_cell(value) for value in row])
    return buffer.getvalue()


def as_json(view: InsightsView) -> str:
    """Format as one JSON document; `complete_since` is null if nothing is known to be complete."""

    def figures(each: Outcomes | RepositoryFigures, measures: Mapping[str, str]) -> dict[str, float | int | None]:
        return {name: getattr(each, measure) for measure, name in measures.items()}

    document = {
        "from": _time(view.since),
        "to": _time(view.at),
        "complete_since": _time(view.coverage.complete_since),
        "complete": view.is_complete,
        "outcomes": [
            {"from": _time(each.start), "to": _time(each.end), **figures(each, OUTCOMES)} for each in view.outcomes
        ],
        "repositories": [
            {"repository": each.repository, **figures(each, OUTCOMES | DURATIONS)} for each in view.repositories
        ],
        "concurrency": [
            {"from": _time(each.start), "to": _time(each.end), "average": _average(each, view)}
            for each in view.concurrency
        ],
    }
    return json_escaped(json.dumps(document, indent=2)) + "\n"


def _csv_rows(view: InsightsView) -> Iterator[CsvRow]:
    since, until = _time(view.since) or "", _time(view.at) or ""
    for outcome in view.outcomes:
        start, end = _time(outcome.start) or "", _time(outcome.end) or ""
        for measure in OUTCOMES:
            yield "outcomes", start, end, "", measure, getattr(outcome, measure)
    for each in view.repositories:
        for measure in OUTCOMES | DURATIONS:
            yield "repositories", since, until, each.repository, measure, getattr(each, measure)
    for moment in view.concurrency:
        start, end = _time(moment.start) or "", _time(moment.end) or ""
        yield "concurrency", start, end, "", "average", _average(moment, view)


def _average(each: Concurrency, view: InsightsView) -> float | None:
    """The average; None: the runs of that time were not fetched."""
    return round(each.average, 4) if view.is_fetched(each) else None


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
