"""Many organizations from a list, each created once, even if the import is started again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.actions.import_file import ImportRow
from app.actions.refusals import BlockedError, DuplicateError
from app.api.requests import CreateOrganization
from storage.ledger import Ledger
from storage.records import Action

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
