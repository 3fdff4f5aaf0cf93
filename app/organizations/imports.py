"""Many organizations from a CSV file, each created once, even if the import is started again."""

import csv
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from app.actions.refusals import BlockedError, DuplicateError, FieldProblem, problems
from app.api.requests import CreateOrganization
from storage.base_error import RunwardenError
from storage.ledger import Ledger
from storage.records import Action, ActionState

LARGEST: Final = 10_000_000
"""Bytes of a file."""
SEPARATORS: Final = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write instead of commas."""


class ImportFileError(RunwardenError):
    """The file as a whole cannot be used; the message names it and the cure."""


class ImportRow(Struct, frozen=True):
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
    try:
        # Only a regular file is sure to end: a terminal or a pipe could be read for ever.
        if path.exists() and not path.is_file():
            raise ImportFileError(f"{path} is not a file: name a CSV file.")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ImportFileError(f"{path} cannot be read: {reason}.") from error
    return parse_rows(content, str(path))


def parse_rows(content: bytes, origin: str) -> tuple[ImportRow, ...]:
    """Read the rows from the content of such a file; `origin` is its name in messages. Raises as `read_rows`."""
    if len(content) > LARGEST:
        raise ImportFileError(f"{origin} is too large to be a list of emails.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{origin} is not UTF-8 text: save it as CSV UTF-8.") from error
    if not text.strip():
        raise ImportFileError(f"{origin} is empty: its first line must name the columns, such as email,offer_code.")
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    rows: dict[str, ImportRow] = {}
    """The first row of each email."""
    found: list[ImportRow] = []
    try:
        header = _header(next(reader, []), origin)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                row = _row(reader.line_num, header, cells)
                first = rows.setdefault(row.subject, row)
                if first is not row and not row.problems:
                    twice = FieldProblem("email", f"{row.email} is on line {first.line} already.")
                    row = replace(row, problems=(twice,), is_twice=True)
                found.append(row)
    except csv.Error as error:
        raise ImportFileError(f"{origin}:{reader.line_num}: {error}.") from error
    if not found:
        raise ImportFileError(f"{origin} has no rows below its header.")
    return tuple(found)


def _header(cells: list[str], origin: str) -> list[str]:
    """The names of the columns."""

    def named(cells: list[str]) -> list[str]:
        return [cell.strip().lower().replace(" ", "_") for cell in cells]

    if "email" in (names := named(cells)):
        return names
    for separator, called in SEPARATORS.items():
        if "email" in named(separator.join(cells).split(separator)):
            raise ImportFileError(f"{origin}:1: the columns are separated by {called}: separate them with commas.")
    raise ImportFileError(f"{origin}:1: this line must name the columns: email and, optionally, offer_code.")


def _row(line: int, header: list[str], cells: list[str]) -> ImportRow:
    values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
    row = ImportRow(line, values.get("email", ""), values.get("offer_code") or None)
    called = next((called for separator, called in SEPARATORS.items() if separator in row.email), None)
    found: tuple[FieldProblem, ...]
    if called is not None:
        found = (FieldProblem("email", f"The cells are separated by {called}: separate them with commas."),)
    elif any(cell.strip() for cell in cells[len(header) :]):
        found = (FieldProblem("offer_code", "There are more cells than columns in the first line."),)
    else:
        found = problems(row.request)
    return replace(row, problems=found)


RowOutcome = Literal[
    "created", "already_created", "rejected", "unknown", "blocked", "not_sent", "not_tried", "to_create"
]
OUTCOMES: Final[dict[ActionState, RowOutcome]] = {
    "confirmed": "created",
    "rejected": "rejected",
    "not_sent": "not_sent",
    "not_created": "not_sent",
    "prepared": "unknown",
    "sending": "unknown",
    "unknown": "unknown",
}
"""The row's outcome by the state of its action."""
GOES_ON_AFTER: Final = frozenset({"created", "already_created"})
"""The import continues after a row that was rejected for its own fault. After any other failure the next row would
most likely fail too, and one unknown outcome must not become fifty.
"""
OWN_FAULT: Final = "rejected"
"""The error kind that concerns this row only."""

Submit = Callable[[CreateOrganization, str], Awaitable[Action]]
"""Send a request under a key through the ledger, once for each key, and return the outcome."""


class Imported(Struct, frozen=True):
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

    async def create(self, row: ImportRow) -> Imported:
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
        # Two imports at the same moment count the same attempts and get the same key, so that one of them sends.
        key = f"orgs-import:{row.subject}:{len(attempts)}"
        self.sent += 1
        try:
            action = await self.submit(row.request, key)
            result = Imported(row, OUTCOMES[action.state], action)
        except BlockedError as blocked:
            self.sent -= 1
            result = Imported(row, "blocked", blocked.existing)
        except DuplicateError as duplicate:
            # Another process was first, under another key.
            self.sent -= 1
            result = Imported(row, "already_created", duplicate.existing)
        if result.ends_the_import:
            self.stopped_by = result
        return result


def standing(row: ImportRow, attempts: Sequence[Action]) -> Imported:
    """Decide from earlier attempts, newest first, whether the row is created, blocked or still to create."""
    for action in attempts:
        if action.state == "confirmed":
            return Imported(row, "already_created", action)
        if action.is_open:
            return Imported(row, "blocked", action)
    return Imported(row, "to_create", attempts[0] if attempts else None)
