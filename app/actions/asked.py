"""The instructions of a run: as this machine sent them or, failing that, as the service reports them."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from app.actions.refusals import branch_problem
from app.api.errors import UnusableAnswerError
from app.api.requests import ContinueRun, StartAgent, StartRun, WriteRequest, asked_of
from storage.ledger import Ledger
from storage.records import Run, RunDetail
from storage.records.results import RunTurns, Unavailable

ReadTurns = Callable[[str], Awaitable[RunTurns | Unavailable]]
NAMES: Final = ("repository", "branch", "previous_instructions")
"""The placeholders of a template for instructions."""
PLACEHOLDERS: Final = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
_RULES: Final = ("webhook", "schedule")
"""Who asked, if it was a rule of the service: its run may have less access than a new one would (docs/dev/api.md)."""


def filled_in(template: str, known: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Fill in a template's placeholders; return the text and the placeholders without a value."""
    missing = tuple(dict.fromkeys(name for name in PLACEHOLDERS.findall(template) if not known.get(name)))
    return PLACEHOLDERS.sub(lambda match: known.get(match[1]) or match[0], template), missing


class Asked(Struct, frozen=True):
    """The request that repeats what started a turn."""

    request: WriteRequest
    is_reported: bool = False
    """Whether the service reported the request; otherwise this machine sent it."""
    caller: str = ""
    """Who asked, according to the service, or empty if that is unknown."""

    @property
    def words(self) -> str:
        """The instructions, or empty if it had none."""
        match self.request:
            case StartRun(instructions=str(words)) | ContinueRun(instructions=str(words)):
                return words
            case StartAgent(inputs={"instructions": str(words)}):
                return words
        return ""


async def original_request(ledger: Ledger, read_turns: ReadTurns, detail: RunDetail) -> Asked | Unavailable:
    """The request behind the run's last turn, or the reason it is unknown; raises `ApiError`."""
    run_id = detail.run.run_id
    sent = [action for action in await ledger.for_run(run_id) if action.result_id == run_id]
    last = asked_of(sent[-1]) if sent else None
    newest = Asked(last) if last is not None else None
    if newest is not None and len(sent) >= detail.turns:
        return newest
    try:
        reported = await read_turns(run_id)
    except UnusableAnswerError as error:
        reported = Unavailable(error.message)  # Another kind of server answers at this address.
    if isinstance(reported, RunTurns) and reported.turns and (turn := reported.turns[-1]).instructions is not None:
        run = detail.run
        caller = turn.caller or ""
        request: WriteRequest = StartRun(turn.instructions, run.repository, branch_of(run))
        if turn.number > 1 or caller.partition(" ")[0] in _RULES:
            request = continuation(run, turn.instructions)
        elif reported.agent and turn.inputs_json is not None:
            request = StartAgent(reported.agent, run.repository.path, branch_of(run), json.loads(turn.inputs_json))
        return Asked(request, is_reported=True, caller=caller)
    if newest is not None:
        return newest
    reason = "The service does not have it either."
    if isinstance(reported, Unavailable):
        reason = reported.reason
    return Unavailable(f"It was not sent from this machine. {reason}")


def continuation(run: Run, instructions: str) -> ContinueRun:
    """The request for the run's next turn."""
    # With the branch if it is known: without one a service may create another branch (spec 4.3).
    return ContinueRun(run.run_id, instructions, run.repository, branch_of(run))


def branch_of(run: Run) -> str | None:
    """The run's branch, if a new run can be requested on it."""
    if run.branch_name and branch_problem(run.branch_name) is None:
        return run.branch_name
    return None
