"""The ledger's refusals, each with the entry that causes it."""

from storage import RunwardenError
from storage.records import Action


class LedgerRefusedError(RunwardenError):
    """The ledger refused a change; nothing changed."""


class KeyTakenError(LedgerRefusedError):
    """The key was used before: only the first action with it is sent."""

    def __init__(self, existing: Action) -> None:
        super().__init__(f"{existing.action_id} already has the key {existing.key!r}; it is {existing.state}.")
        self.existing = existing


class SubjectBlockedError(LedgerRefusedError):
    """An earlier action on the same subject has an open outcome."""

    def __init__(self, existing: Action) -> None:
        super().__init__(
            f"{existing.action_id} ({existing.kind} {existing.subject}) is {existing.state}: its outcome comes first."
        )
        self.existing = existing


class AlreadyDoneError(LedgerRefusedError):
    """An earlier action with the same key is confirmed; only an explicit repetition may follow it."""

    def __init__(self, existing: Action) -> None:
        super().__init__(f"{existing.action_id} ({existing.kind} {existing.subject}) is confirmed: it was done before.")
        self.existing = existing


class WrongStateError(LedgerRefusedError):
    """The action's state does not allow the transition."""

    kind = "wrong_state"

    def __init__(self, action: Action, transition: str) -> None:
        resolved = f", resolved as {action.resolution}" if action.resolution else ""
        super().__init__(f"{action.action_id} is {action.state}{resolved}: {transition} is not possible from there.")
        self.action = action


class NoSuchActionError(LedgerRefusedError):
    """No entry has this id."""

    kind = "not_found"

    def __init__(self, action_id: str) -> None:
        super().__init__(f"There is no action {action_id}.")


class AmbiguousActionError(LedgerRefusedError):
    """More than one entry's id begins like this."""

    kind = "ambiguous"
