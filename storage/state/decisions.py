"""Decisions, each with its claim and reason in one row; and rules, with their last edit and why they are paused."""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import astuple

from storage.claims import Claims, this_process
from storage.database import column, execute, scalar
from storage.records import Author
from storage.records.decision import (
    ACTED_OUTCOMES,
    BY_HAND,
    OPEN_OUTCOMES,
    Answer,
    AnswerWord,
    Decision,
    Occurrence,
    Outcome,
    RuleHistory,
    RuleState,
    Verdict,
)
from storage.values import Where, among, from_us, from_us_or_none, records, sqlite_text

Decide = Callable[[RuleHistory], Verdict]
KEPT: Final = timedelta(days=400)
"""How long a decision is kept, and so how long nothing acts on the same occurrence again."""
CLAIMS: Final = Claims("decisions", "id", "outcome = 'acting'")
_COLUMNS: Final = (
    "id, rule, identity, at_us, decided_us, outcome, reason, settled_us, conversation, facts_json,"
    " action_id, result_id, request_json, answer, answered_by, answered_us"
)
_ACTED: Final = ", ".join(f"'{outcome}'" for outcome in sorted(ACTED_OUTCOMES))
MAX_CLOCK_LEAD: Final = timedelta(minutes=5)
"""How far in the future a rule may have begun, for clocks that differ a little."""
OWN: Final = "[notify] on"
"""Stored like a rule's name: when Runwarden's own `[notify] on` was last changed."""
AT_WORK: Final = "[automations] at work"
"""Stored like a rule's name, with the fingerprint of all rules of the running bot."""
_RULE: Final = "rule, fingerprint, since_us, failures, paused, news_from_us"


def enter(
    connection: sqlite3.Connection,
    now: datetime,
    rule: str,
    occurrence: Occurrence,
    decide: Decide,
    *,
    active_run: str | None = None,
    request_json: str | None = None,
) -> Decision | None:
    """The stored decision on an occurrence, with its request if known; None: the rule claimed it before."""
    claim = "SELECT 1 FROM decisions WHERE rule = ? AND identity = ?"
    if scalar(connection, claim, rule, occurrence.identity) is not None:
        return None
    # The counts are read under the claim's lock, so that two processes together do not pass a limit.
    verdict = decide(_past(connection, rule, occurrence.conversation, active_run, now))
    entered = execute(
        connection,
        "INSERT INTO decisions (rule, identity, at_us, decided_us, settled_us, outcome, reason, conversation,"
        " facts_json, owner_json, owned_us, request_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(rule, occurrence.identity, occurrence.at, now, None if verdict.outcome in OPEN_OUTCOMES else now),
        *(verdict.outcome, verdict.reason, occurrence.conversation),
        *(json.dumps(dict(occurrence.facts), ensure_ascii=False), astuple(this_process()), now, request_json),
    )
    return decision_of(connection, entered.lastrowid or 0)


def queue_once(
    connection: sqlite3.Connection, now: datetime, rule: str, occurrence: Occurrence, reason: str, request_json: str
) -> Decision:
    """The rule's open decision on this request; if there is none, it is queued for this reason."""
    # The plus keeps SQLite on the index of open decisions.
    same = "WHERE settled_us IS NULL AND +rule = ? AND request_json = ? ORDER BY id LIMIT 1"
    if not _select(connection, same, rule, request_json):
        enter(connection, now, rule, occurrence, lambda _: Verdict("queued", reason), request_json=request_json)
    (queued,) = _select(connection, same, rule, request_json)
    return queued


def _past(
    connection: sqlite3.Connection, rule: str, conversation: str, active_run: str | None, now: datetime
) -> RuleHistory:
    def count(condition: str, *values: str | datetime) -> int:
        query = f"SELECT count(*) FROM decisions WHERE rule = ? AND outcome IN ({_ACTED}) AND {condition}"
        return int(scalar(connection, query, rule, *values))

    lately = "decided_us > ? AND decided_us <= ?"
    # The plus keeps SQLite on the index of open decisions instead of all that the rule ever made.
    queued = "SELECT 1 FROM decisions WHERE +rule = ? AND settled_us IS NULL AND outcome = 'queued'"
    return RuleHistory(
        # Decisions dated in the future come from a wrong clock and count towards no limit.
        last_hour=count(lately, now - timedelta(hours=1), now + MAX_CLOCK_LEAD),
        last_day=count(lately, now - timedelta(days=1), now + MAX_CLOCK_LEAD),
        in_conversation=count("conversation = ?", conversation) if conversation else 0,
        active_run=active_run,
        has_queued=scalar(connection, queued, rule) is not None,
        paused=scalar(connection, "SELECT paused FROM rules WHERE rule = ?", rule),
    )


def change_outcome(
    connection: sqlite3.Connection, now: datetime, decision_id: int, expected: Outcome, outcome: Outcome, reason: str
) -> bool:
    """Change an open decision, if it is still as expected: one process wins. Return whether this one did."""
    change = {"outcome": outcome, "reason": reason, "settled_us": None if outcome in OPEN_OUTCOMES else now}
    return CLAIMS.claim(connection, decision_id, now, expected={"outcome": expected}, change=change)


def answer(connection: sqlite3.Connection, now: datetime, decision_id: int, word: AnswerWord, author: Author) -> bool:
    """Record the user's answer to a waiting decision; return whether it still waited."""
    reply = Answer(word, author.name, now)
    if not change_outcome(
        connection, now, decision_id, "waiting", "approved" if word == "approved" else "skipped", reply.text
    ):
        return False
    sql = "UPDATE decisions SET answer = ?, answered_by = ?, answered_us = ? WHERE id = ?"
    execute(connection, sql, word, reply.by, now, decision_id)
    return True


def decide_again(
    connection: sqlite3.Connection, now: datetime, decision: Decision, decide: Decide, *, active_run: str | None = None
) -> Decision | None:
    """Decide an approved or queued decision again, given the rule's later actions; None: another process was faster."""
    number, expected = decision.decision_id, decision.outcome
    verdict = decide(_past(connection, decision.rule, decision.occurrence.conversation, active_run, now))
    if not change_outcome(connection, now, number, expected, verdict.outcome, verdict.reason):
        return None
    if expected == "queued":
        # The decision counts towards the limits of the hour in which it acts.
        execute(connection, "UPDATE decisions SET decided_us = ? WHERE id = ?", now, number)
    return decision_of(connection, number)


def settle(connection: sqlite3.Connection, now: datetime, decision: Decision) -> Decision:
    """Store a decision's end: its outcome, reason, `action_id` and `result_id`."""
    execute(
        connection,
        "UPDATE decisions SET outcome = ?, reason = ?, settled_us = ?, action_id = ?, result_id = ? WHERE id = ?",
        *(decision.outcome, decision.reason, now, decision.action_id, decision.result_id, decision.decision_id),
    )
    (settled,) = _select(connection, "WHERE id = ?", decision.decision_id)
    return settled


def store_request(connection: sqlite3.Connection, decision_id: int, request_json: str) -> None:
    """Store the request, once the user has approved it."""
    execute(connection, "UPDATE decisions SET request_json = ? WHERE id = ?", request_json, decision_id)


def unclaimed_identities(connection: sqlite3.Connection, rule: str, identities: Collection[str]) -> frozenset[str]:
    stored = {identity: sqlite_text(identity) for identity in identities}
    query = "SELECT identity FROM decisions WHERE rule = ? AND identity IN (SELECT value FROM json_each(?))"
    claimed = {*column(connection, query, rule, stored.values())}
    return frozenset(identity for identity, name in stored.items() if name not in claimed)


def open_decisions(connection: sqlite3.Connection, outcome: Outcome | None = None) -> tuple[Decision, ...]:
    """Open decisions, oldest first; with one outcome if one is given."""
    return _select(connection, "WHERE settled_us IS NULL AND outcome = coalesce(?, outcome) ORDER BY id", outcome)


def unknown_decisions(connection: sqlite3.Connection, since: datetime) -> tuple[Decision, ...]:
    """Decisions since then whose write has an unknown outcome, oldest first."""
    clauses = "WHERE outcome = 'unknown' AND action_id IS NOT NULL AND decided_us >= ? ORDER BY id"
    return _select(connection, clauses, since)


def decision_of(connection: sqlite3.Connection, decision_id: int) -> Decision | None:
    return next(iter(_select(connection, "WHERE id = ?", decision_id)), None)


def journal(
    connection: sqlite3.Connection, rule: str | None = None, *, limit: int = 100, outcomes: Sequence[Outcome] = ()
) -> tuple[Decision, ...]:
    """Decisions, newest first; `history` only if it is one of the outcomes."""
    condition = among("outcome", outcomes) or Where("outcome <> 'history'")
    if rule is not None:
        condition &= Where("rule = ?", (rule,))
    return _select(connection, f"WHERE {condition.sql} ORDER BY id DESC LIMIT ?", *condition.parameters, limit)


def limited_decisions(connection: sqlite3.Connection, since: datetime) -> tuple[tuple[Decision, int], ...]:
    """Decisions since then that a limit held back: of each rule the newest, and their number."""
    query = (
        f"SELECT {_COLUMNS}, count(*), max(id) FROM decisions WHERE outcome = 'limited' AND decided_us >= ?"
        " GROUP BY rule ORDER BY rule"
    )
    # With max(id), SQLite takes the other columns from the same row.
    return tuple((_decision(row[:-2]), row[-2]) for row in execute(connection, query, since).fetchall())


def last_result(connection: sqlite3.Connection, rule: str, conversation: str = "") -> str | None:
    """The run that the rule made or continued last, in this conversation if one is given."""
    # A conversation is short and can be sorted; a rule's decisions are read from the newest on.
    within, order = ("conversation = ? AND rule = ?", "+id") if conversation else ("? = '' AND rule = ?", "decided_us")
    query = f"SELECT result_id FROM decisions WHERE {within} AND result_id IS NOT NULL ORDER BY {order} DESC LIMIT 1"
    run_id: str | None = scalar(connection, query, conversation, rule)
    return run_id


def last_due(connection: sqlite3.Connection, rule: str, now: datetime) -> datetime | None:
    """The newest time that the rule decided on; future times come from a wrong clock and are ignored."""
    # The claim's own index serves this, so that not all decisions of the rule are read.
    query = (
        "SELECT at_us FROM decisions WHERE rule = ? AND identity >= 'at:' AND identity < 'at;' AND at_us <= ?"
        " ORDER BY identity DESC LIMIT 1"
    )
    return from_us_or_none(scalar(connection, query, rule, now))


def conversation(connection: sqlite3.Connection, run_id: str) -> str:
    """The conversation in which an automation made this run; for any other run its own id."""
    query = "SELECT conversation, id FROM decisions WHERE result_id = ? ORDER BY id LIMIT 1"
    return scalar(connection, query, run_id) or run_id


def forget(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete settled decisions older than `KEPT`."""
    execute(connection, "DELETE FROM decisions WHERE decided_us < ? AND settled_us IS NOT NULL", now - KEPT)


def _select(connection: sqlite3.Connection, clauses: str, *values: str | int | datetime | None) -> tuple[Decision, ...]:
    return tuple(map(_decision, execute(connection, f"SELECT {_COLUMNS} FROM decisions {clauses}", *values).fetchall()))


def _decision(row: tuple[Any, ...]) -> Decision:
    number, rule, identity, at_us, decided_us, outcome, reason, settled_us, conversation_id, facts, *rest = row
    occurrence = Occurrence(identity, from_us(at_us), conversation_id, json.loads(facts))
    settled_at = from_us_or_none(settled_us)
    action_id, result_id, request_json, word, by, answered_us = rest
    reply = None if word is None else Answer(word, by, from_us(answered_us))
    return Decision(
        *(number, rule, occurrence, from_us(decided_us), outcome, reason, settled_at),
        *(action_id, result_id, request_json, reply),
    )


def begin_rule(connection: sqlite3.Connection, rule: str, fingerprint: str, now: datetime) -> RuleState:
    """The rule's state; a new rule, or an edited one, begins now.

    An edit counts as the fix of a rule that paused itself; one that the user paused stays so.
    """
    paused = None
    for state in records(RuleState, execute(connection, f"SELECT {_RULE} FROM rules WHERE rule = ?", rule)):
        is_same = state.fingerprint == fingerprint
        # A rule that began in the future, by a wrong clock, begins now instead of waiting for that time.
        if is_same and state.since <= now + MAX_CLOCK_LEAD:
            return state
        if is_same or (state.paused or "").startswith(BY_HAND):
            paused = state.paused
    sql = f"INSERT OR REPLACE INTO rules ({_RULE}) VALUES (?, ?, ?, 0, ?, NULL)"
    execute(connection, sql, rule, fingerprint, now, paused)
    return RuleState(rule, fingerprint, now, paused=paused)


def retire_rules(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Forget the state of removed rules: one that comes back begins as a new one."""
    query = "UPDATE rules SET fingerprint = '' WHERE rule NOT IN (SELECT value FROM json_each(?))"
    execute(connection, query, (*names, OWN, AT_WORK))


def store_news_from(connection: sqlite3.Connection, rule: str, news_from: datetime) -> None:
    """Record that the rule has seen everything older than itself; later service times are news."""
    execute(connection, "UPDATE rules SET news_from_us = ? WHERE rule = ?", news_from, rule)


def pause(connection: sqlite3.Connection, rule: str, reason: str) -> bool:
    """Pause the rule; return whether it is known and was not paused."""
    query = "UPDATE rules SET paused = ? WHERE rule = ? AND paused IS NULL"
    return execute(connection, query, reason, rule).rowcount > 0


def resume(connection: sqlite3.Connection, rule: str) -> bool:
    """Resume the rule; return whether it was paused. Occurrences in between stay undone."""
    query = "UPDATE rules SET paused = NULL, failures = 0 WHERE rule = ? AND paused IS NOT NULL"
    return execute(connection, query, rule).rowcount > 0


def count_failure(connection: sqlite3.Connection, rule: str, *, has_failed: bool) -> int:
    """Count failures in a row; a success resets them. Return their number."""
    sql = "UPDATE rules SET failures = iif(?, failures + 1, 0) WHERE rule = ? RETURNING failures"
    return next(iter(column(connection, sql, has_failed, rule)), 0)


def rule_states(connection: sqlite3.Connection) -> dict[str, RuleState]:
    """All rules ever seen, by name."""
    rows = connection.execute(f"SELECT {_RULE} FROM rules")
    return {state.rule: state for state in records(RuleState, rows)}
