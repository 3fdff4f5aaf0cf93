"""The ledger's refusals, each with the entry that causes it."""

from storage import RunwardenError
from storage.records import Action


class LedgerRefusedError(RunwardenError):
    """The ledger refused a change; nothing changed."""


class EarlierActionError(LedgerRefusedError):
    """An earlier action is in the way."""

    def __init__(self, existing: Action, why: str) -> None:
        super().__init__(f"{existing.action_id} {why}")
        self.existing = existing


class KeyTakenError(EarlierActionError):
    """The key was used before: only the first action with it is sent."""


class SubjectBlockedError(EarlierActionError):
    """An earlier action on the same subject has an open outcome."""


class AlreadyDoneError(EarlierActionError):
    """An organization was created for the address; only an explicit repetition may follow it."""


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
