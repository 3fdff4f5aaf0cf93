"""Facts in a file: CSV for a spreadsheet, or JSON documents; written whole or not at all."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from app.engine.atomic_file import replacing
from app.engine.text import csv_cell, json_escaped

FORMATS: Final = (".csv", ".ndjson", ".json")
ENDINGS: Final = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


class Export:
    """One file that is being written."""

    def __init__(self, file: TextIO, suffix: str) -> None:
        self._file, self._suffix = file, suffix
        self._table = csv.writer(file, lineterminator="\n")
        self.count = 0

    def add(self, row: Sequence[object], document: Mapping[str, object]) -> None:
        """Write one item: its row in CSV, its document in JSON."""
        if self._suffix == ".csv":
            self._table.writerow(map(csv_cell, row))
        else:
            # Escaped: control sequences stay plain letters when the file is printed.
            text = json_escaped(json.dumps(document, allow_nan=False))
            self._file.write(f"{text}\n" if self._suffix == ".ndjson" else f"{',' if self.count else ''}\n{text}")
        self.count += 1


@contextmanager
def exporting(
    path: Path, key: str, columns: Sequence[str], more: Mapping[str, object] | None = None
) -> Iterator[Export]:
    """Write many items in the format of the file's name; the JSON document is `{key: items, "count": n, …more}`.

    Raises:
        OSError: The file cannot be written.
    """
    suffix = path.suffix.lower()
    with replacing(path) as file:
        if suffix == ".json":
            file.write(f'{{"{key}": [')
        elif suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerow(columns)
        export = Export(file, suffix)
        yield export
        if suffix == ".json":
            file.write(f"\n], {json.dumps({'count': export.count, **(more or {})}).removeprefix('{')}\n")
