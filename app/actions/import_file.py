"""The file of an import: a CSV list of the organizations to create."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Final

from app.actions.fields import FieldProblem, problems
from app.api.requests import CreateOrganization
from storage.base_error import RunwardenError

LARGEST: Final = 10_000_000
"""Bytes of a file."""
SEPARATORS: Final = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write instead of commas."""


class ImportFileError(RunwardenError):
    """The file as a whole cannot be used; the message names it and the cure."""


@dataclass(frozen=True, slots=True)
class ImportRow:
    """One organization to create."""

    line: int
    """The line's number in the file, from 1."""
    email: str
    offer_code: str | None = None
    """None: the service gives the standard trial."""
    problems: tuple[FieldProblem, ...] = ()
    """Why it cannot be sent."""
    is_twice: bool = False
    """Its only problem is that an earlier row has the same email."""

    @property
    def request(self) -> CreateOrganization:
        """The request for the row."""
        return CreateOrganization(self.email, self.offer_code)

    @property
    def subject(self) -> str:
        """The subject as named in the ledger."""
        return self.request.subject


def read_rows(path: Path) -> tuple[ImportRow, ...]:
    """Read the rows of a CSV file whose header has `email` and perhaps `offer_code`; bad rows name their problems.

    Raises:
        ImportFileError: It cannot be read, is not such a file, or has no rows.
    """
    return parse_rows(_content(path), str(path))


def parse_rows(content: bytes, origin: str) -> tuple[ImportRow, ...]:
    """Read the rows from the content of such a file; `origin` is its name in messages. Raises as `read_rows`."""
    text = _text(content, origin)
    if not text.strip():
        raise ImportFileError(f"{origin} is empty: it has to begin with a line of columns, such as email,offer_code.")
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header = _header(next(reader, []), origin)
        rows = [_row(reader.line_num, header, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise ImportFileError(f"{origin}:{reader.line_num}: {error}.") from error
    if not rows:
        raise ImportFileError(f"{origin} holds no row below its header.")
    return tuple(_checked(rows))


def _header(cells: list[str], origin: str) -> list[str]:
    """The names of the columns."""
    names = [_name(cell) for cell in cells]
    if "email" in names:
        return names
    for separator, called in SEPARATORS.items():
        if "email" in map(_name, separator.join(cells).split(separator)):
            raise ImportFileError(f"{origin}:1: the columns are separated by {called}: separate them with commas.")
    raise ImportFileError(f"{origin}:1: this line has to name the columns: email and, optionally, offer_code.")


def _name(cell: str) -> str:
    return cell.strip().lower().replace(" ", "_")


def _row(line: int, header: list[str], cells: list[str]) -> ImportRow:
    values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    row = ImportRow(line, values.get("email", ""), values.get("offer_code") or None)
    for separator, called in SEPARATORS.items():
        if separator in row.email:
            problem = FieldProblem("email", f"The cells are separated by {called}: separate them with commas.")
            return replace(row, problems=(problem,))
    if any(cell.strip() for cell in cells[len(header) :]):
        return replace(
            row, problems=(FieldProblem("offer_code", "There are more cells than columns in the first line."),)
        )
    return row


def _checked(rows: list[ImportRow]) -> Iterator[ImportRow]:
    first_lines: dict[str, int] = {}
    for row in rows:
        found = row.problems or problems(row.request)
        first = first_lines.setdefault(row.subject, row.line)
        if first != row.line and not found:
            twice = FieldProblem("email", f"{row.email} is on line {first} already.")
            yield replace(row, problems=(twice,), is_twice=True)
        else:
            yield replace(row, problems=found)


def _content(path: Path) -> bytes:
    try:
        # Only a regular file is sure to end: a terminal or a pipe could be read for ever.
        if path.exists() and not path.is_file():
            raise ImportFileError(f"{path} is not a file: name a CSV file.")
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImportFileError(f"{path} cannot be read: {reason}.") from error


def _text(content: bytes, origin: str) -> str:
    if len(content) > LARGEST:
        raise ImportFileError(f"{origin} is too large to be a list of emails.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{origin} is not UTF-8 text: save it as CSV UTF-8.") from error
