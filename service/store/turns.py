"""Turns: each is one instruction of a run and ends exactly once, no matter how many attempts it takes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from service.clock import Clock, Micros
from service.rules import ISSUE_TEXT
from service.store import audit, events, messages, postings, turn_files
from service.store import runs as run_store
from service.store.rows import exists, of_turn, optional_filter, record_of, records_of, update
from service.store.runs import Run
from service.store.schema import CANCELLED, IS_RUNNING, WAS_CANCELLED, runs, turns

WEBHOOK: Final = "webhook"
"""The caller of a turn that a code host's delivery started."""
NOTHING_CHANGED: Final = "the agent changed nothing"
NOT_EXECUTED: Final = "the lab made this turn up: no agent worked, so it has no log and no change"
NOT_PUSHED: Final = "the head of a fork is not pushed to: the agent's change is kept only as a patch"
MADE_UP: Final = "lab"
"""The `executor` of turns that the lab generated: they are not executed and take no slot."""
NEEDS_ANSWER: Final = "needs_answer"
"""The outcome of a turn whose agent asked a question; its status is `failed`."""
STOPPED: Final = f"{CANCELLED} for a message from"
"""How the failure of a turn begins that was stopped for a message, with which the run continues."""
NO_AGENT: Final = "no agent could work"
"""How the failure begins of a turn whose agent and fallbacks all lacked their models."""
_OPEN: Final = turns.c.status.not_in(run_store.FINAL)
SLOTTED: Final = IS_RUNNING & turns.c.executor.is_distinct_from(MADE_UP)
"""The condition of the turns that take a slot."""
_is = partial(of_turn, turns)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a run."""

    run_id: str
    number: int
    status: str
    instructions: str
    inputs: dict[str, object]
    attempt: int
    """How often a worker claimed it; a worker with an older number can no longer write results."""
    pauses: int
    """The number of attempts at which its model gave no answer at all."""
    finished_at: Micros | None
    commit_sha: str | None
    summary: str | None
    failure: str | None
    """Why it failed, or why an open turn cannot start yet."""
    failure_kind: str | None
    """Why it failed, for programs (`out_of_budget`, `timed_out` …); None if the kind is not known."""
    trace_parent: str | None
    """The span of the request that queued it (W3C traceparent); None if it was not traced."""
    started_at: Micros | None
    caller: str | None
    """The alias of the caller's token; None if it has none, or if the turn is older than stored aliases."""
    base_sha: str | None
    """The branch's commit before the turn; None if the branch did not exist, or nothing was committed."""
    merge_base: str | None
    """The commit where the branch left the default branch; None, as the three below, if nothing was committed."""
    files: int | None
    """How many files it changed, pushed or not; None if not known."""
    additions: int | None
    deletions: int | None
    question: dict[str, Any] | None
    """The agent's question with its `choices`."""
    executor: str | None
    """The worker that claimed it last; `MADE_UP` for a turn of the lab."""
    from_turn: int | None
    """The turn whose unpushed change it starts from, possibly its own after a pause; None to start from the branch."""
    pushing_sha: str | None
    """The commit that an attempt pushed, or was about to push."""
    waiting_since: int | None
    """Since when its code host has not answered; None if the last attempt did not fail for that."""
    agent: str | None = None
    """The fallback that does it; None: the run's agent."""
    unavailable: dict[str, str] | None = None
    """The agents in whose place it does, each with why its model was unavailable."""

    @property
    def own_instructions(self) -> str:
        """The instructions without an issue's text, which anyone wrote, maybe for fewer readers than a commit has."""
        return self.instructions.partition(f"\n\n{ISSUE_TEXT}\n")[0]

    @property
    def is_unpushed(self) -> bool:
        """Whether its change is kept only as a patch."""
        return self.commit_sha is None and bool(self.files)

    @property
    def is_unfinished(self) -> bool:
        """Whether there may be an unpushed change: its own, or the one it started from."""
        is_begun = self.attempt > 0 and (self.from_turn is not None or self.failure_kind != "setup_failed")
        return self.is_unpushed or (self.status == "failed" and is_begun and self.files is None)

    @property
    def kept_turn(self) -> int | None:
        """The turn with the newest unpushed change: this one, or the one it started from; None if there is none."""
        if self.is_unpushed:
            return self.number
        return self.from_turn if self.is_unfinished else None

    @property
    def is_resumed_from_patch(self) -> bool:
        """Whether the next turn starts from that change, unless its caller asks otherwise: not if it was cancelled."""
        return self.outcome != CANCELLED or self.from_turn is not None

    @property
    def outcome(self) -> str | None:
        """`completed`, `failed`, `cancelled` or `needs_answer`; None before the end."""
        if self.status not in run_store.FINAL:
            return None
        if self.question is not None:
            return NEEDS_ANSWER
        if self.failure and self.failure.startswith(CANCELLED):
            return CANCELLED
        return self.status

    @property
    def reason(self) -> str | None:
        """Why it failed, or that the agent changed nothing; None if it changed something, or before the end."""
        is_idle = self.status == "completed" and self.commit_sha is None
        nothing = NOT_EXECUTED if self.executor == MADE_UP else NOTHING_CHANGED
        reasons = [self.failure or (nothing if is_idle else None)]
        if self.agent is not None and NO_AGENT not in (self.failure or ""):
            reasons.append(f"by the fallback {self.agent}, since {unavailable_words(self.unavailable)}")
        return "; ".join(filter(None, reasons)) or None


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended: its status, commit and reason."""

    status: str
    commit_sha: str | None = None
    summary: str | None = None
    failure: str | None = None
    failure_kind: str | None = None
    question: dict[str, Any] | None = None
    attempt: int | None = None
    """The attempt that ended; with None the turn ends even if another attempt is running."""
    base_sha: str | None = None
    merge_base: str | None = None
    files: int | None = None
    additions: int | None = None
    deletions: int | None = None
    tree_sha: str | None = None


@dataclass(frozen=True, slots=True)
class TurnPause:
    """How a turn waits without a slot."""

    due_at: Micros
    """The earliest next start."""
    why: str | None
    """The reason for callers; None to show the outage of its provider."""
    is_counted: bool
    """Whether this was an attempt; otherwise it counts as a pause."""
    from_turn: int | None = None
    since: int | None = None
    """Since when its code host has not answered; None if it waits for something else."""
    change: Mapping[str, object] = field(default_factory=dict)
    """The agent's change so far, in the fields of a turn; empty if not known."""


def unavailable_words(unavailable: Mapping[str, str] | None) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in (unavailable or {}).items())


def fall_back(connection: sa.Connection, turn: Turn, name: str, unavailable: dict[str, str]) -> Turn:
    """Give a claimed turn to a fallback; return it as it is then."""
    update(connection, turns, *_is(turn.run_id, turn.number), agent=name, unavailable=unavailable)
    return replace(turn, agent=name, unavailable=unavailable)


def mark_dispatched(connection: sa.Connection, dispatched: Sequence[tuple[str, int]], now: Micros) -> None:
    """Record that the turns, each a run's id and a number, are in the queue."""
    statement = sa.update(turns).where(turns.c.run_id == sa.bindparam("of"), turns.c.number == sa.bindparam("nth"))
    rows = [{"of": run_id, "nth": number} for run_id, number in dispatched]
    connection.execute(statement.values(dispatched_at=now), rows)


def claim(connection: sa.Connection, run_id: str, number: int, executor: str, now: Micros) -> tuple[Run, Turn] | None:
    """Claim a turn: status working, attempt incremented; return it with its run, None if it has already ended."""
    values: dict[str, Any] = {"status": "working", "attempt": turns.c.attempt + 1, "executor": executor}
    values |= {"due_at": None, "failure": None, "started_at": sa.func.coalesce(turns.c.started_at, now)}
    if not update(connection, turns, *_is(run_id, number), _OPEN, **values):
        return None
    run_store.touch(connection, run_id, now, status="working")
    run = run_store.by_id(connection, run_id)
    turn = by_number(connection, run_id, number)
    if run is None or turn is None:
        return None
    if turn.attempt == 1:
        postings.renew_comment(connection, run_id, now, number)
        data = run.body | {"turn": number}
        events.record(connection, run.organization_id, "run.started", data, now, run_id=run_id)
    return run, turn


def lock_open(connection: sa.Connection, run_id: str, number: int) -> Turn | None:
    """Return an open turn, which nobody else can change before the transaction ends; None: it has ended."""
    is_open = update(connection, turns, *_is(run_id, number), _OPEN, number=number)
    return by_number(connection, run_id, number) if is_open else None


def pause(connection: sa.Connection, turn: Turn, paused: TurnPause, now: Micros) -> bool:
    """Give a turn's slot back for a while; False if it has ended, or another attempt has taken over."""
    values = {**paused.change, "status": "queued", "dispatched_at": None, "due_at": paused.due_at}
    values |= {"waiting_since": paused.since, "failure": paused.why, "from_turn": paused.from_turn}
    values |= {"pauses": turn.pauses + (not paused.is_counted)}
    if not update(connection, turns, *_is_latest(turn), **values):
        return False
    run_store.touch(connection, turn.run_id, now, status="queued")
    return True


def note_put_back(connection: sa.Connection, run_id: str, number: int, reason: str, now: Micros) -> None:
    """Record why an open turn's worker has no room for it at present."""
    update(connection, turns, *_is(run_id, number), _OPEN, failure=reason)
    run_store.touch(connection, run_id, now)


def begin_push(connection: sa.Connection, turn: Turn, commit: str) -> bool:
    """Store the commit that is about to be pushed; False unless this is the latest attempt of an open turn."""
    return update(connection, turns, *_is_latest(turn), pushing_sha=commit) > 0


def last_begun(past: Sequence[Turn]) -> Turn | None:
    """Return the last of a run's turns that a worker started; later ones changed nothing."""
    return next((turn for turn in reversed(past) if turn.attempt), None)


def is_own_commit(connection: sa.Connection, commit: str) -> bool:
    """Whether a turn of any organization pushed a commit, or is about to push it."""
    return exists(connection, turns, pushing_sha=commit)


def end(connection: sa.Connection, run_id: str, number: int, outcome: TurnOutcome, now: Micros) -> bool:
    """Record how a turn ended; False if it had already ended, or another attempt has taken over."""
    attempt = optional_filter(turns.c.attempt, outcome.attempt)
    values: dict[str, object] = {"finished_at": now}
    # A failed turn keeps the change that it made before a pause.
    is_whole = outcome.status == "completed"
    values |= {name: value for name, value in asdict(outcome).items() if is_whole or value is not None}
    values.pop("attempt", None)
    # The commit may be one that an earlier attempt pushed.
    values |= {"pushing_sha": outcome.commit_sha} if outcome.commit_sha else {}
    if not update(connection, turns, *_is(run_id, number), attempt, _OPEN, **values):
        return False
    turn_files.remove(connection, (run_id, number), turn_files.COMMIT)
    run_store.touch(connection, run_id, now, status=outcome.status)
    run = run_store.by_id(connection, run_id)
    turn = by_number(connection, run_id, number)
    if run is not None and turn is not None:
        is_cancelled = outcome.failure is not None and outcome.failure.startswith(CANCELLED)
        state: postings.State = "success" if outcome.status == "completed" else "failure"
        if is_cancelled:
            state = "error"
        postings.at_end(connection, run, number, outcome, state, now)
        data = run.body | {"turn": number, "outcome": turn.outcome, "reason": turn.reason}
        events.record(connection, run.organization_id, "run.ended", data, now, run_id=run_id)
        _continue(connection, run, turn, now)
    return True


def _continue(connection: sa.Connection, run: Run, turn: Turn, now: Micros) -> None:
    """Start the next turn with the messages that waited for the end of this one; if it was cancelled, drop them."""
    if not (waiting := messages.of_runs(connection, [run.id], "waiting")):
        return
    is_stopped = (turn.failure or "").startswith(STOPPED)
    state = "dropped" if turn.outcome == CANCELLED and not is_stopped else "continued"
    begun = last_begun(of(connection, run.id))
    request = run_store.TurnRequest(
        *(run.organization_id, run.agent, run.platform, run.path, run.url, run.branch),
        instructions="\n\n".join(message.text for message in waiting),
        caller=waiting[-1].caller,
        from_turn=begun.kept_turn if begun and (is_stopped or begun.is_resumed_from_patch) else None,
    )
    try:
        if state == "continued" and run_store.resume(connection, run, request, now) is None:
            return
    except run_store.InactiveOrganizationError:
        state = "dropped"
    messages.mark(connection, waiting, state)


def note_pushed(connection: sa.Connection, run_id: str, number: int, outcome: TurnOutcome) -> None:
    """Record the commit of a turn that was cancelled during the push; the turn stays cancelled."""
    late = {name: value for name, value in asdict(outcome).items() if name not in {"attempt", "status", "failure"}}
    is_late = (turns.c.attempt == outcome.attempt, turns.c.commit_sha.is_(None), WAS_CANCELLED)
    failure = turns.c.failure + "; its change had been pushed already"
    update(connection, turns, *_is(run_id, number), *is_late, **late | {"failure": failure})


def is_cancelled(connection: sa.Connection, turn: Turn) -> bool:
    """Whether the turn was cancelled, and this attempt was its last."""
    stored = by_number(connection, turn.run_id, turn.number)
    return stored is not None and stored.outcome == CANCELLED and stored.attempt == turn.attempt


def note_kept(connection: sa.Connection, turn: Turn, change: Mapping[str, object], now: Micros) -> None:
    """Record the change that the agent of a cancelled turn had made, in the fields of a turn."""
    update(connection, turns, *_is(turn.run_id, turn.number), turns.c.commit_sha.is_(None), **change)
    run_store.touch(connection, turn.run_id, now)


def cancel(connection: sa.Connection, run_id: str, reason: str, now: Micros) -> bool:
    """End a run's open turn as failed, which interrupts its worker; False if there is none."""
    number = connection.scalar(sa.select(turns.c.number).where(turns.c.run_id == run_id, _OPEN))
    return number is not None and end(connection, run_id, number, TurnOutcome("failed", failure=reason), now)


def cancel_each(
    connection: sa.Connection, shown: Sequence[tuple[str, int]], status: str | None, actor: str, clock: Clock
) -> list[str]:
    """Cancel those of some turns that are open, of a status or (None) of any; return their runs' ids.

    The operator saw these turns, each a run's id and a number, and confirmed. Each has an entry in the audit trail.
    """
    run_of = run_store.by_ids(connection, [run_id for run_id, _ in shown])
    outcome = TurnOutcome("failed", failure=f"{CANCELLED} by the operator")
    chosen = [(run, number) for run_id, number in shown if (run := run_of.get(run_id)) and status in {None, run.status}]
    ended_runs = [run for run, number in chosen if end(connection, run.id, number, outcome, clock())]
    for run in ended_runs:
        audit.record(connection, actor, "run.cancel", clock(), target=run.id, organization_id=run.organization_id)
    return [run.id for run in ended_runs]


def cancel_all(connection: sa.Connection, organization_id: str, reason: str, now: Micros) -> int:
    """End every open turn of an organization as failed; return how many there were."""
    own_runs = sa.select(runs.c.id).where(runs.c.organization_id == organization_id)
    run_ids = connection.scalars(sa.select(turns.c.run_id).where(turns.c.run_id.in_(own_runs), _OPEN)).all()
    return sum(cancel(connection, run_id, reason, now) for run_id in run_ids)


def ended_among(connection: sa.Connection, keys: Sequence[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Return the turns, each a run's id and a number, that have ended or were deleted."""
    key = sa.tuple_(turns.c.run_id, turns.c.number)
    query = sa.select(turns.c.run_id, turns.c.number).where(key.in_(keys), _OPEN)
    return frozenset(keys) - {(run_id, number) for run_id, number in connection.execute(query)}


def dispatched_turns(connection: sa.Connection) -> list[tuple[str, int]]:
    """Return the open turns that have a slot, each a run's id and a number."""
    query = sa.select(turns.c.run_id, turns.c.number).where(SLOTTED)
    return [(run_id, number) for run_id, number in connection.execute(query)]


def open_runs(connection: sa.Connection, among: Sequence[str] | None = None) -> frozenset[str]:
    query = sa.select(turns.c.run_id).where(turns.c.status.in_(run_store.OPEN))
    query = query if among is None else query.where(turns.c.run_id.in_(among))
    return frozenset(connection.scalars(query))


class LastTurn(NamedTuple):
    """The last turn of a run, which has ended."""

    run_id: str
    number: int
    question: dict[str, Any] | None
    finished_at: Micros


def last_turns(
    connection: sa.Connection, organization_id: str, condition: sa.ColumnElement[bool], limit: int
) -> list[LastTurn]:
    """Return the last turns of an organization's runs, newest first.

    `condition`: the schema's `HAS_QUESTION`, for questions open until their run is continued, or `WAS_CANCELLED`.
    """
    columns = (turns.c[name] for name in LastTurn._fields)
    last = sa.and_(runs.c.id == turns.c.run_id, runs.c.turn == turns.c.number)
    query = sa.select(*columns).join(runs, last).where(turns.c.organization_id == organization_id, condition)
    return [LastTurn(*row) for row in connection.execute(query.order_by(turns.c.finished_at.desc()).limit(limit))]


def by_number(connection: sa.Connection, run_id: str, number: int) -> Turn | None:
    return record_of(connection, Turn, turns, run_id=run_id, number=number)


def newest_of(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, Turn]:
    number = sa.select(runs.c.turn).where(runs.c.id == turns.c.run_id).scalar_subquery()
    last = records_of(connection, Turn, turns, turns.c.run_id.in_(run_ids), turns.c.number == number)
    return {turn.run_id: turn for turn in last}


def of(connection: sa.Connection, run_id: str) -> list[Turn]:
    return records_of(connection, Turn, turns, run_id=run_id, order=[turns.c.number])


def _is_latest(turn: Turn) -> tuple[sa.ColumnElement[bool], ...]:
    """The condition that a turn is open, and no later attempt has it."""
    return (*_is(turn.run_id, turn.number), turns.c.attempt == turn.attempt, _OPEN)


class EndedTurn(NamedTuple):
    """How a turn ended, and when it was accepted, started (None: no worker claimed it) and finished (microseconds)."""

    run_id: str
    number: int
    outcome: str
    accepted_at: Micros
    started_at: Micros | None
    finished_at: Micros


def ended_since(connection: sa.Connection, earliest: int) -> list[EndedTurn]:
    """Return the turns that ended since an instant (microseconds)."""
    outcome = sa.case((WAS_CANCELLED, CANCELLED), else_=turns.c.status)
    columns = (turns.c.accepted_at, turns.c.started_at, turns.c.finished_at)
    is_real = turns.c.executor.is_distinct_from(MADE_UP)
    query = sa.select(turns.c.run_id, turns.c.number, outcome, *columns)
    return [EndedTurn(*row) for row in connection.execute(query.where(turns.c.finished_at >= earliest, is_real))]
