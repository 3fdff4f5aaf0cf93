"""Many organizations from a CSV file, each created once, even if the import is started again."""

import csv
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Final, Literal

from app.actions.refusals import BlockedError, DuplicateError, FieldProblem, problems
from app.api.requests import CreateOrganization
from storage.base_error import RunwardenError
from storage.ledger import Ledger
from storage.records import Action

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


RowOutcome = Literal[
    "created", "already_created", "rejected", "unknown", "blocked", "not_sent", "not_tried", "to_create"
]
GOES_ON_AFTER: Final = frozenset({"created", "already_created"})
"""The import continues after a row that was rejected for its own fault. After any other failure the next row would
most likely fail too, and one unknown outcome must not become fifty.
"""
OWN_FAULT: Final = "rejected"
"""The error kind that concerns this row only."""

Submit = Callable[[CreateOrganization, str], Awaitable[Action]]
"""Send a request under a key through the ledger, once for each key, and return the outcome."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of one row."""

    row: ImportRow
    outcome: RowOutcome
    action: Action | None = None
    """None: nothing was ever sent for this email."""

    @property
    def ends_the_import(self) -> bool:
        """Whether the next row would most likely fail the same way."""
        if self.outcome in GOES_ON_AFTER:
            return False
        error = self.action.error if self.action else None
        return not (self.outcome == "rejected" and error is not None and error.kind == OWN_FAULT)


@dataclass(slots=True)
class Import:
    """Handles one row after the other, until continuing could do harm."""

    ledger: Ledger
    submit: Submit
    most: int | None = None
    """How many may be sent. None: no limit."""
    sent: int = 0
    """How many were sent, with any outcome."""
    stopped_by: Imported | None = None
    """The row after which nothing more is sent. None: it goes on."""

    @property
    def is_spent(self) -> bool:
        """Whether the limit is reached."""
        return self.most is not None and self.sent >= self.most

    async def take(self, row: ImportRow) -> Imported:
        """Create the row's organization, unless that was done before or must not be done now.

        Raises:
            ActionRefusedError: Nothing was sent, for a reason that holds for every row: read-only.
            StorageError: The ledger cannot be used.
        """
        attempts = await self.ledger.organizations(subject=row.subject)
        here = standing(row, attempts)
        if here.outcome != "to_create":
            return here
        if self.stopped_by is not None or self.is_spent:
            return Imported(row, "not_tried", here.action)
        result = await self._create(row, len(attempts))
        if result.ends_the_import:
            self.stopped_by = result
        return result

    async def _create(self, row: ImportRow, attempts: int) -> Imported:
        # Two imports at the same moment count the same attempts and get the same key, so that one of them sends.
        key = f"orgs-import:{row.subject}:{attempts}"
        self.sent += 1
        try:
            action = await self.submit(row.request, key)
        except BlockedError as blocked:
            self.sent -= 1
            return Imported(row, "blocked", blocked.existing)
        except DuplicateError as duplicate:
            # Another process was first, under another key.
            self.sent -= 1
            return Imported(row, "already_created", duplicate.existing)
        return Imported(row, _outcome(action), action)


def standing(row: ImportRow, attempts: Sequence[Action]) -> Imported:
    """The state of a row before it is sent, from the attempts for its email, newest first."""
    for action in attempts:
        if action.state == "confirmed":
            return Imported(row, "already_created", action)
        if action.is_open:
            return Imported(row, "blocked", action)
    return Imported(row, "to_create", attempts[0] if attempts else None)


def _outcome(action: Action) -> RowOutcome:
    match action.state:
        case "confirmed":
            return "created"
        case "rejected":
            return "rejected"
        case "not_sent" | "not_created":
            return "not_sent"
        case "prepared" | "sending" | "unknown":
            return "unknown"
