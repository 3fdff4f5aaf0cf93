"""Checks whether a typed id can be an action's result: a doubtful one is asked about again."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

from app.actions.refusals import DoubtfulIdError
from app.api.errors import ApiError
from app.api.requests import CancelRun, OnboardProject
from app.reconcile.candidates import FINDABLE, Send, request_sent
from app.reconcile.reconciliation import Reconciliation
from app.times import span
from storage.records import Action, ActionKind, RunDetail, RunFilter

THINGS: Final[dict[ActionKind, str]] = {
    "run.start": "a run's id",
    "run.continue": "a run's id",
    "agent.start": "an execution's id",
    "organization.create": "an organization's id",
    "gitlab.onboard": "a project's path",
    "run.cancel": "a run's id",
}
WHERE_TO_LOOK: Final[dict[ActionKind, str]] = {
    "run.start": "Copy it from the Runs tab, or from: runwarden runs list",
    "run.continue": "Copy it from the Runs tab, or from: runwarden runs list",
    "agent.start": "No endpoint lists executions: look for the agent's run in the web application.",
    "organization.create": (
        "No endpoint lists organizations. If the invitation mail arrived, it was created:"
        " its id is in the new organization's settings."
    ),
    "gitlab.onboard": "Write it as group/project.",
    "run.cancel": "It is the id of the run that was to be cancelled.",
}
"""How the user finds out the result (spec 4)."""
_KNOWN: Final = 200
"""Ids that the form is learnt from."""
_RANDOM: Final = 16
"""In characters: longer ids are random, and all of one length."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,19}[_:-](?=[^_:-])")
_PLAUSIBLE: Final = re.compile(r"[^\s@/]*[0-9_][^\s@/]*")
"""The form of an id while none is known: it has a digit, or a prefix."""


@dataclass(frozen=True, slots=True)
class IdForm:
    """The common form of one kind's ids."""

    example: str
    prefixes: frozenset[str]
    """The text before the first separator; empty if the ids have no separator."""
    lengths: frozenset[int]
    """Empty: the lengths vary."""
    are_uuids: bool

    @classmethod
    def learnt(cls, known: Collection[str]) -> Self | None:
        """The form of the known ids; None: none is known."""
        ids = [each for each in known if each]
        if not ids:
            return None
        bodies = [each.removeprefix(_prefix(each)) for each in ids]
        is_fixed = min(map(len, bodies)) >= _RANDOM and len(set(map(len, bodies))) == 1
        lengths = frozenset(map(len, ids)) if is_fixed else frozenset[int]()
        return cls(ids[0], frozenset(map(_prefix, ids)), lengths, all(map(_UUID.fullmatch, bodies)))

    def fits(self, text: str) -> bool:
        """Whether this may be such an id."""
        prefix = _prefix(text)
        has_form = prefix in self.prefixes and (not self.lengths or len(text) in self.lengths)
        is_uuid = _UUID.fullmatch(text.removeprefix(prefix)) is not None
        return has_form and (is_uuid or not self.are_uuids) and _PLAUSIBLE.fullmatch(text) is not None


def _prefix(text: str) -> str:
    found = None if _UUID.fullmatch(text) else _PREFIX.match(text)
    return found.group() if found else ""


async def check_result_id(action: Action, result_id: str, reconciliation: Reconciliation) -> None:
    """Check that the action may have made this.

    Raises:
        DoubtfulIdError: It does not look like it; a person may know better.
    """
    if action.kind == "gitlab.onboard":
        _check_project(action, result_id)
        return
    if action.kind == "run.cancel":
        _check_cancelled(action, result_id)
        return
    known = await _known_ids(action, reconciliation)
    form = IdForm.learnt(known)
    if form is None and action.kind == "organization.create":
        await _check_is_no_run(action, result_id, reconciliation)
    fits = form.fits(result_id) if form else _PLAUSIBLE.fullmatch(result_id)
    if not fits and result_id not in known:
        like = f": those of this service look like {form.example}" if form else ""
        raise DoubtfulIdError(
            f"{result_id!r} does not look like {THINGS[action.kind]}{like}. {WHERE_TO_LOOK[action.kind]}"
        )
    for other in await reconciliation.ledger.actions(kinds=[action.kind], states=["confirmed"], limit=1_000):
        if other.result_id == result_id and other.action_id != action.action_id and action.kind != "run.continue":
            raise DoubtfulIdError(f"{result_id} is what {other.action_id} made. {WHERE_TO_LOOK[action.kind]}")
    if action.kind in FINDABLE:
        await _check_run(action, result_id, reconciliation)


async def _check_is_no_run(action: Action, result_id: str, reconciliation: Reconciliation) -> None:
    runs = IdForm.learnt([run.run_id for run in await reconciliation.runs.cache.runs(RunFilter(), _KNOWN)])
    if runs is not None and _prefix(result_id) and runs.fits(result_id):
        raise DoubtfulIdError(f"{result_id!r} looks like a run's id. {WHERE_TO_LOOK[action.kind]}")


def _check_project(action: Action, path: str) -> None:
    request = request_sent(action)
    sent = request.project_path if isinstance(request, OnboardProject) else None
    if path != sent if sent else "/" not in path:
        what = f": it was sent for {sent}" if sent else ""
        raise DoubtfulIdError(f"{path!r} is not the project's path{what}. {WHERE_TO_LOOK[action.kind]}")


def _check_cancelled(action: Action, run_id: str) -> None:
    request = request_sent(action)
    if isinstance(request, CancelRun) and request.run_id != run_id:
        raise DoubtfulIdError(f"{run_id!r} is not the run that was to be cancelled, {request.run_id}.")


async def _known_ids(action: Action, reconciliation: Reconciliation) -> tuple[str, ...]:
    if action.kind in FINDABLE:
        return tuple(run.run_id for run in await reconciliation.runs.cache.runs(RunFilter(), _KNOWN))
    made = await reconciliation.ledger.actions(kinds=[action.kind], states=["confirmed"], limit=_KNOWN)
    # A typed id proves nothing.
    return tuple(other.result_id for other in made if other.result_id and other.resolution is None)


async def _check_run(action: Action, run_id: str, reconciliation: Reconciliation) -> None:
    cache = reconciliation.runs.cache
    found = await reconciliation.cached(action)
    detail = await cache.detail(run_id)
    if detail is None:
        try:
            found = await reconciliation.ask(action)
        except ApiError as error:
            raise DoubtfulIdError(f"Whether the service lists {run_id} could not be asked: {error}") from error
        detail = await cache.detail(run_id)
    if run_id in {candidate.run.run_id for candidate in found.candidates}:
        return
    if detail is None:
        raise DoubtfulIdError(f"The service lists no run {run_id} from around the time it was sent.")
    send = Send.of(action, await cache.run_clock())
    if send is not None:
        raise DoubtfulIdError(f"{run_id} does not fit: {_misfit(detail, send)}")


def _misfit(detail: RunDetail, send: Send) -> str:
    run = detail.run
    if not send.is_place(run, None):
        return f"it is a run on {run.repository.label}."
    if not send.is_place(run, send.request.branch_name):
        return f"it is on the branch {run.branch_name}."
    if run.run_id == send.run_id:
        return "its conversation did not go on when this was sent."
    after = send.after(run.created_at)
    if after is None or abs(after) <= send.margin:
        return "another action made it, or it was there before this was sent."
    seconds = after.total_seconds()
    return f"it was created {span(abs(seconds))} {'after' if seconds > 0 else 'before'} this was sent."
