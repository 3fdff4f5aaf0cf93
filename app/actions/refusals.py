"""Refusals: why a request is not sent, before it is prepared."""

from typing import ClassVar

from app.actions.fields import FieldProblem
from storage.base_error import RunwardenError
from storage.records import Action


class ActionRefusedError(RunwardenError):
    """The program itself refused to act."""

    kind: ClassVar[str] = "refused_here"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReadOnlyError(ActionRefusedError):
    """The profile, or the command, is read-only."""

    kind = "read_only"

    def __init__(self) -> None:
        super().__init__(
            "Read-only: nothing is sent, and nothing resolved. "
            "Drop --read-only, or set read_only = false for this profile."
        )


class InvalidRequestError(ActionRefusedError):
    """The request could not succeed as it stands."""

    kind = "invalid"

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        super().__init__(" ".join(problem.message for problem in problems))
        self.problems = problems


class BlockedError(ActionRefusedError):
    """An earlier action on the same subject is still open; acting again could do it twice."""

    kind = "blocked"

    def __init__(self, existing: Action, command_line: str) -> None:
        super().__init__(f"{_standing(existing)} Nothing was sent. {_way_out(existing, command_line)}")
        self.existing = existing


class DuplicateError(ActionRefusedError):
    """An organization was created for the address before: another one needs an explicit yes."""

    kind = "duplicate"

    def __init__(self, existing: Action) -> None:
        made = f"{existing.result_id}, {existing.action_id}" if existing.result_id else existing.action_id
        super().__init__(f"An organization was created for {existing.subject} before ({made}). Nothing was sent.")
        self.existing = existing
        """The newest confirmed creation for the address."""


class AlreadyAskedError(ActionRefusedError):
    """An action with the same key is in the ledger."""

    kind = "already_asked"

    def __init__(self, existing: Action) -> None:
        super().__init__(f"This was asked before as {existing.action_id} ({existing.state}). Nothing was sent.")
        self.existing = existing


class DoubtfulIdError(ActionRefusedError):
    """An id that was typed does not look like this action's result; the user may know better."""

    kind = "doubtful_id"


def _standing(existing: Action) -> str:
    if existing.state == "unknown":
        return f"The outcome of an earlier attempt for {existing.subject} is unknown ({existing.action_id})."
    return f"An attempt for {existing.subject} is on its way ({existing.action_id})."


def _way_out(existing: Action, command_line: str) -> str:
    if existing.state == "unknown":
        return (
            "Find out whether it took effect, then: "
            f"{command_line} actions resolve {existing.action_id} --created ID | --not-created | --send-again"
        )
    return f"Wait for it: {command_line} actions show {existing.action_id}"
