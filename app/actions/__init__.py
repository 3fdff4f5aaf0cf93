"""Acting once: every write is prepared in the ledger, sent at most once, and settled or left to the user."""

from app.actions.actions import Actions, SendCancelledError
from app.actions.refusals import (
    ActionRefusedError,
    AlreadyAskedError,
    BlockedError,
    DoubtfulIdError,
    DuplicateError,
    FieldProblem,
    InvalidRequestError,
    ReadOnlyError,
    problems,
)

__all__ = [
    "ActionRefusedError",
    "Actions",
    "AlreadyAskedError",
    "BlockedError",
    "DoubtfulIdError",
    "DuplicateError",
    "FieldProblem",
    "InvalidRequestError",
    "ReadOnlyError",
    "SendCancelledError",
    "problems",
]
