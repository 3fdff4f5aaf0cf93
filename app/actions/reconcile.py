"""Finding the run that a start of unknown outcome may have made."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.api.client import Client, pages
from app.api.requests import StartRun, request_of
from storage.ledger import Ledger
from storage.records import Action, Run

CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far the service's clock may be from ours before a run is overlooked."""
LIMIT: Final = 50
KNOWN: Final = 10_000
"""How many of our own confirmed starts are ruled out."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Runs that may be what an unknown action made; a person decides."""

    candidates: tuple[Run, ...]
    certain: bool
    """True: the branch was named by us, and exactly one run in the window is on it."""


async def propose(action: Action, client: Client, ledger: Ledger) -> Proposal:
    """Ask the service for runs on the same repository and branch, from around the time of sending (spec 4.2).

    Raises:
        ApiError: The service could not be asked.
        ValueError: The action did not start a run.
    """
    request = request_of(action)
    if not isinstance(request, StartRun) or action.sending_at is None:
        raise ValueError("Only a run start can be looked up: no endpoint lists anything else.")
    end = (action.settled_at or action.sending_at) + CLOCK_SKEW
    found: list[Run] = []
    async for page in pages(
        lambda token: client.list_runs(
            page_token=token,
            repository=request.repository,
            date_from=action.sending_at - CLOCK_SKEW if action.sending_at else None,
            date_to=end,
        )
    ):
        found += [run for run in page.runs if _fits(run, request)]
        if len(found) >= LIMIT:
            break
    known = {other.result_id for other in await ledger.actions(kinds=["run.start"], states=["confirmed"], limit=KNOWN)}
    candidates = tuple(run for run in found if run.run_id not in known)[:LIMIT]
    return Proposal(candidates, certain=request.branch_name is not None and len(candidates) == 1)


def _fits(run: Run, request: StartRun) -> bool:
    same_branch = request.branch_name is None or run.branch_name == request.branch_name
    return same_branch and run.repository.path == request.repository.path
