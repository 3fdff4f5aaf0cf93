"""Many organizations from a list, each created once, however often the import is started again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.actions.import_file import ImportRow
from app.actions.refusals import BlockedError
from app.api.requests import CreateOrganization
from storage.ledger import Ledger
from storage.records import Action

RowOutcome = Literal[
    "created", "already_created", "rejected", "unknown", "blocked", "not_sent", "not_tried", "to_create"
]
GOES_ON_AFTER: Final = frozenset({"created", "already_created"})
"""After a row that was refused for its own sake, too; after anything else the next row would most likely fare the same,
and an unknown outcome must not become fifty."""
OWN_FAULT: Final = "rejected"
"""The kind of error that says something of this row only."""

Submit = Callable[[CreateOrganization, str], Awaitable[Action]]
"""Sends a request under a key through the ledger and returns what became of it; the same key sends once."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of one row."""

    row: ImportRow
    outcome: RowOutcome
    action: Action | None = None
    """None: nothing was ever asked for this email."""

    @property
    def ends_the_import(self) -> bool:
        """Whether the next row would most likely fare the same."""
        if self.outcome in GOES_ON_AFTER:
            return False
        error = self.action.error if self.action else None
        return not (self.outcome == "rejected" and error is not None and error.kind == OWN_FAULT)


@dataclass(slots=True)
class Import:
    """Takes one row after the other, until going on would do harm."""

    ledger: Ledger
    submit: Submit
    most: int | None = None
    """How many may be sent. None: any number."""
    sent: int = 0
    """How many were sent, whatever became of them."""
    stopped_by: Imported | None = None
    """The row after which nothing more is sent. None: it goes on."""

    @property
    def is_spent(self) -> bool:
        """Whether as many were sent as may be."""
        return self.most is not None and self.sent >= self.most

    async def take(self, row: ImportRow) -> Imported:
        """Creates the row's organization, unless that was done before, or must not be done now.

        Raises:
            ActionRefused: Nothing was sent, for a reason that holds for every row: read-only.
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
        # Two imports at the same moment count the same attempts, so they get the same key, and one of them sends.
        key = f"orgs-import:{row.subject}:{attempts}"
        self.sent += 1
        try:
            action = await self.submit(row.request, key)
        except BlockedError as blocked:
            self.sent -= 1
            return Imported(row, "blocked", blocked.existing)
        return Imported(row, _outcome(action), action)


def standing(row: ImportRow, attempts: Sequence[Action]) -> Imported:
    """What is known of a row before it is sent, from the attempts for its email, newest first."""
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
