"""The rows of an import: read whole and checked whole, before anything is sent."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.cli.exits import ErrorDetail, failed

LARGEST: Final = 10_000_000
"""Bytes of a file."""
MOST_TOLD: Final = 20
"""Problems told at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """One organization to create."""

    line: int
    """In the file, from 1."""
    email: str
    offer_code: str | None

    @property
    def subject(self) -> str:
        """As the ledger names it."""
        return self.email.casefold()


def read(path: Path) -> tuple[Row, ...]:
    """The rows of a CSV file with a header that has `email` and, if wanted, `offer_code`.

    Raises:
        CommandFailed: The file cannot be read, a row cannot be used, or an email is there twice.
    """
    reader = csv.reader(_text(path).splitlines(), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if "email" not in header:
            raise failed("usage", f"{path}: the first line has to name the columns: email and, if wanted, offer_code.")
        rows = tuple(_row(reader.line_num, header, cells) for cells in reader if any(cell.strip() for cell in cells))
    except csv.Error as error:
        raise failed("usage", f"{path}:{reader.line_num}: {error}.") from error
    _check(path, rows)
    return rows


def _row(line: int, header: list[str], cells: list[str]) -> Row:
    values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    return Row(line, values.get("email", ""), values.get("offer_code") or None)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise failed("usage", f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > LARGEST:
        raise failed("usage", f"{path} is too large to be a list of emails.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise failed("usage", f"{path} is not UTF-8 text: save it as CSV UTF-8.") from error


def _check(path: Path, rows: tuple[Row, ...]) -> None:
    from app.actions.validate import problems
    from app.api.requests import CreateOrganization

    found: list[dict[str, ErrorDetail]] = []
    first_lines: dict[str, int] = {}
    for row in rows:
        found += [
            {"line": row.line, "field": problem.field, "message": problem.message}
            for problem in problems(CreateOrganization(row.email, row.offer_code))
        ]
        if row.subject in first_lines:
            message = f"{row.email} is on line {first_lines[row.subject]} already."
            found.append({"line": row.line, "field": "email", "message": message})
        first_lines.setdefault(row.subject, row.line)
    if found:
        told = " ".join(f"Line {each['line']}: {each['message']}" for each in found[:MOST_TOLD])
        raise failed("invalid", f"{path}: nothing was sent. {told}", problems=list(found))
    if not rows:
        raise failed("usage", f"{path} holds no row below its header.")
