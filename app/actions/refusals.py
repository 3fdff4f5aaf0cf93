"""Why an action was not even prepared: nothing was sent, and nothing entered the ledger."""

from typing import ClassVar

from app.actions.validate import Problem
from storage.records import Action


class ActionRefusedError(Exception):
    """The program itself declined to act."""

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

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(" ".join(problem.message for problem in problems))
        self.problems = problems


class BlockedError(ActionRefusedError):
    """An earlier action on the same subject is still open; acting again could do it twice."""

    kind = "blocked"

    def __init__(self, existing: Action) -> None:
        super().__init__(f"{_standing(existing)} Nothing was sent. {_way_out(existing)}")
        self.existing = existing


class AlreadyAskedError(ActionRefusedError):
    """An action with the same key is in the ledger: this very intention was carried out before."""

    kind = "already_asked"

    def __init__(self, existing: Action) -> None:
        super().__init__(f"This was asked before as {existing.action_id} ({existing.state}). Nothing was sent.")
        self.existing = existing


def _standing(existing: Action) -> str:
    if existing.state == "unknown":
        return f"The outcome of an earlier attempt for {existing.subject} is unknown ({existing.action_id})."
    return f"An attempt for {existing.subject} is on its way ({existing.action_id})."


def _way_out(existing: Action) -> str:
    if existing.state == "unknown":
        return (
            "Find out whether it took effect, then: "
            f"runwarden actions resolve {existing.action_id} --created ID | --not-created | --send-again"
        )
    return f"Wait for it: runwarden actions show {existing.action_id}"
