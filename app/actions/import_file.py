"""The rows of an import: read whole and checked whole, before anything is sent."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Final

from app.actions.validate import Problem, problems
from app.api.requests import CreateOrganization

LARGEST: Final = 10_000_000
"""Bytes of a file."""


class ImportFileError(Exception):
    """The file as a whole cannot be used; the message names it and the cure."""


@dataclass(frozen=True, slots=True)
class ImportRow:
    """One organization to create."""

    line: int
    """In the file, from 1."""
    email: str
    offer_code: str | None = None
    """None: the standard trial."""
    problems: tuple[Problem, ...] = ()
    """What keeps it from being sent."""
    is_twice: bool = False
    """Its only problem is that an earlier row has the same email."""

    @property
    def request(self) -> CreateOrganization:
        """What it asks for."""
        return CreateOrganization(self.email, self.offer_code)

    @property
    def subject(self) -> str:
        """As the ledger names it."""
        return self.request.subject


def read_rows(path: Path) -> tuple[ImportRow, ...]:
    """The rows of a CSV file with a header that has `email` and, if wanted, `offer_code`; bad rows say what is wrong.

    Raises:
        ImportFileError: It cannot be read, is no such file, or holds no row.
    """
    reader = csv.reader(StringIO(_text(path), newline=""), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if "email" not in header:
            raise ImportFileError(f"{path}: the first line has to name the columns: email and, if wanted, offer_code.")
        rows = [_row(reader.line_num, header, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise ImportFileError(f"{path}:{reader.line_num}: {error}.") from error
    if not rows:
        raise ImportFileError(f"{path} holds no row below its header.")
    return tuple(_checked(rows))


def _row(line: int, header: list[str], cells: list[str]) -> ImportRow:
    values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    return ImportRow(line, values.get("email", ""), values.get("offer_code") or None)


def _checked(rows: list[ImportRow]) -> Iterator[ImportRow]:
    first_lines: dict[str, int] = {}
    for row in rows:
        found = problems(row.request)
        first = first_lines.setdefault(row.subject, row.line)
        if first != row.line and not found:
            twice = Problem("email", f"{row.email} is on line {first} already.")
            yield replace(row, problems=(twice,), is_twice=True)
        else:
            yield replace(row, problems=found)


def _text(path: Path) -> str:
    try:
        # Only a regular file ends by itself: a terminal or a pipe would be read for ever.
        if path.exists() and not path.is_file():
            raise ImportFileError(f"{path} is no file: name a CSV file.")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImportFileError(f"{path} cannot be read: {reason}.") from error
    if len(content) > LARGEST:
        raise ImportFileError(f"{path} is too large to be a list of emails.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{path} is not UTF-8 text: save it as CSV UTF-8.") from error
