"""The service's account of runs' turns, kept until a run changes: a table and a pane ask for the same runs again."""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.results.repository import number_in, pull_number
from app.results.service import NOT_OFFERED, ServiceExtension
from storage.records import Run, RunDetail
from storage.records.results import RunTurns
from storage.records.run import RunFigures

_MOST: Final = 1_000
_State = tuple[str, datetime | None]


@dataclass(slots=True)
class ServiceTurns:
    """The turns of the runs that were asked for last."""

    _known: OrderedDict[str, tuple[_State, RunTurns | None]] = field(default_factory=OrderedDict)
    """The turns by run; None: the service has none of this run."""

    def holds(self, run: Run) -> bool:
        """Whether the service was asked for the run in its present state."""
        return self._known.get(run.run_id, (None, None))[0] == _state(run)

    def known(self, run: Run) -> RunTurns | None:
        """The run's turns as told last, or None."""
        return self._known.get(run.run_id, (None, None))[1]

    async def ask(self, extension: ServiceExtension, run: Run) -> RunTurns | None:
        """The run's turns, asked for once for each state of the run; None: the service does not tell them.

        Raises:
            ApiError: The service cannot be asked.
        """
        if not self.holds(run):
            answer = await extension.turns(run.run_id)
            if answer == NOT_OFFERED:  # This holds for all runs, and is asked again a day later.
                return None
            self._known[run.run_id] = _state(run), answer if isinstance(answer, RunTurns) else None
            self._known.move_to_end(run.run_id)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return self.known(run)


def figures(detail: RunDetail, run_turns: RunTurns | None) -> RunFigures:
    """A run's figures: the service's turns, else the observed ones."""
    turns = run_turns.turns if run_turns is not None else ()
    added, removed = ([getattr(turn, name) for turn in turns] for name in ("additions", "deletions"))
    return RunFigures(
        turns=max((turn.number for turn in turns), default=detail.turns),
        additions=_sum(added),
        deletions=_sum(removed),
        pull=number_in(run_turns.pull_request if run_turns is not None else None) or pull_number(detail.run.raw_json),
    )


def reason(run_turns: RunTurns | None) -> str:
    """Why a run's last turn ended as it did; empty: not known."""
    return (run_turns.turns[-1].reason or "") if run_turns is not None and run_turns.turns else ""


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _state(run: Run) -> _State:
    return run.status, run.updated_at
