"""The rows of an import on the command line: one that cannot be used stops all of them, before anything is sent."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.cli.exits import ErrorDetail, failed

if TYPE_CHECKING:
    from app.actions.imports import ImportRow

MOST_TOLD: Final = 20
"""Problems told at once."""


def read(path: Path) -> "tuple[ImportRow, ...]":
    """The rows of a CSV file with a header that has `email` and, if wanted, `offer_code`.

    Raises:
        CommandFailed: The file cannot be read, a row cannot be used, or an email is there twice.
    """
    from app.actions.imports import ImportFileError, read_rows

    try:
        rows = read_rows(path)
    except ImportFileError as error:
        raise failed("usage", str(error)) from error
    found: list[dict[str, ErrorDetail]] = [
        {"line": row.line, "field": problem.field, "message": problem.message}
        for row in rows
        for problem in row.problems
    ]
    if found:
        told = " ".join(f"Line {each['line']}: {each['message']}" for each in found[:MOST_TOLD])
        raise failed("invalid", f"{path}: nothing was sent. {told}", problems=list(found))
    return rows
