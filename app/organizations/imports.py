"""Many organizations from a CSV file, each created once, even if the import is started again."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from app.actions.batch import BatchOutcome, BatchResult, BatchWrite
from app.actions.refusals import FieldProblem, problems
from app.api.requests import CreateOrganization
from storage import RunwardenError
from storage.records import Action

MAX_FILE_BYTES: Final = 10_000_000
SEPARATORS: Final = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write instead of commas."""
_WORDS: Final[dict[BatchOutcome, str]] = {"sent": "created", "sent_before": "already_created", "to_send": "to_create"}
"""The names of these outcomes in an import; the others keep their own."""


class ImportFileError(RunwardenError):
    """The file as a whole cannot be used; the message names it and how to fix it."""


class ImportRow(BatchWrite, frozen=True, kw_only=True):
    """One organization to create, identified by its email, and the result."""

    line: int
    """The line's number in the file, from 1."""
    request: CreateOrganization
    result: BatchResult = BatchResult("to_send")
    problems: tuple[FieldProblem, ...] = ()
    is_twice: bool = False
    """Its only problem is that an earlier row has the same email."""

    @property
    def outcome(self) -> str:
        """The outcome as an import words it."""
        return _WORDS.get(self.result.outcome, self.result.outcome)


def read_rows(path: Path) -> tuple[ImportRow, ...]:
    """Read the rows of a CSV file whose header has `email` and perhaps `offer_code`; bad rows name their problems.

    Raises `ImportFileError` if it cannot be read, is not such a file, or has no rows.
    """
    try:
        # Only a regular file is sure to end: a terminal or a pipe could be read for ever.
        if path.exists() and not path.is_file():
            raise ImportFileError(f"{path} is not a file: name a CSV file.")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImportFileError(f"{path} cannot be read: {reason}.") from error
    return parse_rows(content, str(path))


def parse_rows(content: bytes, origin: str) -> tuple[ImportRow, ...]:
    """Read the rows from the content of a CSV file; `origin` is its name in messages.

    Raises `ImportFileError` if it is not such a file, or has no rows.
    """
    if len(content) > MAX_FILE_BYTES:
        raise ImportFileError(f"{origin} is too large to be a list of emails.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{origin} is not UTF-8 text: save it as CSV UTF-8.") from error
    if not text.strip():
        raise ImportFileError(f"{origin} is empty: its first line must name the columns, such as email,offer_code.")
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        first = next(reader, [])
        if "email" not in (header := _names(first)):
            for separator, called in SEPARATORS.items():
                if "email" in _names(separator.join(first).split(separator)):
                    reason = f"the columns are separated by {called}: separate them with commas."
                    raise ImportFileError(f"{origin}:1: {reason}")
            raise ImportFileError(f"{origin}:1: this line must name the columns: email and, optionally, offer_code.")
        rows = [_row(reader.line_num, header, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise ImportFileError(f"{origin}:{reader.line_num}: {error}.") from error
    if not rows:
        raise ImportFileError(f"{origin} has no rows below its header.")
    return _mark_repeated(rows)


def change_row(rows: Sequence[ImportRow], line: int, text: str) -> tuple[ImportRow, ...]:
    """The rows with another text in a line, `email,offer_code`; without the line if the text is empty.

    Raises `ImportFileError` if the text is not one line of CSV.
    """
    try:
        cells = next(csv.reader([text.strip()], strict=True), [])
    except csv.Error as error:
        raise ImportFileError(f"Line {line}: {error}.") from error
    new = [_row(line, ["email", "offer_code"], cells)] if cells else []
    return _mark_repeated([kept for row in rows for kept in (new if row.line == line else [row])])


def _mark_repeated(rows: Sequence[ImportRow]) -> tuple[ImportRow, ...]:
    """The rows; a further one of an email has that as its problem."""
    firsts: dict[str, ImportRow] = {}
    checked: list[ImportRow] = []
    for original in rows:
        row = replace(original, problems=(), is_twice=False) if original.is_twice else original
        first = firsts.setdefault(row.request.subject, row)
        if first is not row and not row.problems:
            twice = FieldProblem("email", f"{row.name} is on line {first.line} already.")
            row = replace(row, problems=(twice,), is_twice=True)
        checked.append(row)
    return tuple(checked)


def _names(cells: list[str]) -> list[str]:
    return [cell.strip().lower().replace(" ", "_") for cell in cells]


def _row(line: int, header: list[str], cells: list[str]) -> ImportRow:
    values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    request = CreateOrganization(values.get("email", ""), values.get("offer_code") or None)
    called = next((called for separator, called in SEPARATORS.items() if separator in request.email), None)
    wrong = problems(request)
    if called is not None:
        wrong = (FieldProblem("email", f"The cells are separated by {called}: separate them with commas."),)
    elif any(cell.strip() for cell in cells[len(header) :]):
        wrong = (FieldProblem("offer_code", "There are more cells than columns in the first line."),)
    return ImportRow(request.email, request=request, line=line, problems=wrong)


def plan_rows(rows: Iterable[ImportRow], attempts: Iterable[Action]) -> list[ImportRow]:
    """The rows, with what to do for each: by earlier attempts, newest first, it is created, blocked or to create."""
    earlier: defaultdict[str, list[Action]] = defaultdict(list)
    for action in attempts:
        earlier[action.subject].append(action)
    plan = []
    for row in rows:
        own = earlier[row.request.subject]
        last = next((action for action in own if action.state == "confirmed" or action.is_open), None)
        if last is None:
            result = BatchResult("to_send", own[0] if own else None)
        else:
            result = BatchResult("sent_before" if last.state == "confirmed" else "blocked", last)
        # Two imports at the same moment count the same attempts and get the same key, so that one of them sends.
        plan.append(replace(row, result=result, key=f"orgs-import:{row.request.subject}:{len(own)}"))
    return plan
