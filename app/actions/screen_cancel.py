"""The question before runs are cancelled."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from textual.content import Content

from app.actions.batch import BatchResult, BatchSender
from app.actions.follow_ups import waiting_words
from app.actions.reconciliation import LOOK_S, submitted
from app.actions.refusals import ActionRefusedError
from app.api.requests import CancelRun
from app.console.sheets import ConfirmSheet
from app.engine.engine import Engine
from app.engine.text import plural, safe_text
from storage.errors import StorageError
from storage.records import Run
from storage.records.decision import Decision

_NAMED: Final = 5
"""Runs that the sheet names."""


def cancel_sheet(engine: Engine, runs: Sequence[Run], ended: int = 0, waiting: Sequence[Decision] = ()) -> ConfirmSheet:
    """Return a sheet that cancels runs, one after the other. `ended`: how many chosen runs had already ended.

    The continuations that are `waiting` for their end are dropped with them, unless the user keeps them.
    """
    what = "the run" if len(runs) == 1 else plural(len(runs), "run")
    facts = [
        Content(safe_text(f"{run.run_id} on {run.repository.label}, {run.branch_name}, is {run.status}."))
        for run in runs[:_NAMED]
    ]
    if len(runs) > _NAMED:
        facts.append(Content(safe_text(f"And {len(runs) - _NAMED} more.")))
    if ended:
        facts.append(Content(f"{ended:,} more marked run{' has' if ended == 1 else 's have'} ended already."))
    agents = "Its agent stops" if len(runs) == 1 else "Their agents stop"
    facts.append(Content(f"{agents} and nothing of this turn is pushed."))

    facts += [
        Content(f"A continuation waits for its end: “{waiting_words(each)}”. It is dropped, too.")
        for each in waiting[:_NAMED]
    ]

    async def keep(path: Path) -> str:
        for each in waiting:
            await engine.follow_ups.keep(each)
        return await cancel(path)

    async def cancel(_: Path) -> str:
        sender = BatchSender(partial(submitted, engine.actions, patience_s=LOOK_S))
        results, problem = list[BatchResult](), ""
        try:
            for run in runs:
                if sender.may_send:
                    results.append(await sender.send(CancelRun(run.run_id)))
        except StorageError as error:
            problem = str(error)
        done = sum(each.is_done for each in results)
        unknown = bool(results) and results[-1].outcome == "unknown"
        refused = [
            (each.reason or "It had no effect.") if len(runs) == 1 else f"{run.run_id}: {each.reason or 'no effect'}"
            for run, each in zip(runs, results, strict=False)
            if not each.is_done and each.outcome != "unknown"
        ]
        if problem:
            refused.append(problem)
        if left := len(runs) - len(results):
            refused.append(f"{plural(left, 'run')} {'was' if left == 1 else 'were'} not tried.")
        if refused and not done and not unknown:
            raise ActionRefusedError(" ".join(refused))
        sentences = []
        if done:
            some = plural(done, "run") if done == len(runs) else f"{done} of {len(runs)} runs"
            sentences.append("The run was cancelled." if len(runs) == 1 else f"{some} were cancelled.")
        if unknown:
            which = "the run" if len(runs) == 1 else runs[len(results) - 1].run_id
            sentences.append(f"Whether {which} was cancelled is unknown: check, and cancel again if still active.")
        return " ".join((*sentences, *refused))

    leaving = "Keep it" if len(runs) == 1 else "Keep them"
    title = f"Cancel {what}"
    instead = (f"{title}, send what waits", keep) if waiting else None
    return ConfirmSheet(title, facts, None, cancel, verb=title, leaving=leaving, is_final=True, instead=instead)
