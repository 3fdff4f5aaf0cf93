"""A batch: many writes, each sent once, one after the other, until sending more could do harm."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Self

from msgspec import Struct

from app.actions.refusals import ActionRefusedError, AlreadyAskedError, BlockedError, DuplicateError, ReadOnlyError
from app.api.requests import WriteRequest
from storage.records import Action, ActionState
from storage.records.error_kinds import error_kind

BatchOutcome = Literal[
    "to_send", "sent", "sent_before", "rejected", "unknown", "not_sent", "blocked", "refused", "not_tried"
]
"""`refused`: by this program, before anything was sent; `not_tried`: the batch stopped earlier."""
_OUTCOMES: Final[dict[ActionState, BatchOutcome]] = {
    "confirmed": "sent",
    "rejected": "rejected",
    "not_sent": "not_sent",
    "not_created": "not_sent",
}
"""The outcome for each state of an action; in every other state the outcome is unknown."""


class BatchResult(Struct, frozen=True):
    """The result of one write of a batch."""

    outcome: BatchOutcome
    action: Action | None = None
    """The write, or the earlier one that it repeats or that blocks it; None if no action exists."""
    problem: str = ""

    @classmethod
    def of(cls, action: Action, *, is_earlier: bool = False) -> Self:
        """The result in the ledger; `is_earlier`: the action was sent before this batch."""
        outcome = _OUTCOMES.get(action.state, "unknown")
        return cls("sent_before" if is_earlier and outcome == "sent" else outcome, action)

    @property
    def is_done(self) -> bool:
        """Whether the write took effect, now or in an earlier attempt."""
        return self.outcome in {"sent", "sent_before"}

    @property
    def result_id(self) -> str:
        """The id of the result; empty if there is none or it is unknown."""
        return (self.action.result_id if self.action else None) or ""

    @property
    def message(self) -> str:
        if self.action and self.action.error:
            return self.action.error.message
        return ""

    @property
    def reason(self) -> str:
        """Why the write was refused or failed; empty if it succeeded or is open."""
        return self.problem or self.message

    @property
    def unknown_code(self) -> str:
        """The service's error code for an unknown outcome; empty if it sent none."""
        error = self.action.error if self.action and self.action.state == "unknown" else None
        return (error.error_code if error else None) or ""

    @property
    def stops_batch(self) -> bool:
        """Whether to stop here: the outcome is unknown, or the next write would probably fail the same way."""
        if self.outcome == "rejected" and self.action is not None and self.action.error is not None:
            # All organizations are created at one address, so a 404 there affects every write of the batch.
            kind = self.action.error.kind
            concerns_all = kind == "not_found" and self.action.kind == "organization.create"
            return concerns_all or error_kind(kind).concerns != "request"
        return self.outcome in {"rejected", "unknown", "not_sent"}

    @property
    def may_be_sent_again(self) -> bool:
        """Whether the write had no effect for a reason unrelated to this write."""
        return self.stops_batch and self.action is not None and self.action.state in {"not_sent", "rejected"}


class BatchWrite(Struct, frozen=True):
    """One write of a batch, planned or sent."""

    name: str
    """The subject: a run's id, or an address."""
    result: BatchResult
    request: WriteRequest | None = None
    """None if the write is refused."""
    key: str = ""


@dataclass(slots=True)
class BatchSender:
    """Sends the writes of a batch and decides when to stop."""

    submit: Callable[[WriteRequest, str | None], Awaitable[Action]]
    """Sends a request through the ledger, at most once for each key."""
    past: str = ""
    """The error code of unknown outcomes that do not stop the batch."""
    sent: int = 0
    """How many were sent, with any outcome."""
    may_send: bool = True
    """False: a result has stopped the batch."""

    async def send(self, request: WriteRequest, key: str | None = None) -> BatchResult:
        """Send one write, unless the ledger or the program refuses it.

        After a `ReadOnlyError` or a `StorageError` (the ledger cannot be written) nothing more should be sent.
        """
        try:
            result = BatchResult.of(await self.submit(request, key))
            self.sent += 1
        except ReadOnlyError:
            raise
        except AlreadyAskedError as earlier:
            result = BatchResult.of(earlier.existing, is_earlier=True)
            if not earlier.is_for(request):
                reason = f"This retry key belongs to another request ({earlier.existing.action_id}). Nothing was sent."
                result = BatchResult("refused", problem=reason)
        except BlockedError as blocked:
            result = BatchResult("blocked", blocked.existing, str(blocked))
        except DuplicateError as duplicate:
            result = BatchResult("sent_before", duplicate.existing)
        except ActionRefusedError as refused:
            result = BatchResult("refused", problem=str(refused))
        self.may_send &= not result.stops_batch or bool(self.past and result.unknown_code == self.past)
        return result
