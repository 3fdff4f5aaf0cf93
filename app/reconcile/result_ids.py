"""Checks whether a typed id can be an action's result: a doubtful one is asked about again."""

import re
from typing import Final

from app.actions.refusals import DoubtfulIdError
from app.api.errors import ApiError
from app.api.requests import CancelRun, OnboardProject
from app.reconcile.candidates import FINDABLE, Send, request_sent
from app.reconcile.reconciliation import Reconciliation
from app.times import span
from storage.records import Action, ActionFilter, ActionKind, RunDetail

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
_PLAUSIBLE: Final = re.compile(r"[^\s@/]*[0-9_][^\s@/]*")
"""An id has a digit, or a prefix."""


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
    is_run = await reconciliation.runs.cache.detail(result_id) is not None
    if not (is_run or _PLAUSIBLE.fullmatch(result_id)):
        raise DoubtfulIdError(f"{result_id!r} does not look like {THINGS[action.kind]}. {WHERE_TO_LOOK[action.kind]}")
    if is_run and action.kind == "organization.create":
        raise DoubtfulIdError(f"{result_id!r} is a run's id. {WHERE_TO_LOOK[action.kind]}")
    for other in await reconciliation.ledger.actions(ActionFilter([action.kind], ["confirmed"]), limit=1_000):
        if other.result_id == result_id and other.action_id != action.action_id and action.kind != "run.continue":
            raise DoubtfulIdError(f"{result_id} is what {other.action_id} made. {WHERE_TO_LOOK[action.kind]}")
    if action.kind in FINDABLE:
        await _check_run(action, result_id, reconciliation)


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
