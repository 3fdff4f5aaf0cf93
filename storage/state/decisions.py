"""Decisions, each with its claim and reason in one row; and rules, with their last edit and why they are paused."""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from storage.claims import Claims, this_process
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
from storage.values import Where, among, from_us, from_us_or_none, sqlite_text, sqlite_text_or_none, to_us

KEPT: Final = timedelta(days=400)
"""How long a decision is kept, and so how long nothing acts on the same occurrence again."""
CLAIMS: Final = Claims("decisions", "id", "outcome = 'acting'")
_COLUMNS: Final = (
    "id, rule, identity, at_us, decided_us, outcome, reason, settled_us, conversation, facts_json,"
    " action_id, result_id, request_json, answer, answered_by, answered_us"
)
_ACTED: Final = ", ".join(f"'{outcome}'" for outcome in sorted(ACTED_OUTCOMES))
AHEAD: Final = timedelta(minutes=5)
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
    decide: Callable[[RuleHistory], Verdict],
    *,
    active_run: str | None = None,
    request_json: str | None = None,
) -> Decision | None:
    """Decide on an occurrence and store the decision, with its request if known.

    Returns:
        The decision; None: the rule claimed the occurrence before, in any process.
    """
    name = sqlite_text(rule)
    identity = sqlite_text(occurrence.identity)
    claim = connection.execute("SELECT 1 FROM decisions WHERE rule = ? AND identity = ?", (name, identity))
    if claim.fetchone() is not None:
        return None
    # The counts are read under the claim's lock, so that two processes together do not pass a limit.
    verdict = decide(_past(connection, name, occurrence.conversation, active_run, now))
    is_final = verdict.outcome not in OPEN_OUTCOMES
    facts_json = sqlite_text(json.dumps(dict(occurrence.facts), ensure_ascii=False))
    entered = connection.execute(
        "INSERT INTO decisions (rule, identity, at_us, decided_us, settled_us, outcome, reason, conversation,"
        " facts_json, owner_json, owned_us, request_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(name, identity, to_us(occurrence.at), to_us(now), to_us(now) if is_final else None),
            *(verdict.outcome, sqlite_text(verdict.reason), sqlite_text(occurrence.conversation)),
            *(facts_json, this_process().as_json(), to_us(now), sqlite_text_or_none(request_json)),
        ),
    )
    return decision_of(connection, entered.lastrowid or 0)


def queue_once(
    connection: sqlite3.Connection, now: datetime, rule: str, occurrence: Occurrence, reason: str, request_json: str
) -> Decision:
    """The rule's open decision on this request; if there is none, it is queued for this reason."""
    # The plus keeps SQLite on the index of open decisions.
    same = "WHERE settled_us IS NULL AND +rule = ? AND request_json = ? ORDER BY id LIMIT 1"
    values = sqlite_text(rule), sqlite_text(request_json)
    if not _select(connection, same, *values):
        enter(connection, now, rule, occurrence, lambda _: Verdict("queued", reason), request_json=request_json)
    (queued,) = _select(connection, same, *values)
    return queued


def _past(
    connection: sqlite3.Connection, rule: str, conversation: str, active_run: str | None, now: datetime
) -> RuleHistory:
    def count(condition: str, *values: str | int) -> int:
        query = f"SELECT count(*) FROM decisions WHERE rule = ? AND {condition}"
        return int(connection.execute(query, (rule, *values)).fetchone()[0])

    lately = "decided_us > ? AND decided_us <= ?"
    row = connection.execute("SELECT paused FROM rules WHERE rule = ?", (rule,)).fetchone()
    # The plus keeps SQLite on the index of open decisions instead of all that the rule ever made.
    queued = "SELECT 1 FROM decisions WHERE +rule = ? AND settled_us IS NULL AND outcome = 'queued'"
    return RuleHistory(
        # Decisions dated in the future come from a wrong clock and count towards no limit.
        last_hour=count(f"outcome IN ({_ACTED}) AND {lately}", to_us(now - timedelta(hours=1)), to_us(now + AHEAD)),
        last_day=count(f"outcome IN ({_ACTED}) AND {lately}", to_us(now - timedelta(days=1)), to_us(now + AHEAD)),
        in_conversation=count(f"outcome IN ({_ACTED}) AND conversation = ?", conversation) if conversation else 0,
        active_run=active_run,
        has_queued=connection.execute(queued, (rule,)).fetchone() is not None,
        paused=None if row is None else row[0],
    )


def change_outcome(
    connection: sqlite3.Connection, now: datetime, decision_id: int, expected: Outcome, outcome: Outcome, reason: str
) -> bool:
    """Change an open decision, if it is still as expected: one process wins. Return whether this one did."""
    settled_us = None if outcome in OPEN_OUTCOMES else to_us(now)
    change = {"outcome": outcome, "reason": sqlite_text(reason), "settled_us": settled_us}
    return CLAIMS.claim(connection, decision_id, now, expected={"outcome": expected}, change=change)


def answer(connection: sqlite3.Connection, now: datetime, decision_id: int, word: AnswerWord, author: Author) -> bool:
    """Record the user's answer to a waiting decision; return whether it still waited."""
    reply = Answer(word, author.name, now)
    if not change_outcome(
        connection, now, decision_id, "waiting", "approved" if word == "approved" else "skipped", reply.text
    ):
        return False
    connection.execute(
        "UPDATE decisions SET answer = ?, answered_by = ?, answered_us = ? WHERE id = ?",
        (word, sqlite_text(reply.by), to_us(now), decision_id),
    )
    return True


def decide_again(
    connection: sqlite3.Connection,
    now: datetime,
    decision: Decision,
    decide: Callable[[RuleHistory], Verdict],
    *,
    active_run: str | None = None,
) -> Decision | None:
    """Decide an approved or queued decision again, given the rule's later actions; None: another process was faster."""
    number, expected = decision.decision_id, decision.outcome
    verdict = decide(_past(connection, sqlite_text(decision.rule), decision.occurrence.conversation, active_run, now))
    if not change_outcome(connection, now, number, expected, verdict.outcome, verdict.reason):
        return None
    if expected == "queued":
        # The decision counts towards the limits of the hour in which it acts.
        connection.execute("UPDATE decisions SET decided_us = ? WHERE id = ?", (to_us(now), number))
    return decision_of(connection, number)


def settle(connection: sqlite3.Connection, now: datetime, decision: Decision) -> Decision:
    """Store a decision's end: its outcome, reason, `action_id` and `result_id`."""
    connection.execute(
        "UPDATE decisions SET outcome = ?, reason = ?, settled_us = ?, action_id = ?, result_id = ? WHERE id = ?",
        (
            *(decision.outcome, sqlite_text(decision.reason), to_us(now)),
            *(sqlite_text_or_none(decision.action_id), sqlite_text_or_none(decision.result_id)),
            decision.decision_id,
        ),
    )
    (settled,) = _select(connection, "WHERE id = ?", decision.decision_id)
    return settled


def store_request(connection: sqlite3.Connection, decision_id: int, request_json: str) -> None:
    """Store the request, once the user has approved it."""
    connection.execute("UPDATE decisions SET request_json = ? WHERE id = ?", (sqlite_text(request_json), decision_id))


def unclaimed(connection: sqlite3.Connection, rule: str, identities: Collection[str]) -> frozenset[str]:
    """The identities that the rule has not decided on."""
    stored = {identity: sqlite_text(identity) for identity in identities}
    query = "SELECT identity FROM decisions WHERE rule = ? AND identity IN (SELECT value FROM json_each(?))"
    rows = connection.execute(query, (sqlite_text(rule), json.dumps([*stored.values()]))).fetchall()
    claimed = {identity for (identity,) in rows}
    return frozenset(identity for identity, name in stored.items() if name not in claimed)


def open_decisions(connection: sqlite3.Connection, outcome: Outcome | None = None) -> tuple[Decision, ...]:
    """Open decisions, oldest first; with one outcome if one is given."""
    return _select(connection, "WHERE settled_us IS NULL AND outcome = coalesce(?, outcome) ORDER BY id", outcome)


def unknown_decisions(connection: sqlite3.Connection, since: datetime) -> tuple[Decision, ...]:
    """Decisions since then whose write has an unknown outcome, oldest first."""
    rest = "WHERE outcome = 'unknown' AND action_id IS NOT NULL AND decided_us >= ? ORDER BY id"
    return _select(connection, rest, to_us(since))


def decision_of(connection: sqlite3.Connection, decision_id: int) -> Decision | None:
    """The decision with this number."""
    return next(iter(_select(connection, "WHERE id = ?", decision_id)), None)


def journal(
    connection: sqlite3.Connection, rule: str | None = None, *, limit: int = 100, outcomes: Sequence[Outcome] = ()
) -> tuple[Decision, ...]:
    """Decisions, newest first; `history` only if it is one of the outcomes."""
    where = among("outcome", outcomes) or Where("outcome <> 'history'")
    if rule is not None:
        where &= Where("rule = ?", (sqlite_text(rule),))
    return _select(connection, f"WHERE {where.sql} ORDER BY id DESC LIMIT ?", *where.parameters, limit)


def limited(connection: sqlite3.Connection, since: datetime) -> tuple[tuple[Decision, int], ...]:
    """Decisions since then that a limit held back: of each rule the newest, and their number."""
    query = (
        f"SELECT {_COLUMNS}, count(*), max(id) FROM decisions WHERE outcome = 'limited' AND decided_us >= ?"
        " GROUP BY rule ORDER BY rule"
    )
    # With max(id), SQLite takes the other columns from the same row.
    return tuple((_decision(row[:-2]), row[-2]) for row in connection.execute(query, (to_us(since),)).fetchall())


def outcomes(connection: sqlite3.Connection) -> dict[tuple[str, ...], int]:
    """The number of decisions by rule and outcome."""
    query = "SELECT rule, outcome, count(*) FROM decisions GROUP BY rule, outcome"
    return {(rule, outcome): count for rule, outcome, count in connection.execute(query).fetchall()}


def last_result(connection: sqlite3.Connection, rule: str, conversation: str = "") -> str | None:
    """The run that the rule made or continued last, in this conversation if one is given."""
    # A conversation is short and can be sorted; a rule's decisions are read from the newest on.
    within, order = ("conversation = ? AND rule = ?", "+id") if conversation else ("? = '' AND rule = ?", "decided_us")
    query = f"SELECT result_id FROM decisions WHERE {within} AND result_id IS NOT NULL ORDER BY {order} DESC"
    row = connection.execute(f"{query} LIMIT 1", (sqlite_text(conversation), sqlite_text(rule))).fetchone()
    return None if row is None else str(row[0])


def last_due(connection: sqlite3.Connection, rule: str, now: datetime) -> datetime | None:
    """The newest time that the rule decided on; future times come from a wrong clock and are ignored."""
    # The claim's own index serves this, so that not all decisions of the rule are read.
    query = (
        "SELECT at_us FROM decisions WHERE rule = ? AND identity >= 'at:' AND identity < 'at;' AND at_us <= ?"
        " ORDER BY identity DESC LIMIT 1"
    )
    row = connection.execute(query, (sqlite_text(rule), to_us(now))).fetchone()
    return None if row is None else from_us(row[0])


def conversation(connection: sqlite3.Connection, run_id: str) -> str:
    """The conversation in which an automation made this run; for any other run its own id."""
    query = "SELECT conversation, id FROM decisions WHERE result_id = ? ORDER BY id LIMIT 1"
    row = connection.execute(query, (sqlite_text(run_id),)).fetchone()
    return run_id if row is None else row[0] or run_id


def forget(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete settled decisions older than `KEPT`."""
    query = "DELETE FROM decisions WHERE decided_us < ? AND settled_us IS NOT NULL"
    connection.execute(query, (to_us(now - KEPT),))


def _select(connection: sqlite3.Connection, rest: str, *values: str | int | None) -> tuple[Decision, ...]:
    """The decisions that the rest of a SELECT (WHERE, ORDER BY, LIMIT) picks."""
    return tuple(map(_decision, connection.execute(f"SELECT {_COLUMNS} FROM decisions {rest}", values).fetchall()))


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
    row = connection.execute(f"SELECT {_RULE} FROM rules WHERE rule = ?", (sqlite_text(rule),)).fetchone()
    state = None if row is None else _rule_state(row)
    is_same = state is not None and state.fingerprint == fingerprint
    # A rule that began in the future, by a wrong clock, begins now instead of waiting for that time.
    if state is not None and is_same and state.since <= now + AHEAD:
        return state
    paused = state.paused if state is not None and (is_same or (state.paused or "").startswith(BY_HAND)) else None
    connection.execute(
        f"INSERT OR REPLACE INTO rules ({_RULE}) VALUES (?, ?, ?, 0, ?, NULL)",
        (sqlite_text(rule), fingerprint, to_us(now), paused),
    )
    return RuleState(rule, fingerprint, now, paused=paused)


def retire_rules(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Forget the state of removed rules: one that comes back begins as a new one."""
    query = "UPDATE rules SET fingerprint = '' WHERE rule NOT IN (SELECT value FROM json_each(?))"
    connection.execute(query, (json.dumps([*map(sqlite_text, names), OWN, AT_WORK]),))


def store_news_from(connection: sqlite3.Connection, rule: str, news_from: datetime) -> None:
    """Record that the rule has seen everything older than itself; later service times are news."""
    connection.execute("UPDATE rules SET news_from_us = ? WHERE rule = ?", (to_us(news_from), sqlite_text(rule)))


def pause(connection: sqlite3.Connection, rule: str, why: str) -> bool:
    """Pause the rule; return whether it is known and was not paused."""
    query = "UPDATE rules SET paused = ? WHERE rule = ? AND paused IS NULL"
    return connection.execute(query, (sqlite_text(why), sqlite_text(rule))).rowcount > 0


def resume(connection: sqlite3.Connection, rule: str) -> bool:
    """Resume the rule; return whether it was paused. Occurrences in between stay undone."""
    query = "UPDATE rules SET paused = NULL, failures = 0 WHERE rule = ? AND paused IS NOT NULL"
    return connection.execute(query, (sqlite_text(rule),)).rowcount > 0


def count_failure(connection: sqlite3.Connection, rule: str, *, has_failed: bool) -> int:
    """Count failures in a row; a success resets them. Return their number."""
    sql = "UPDATE rules SET failures = iif(?, failures + 1, 0) WHERE rule = ? RETURNING failures"
    rows = connection.execute(sql, (has_failed, sqlite_text(rule))).fetchall()
    return rows[0][0] if rows else 0


def rule_states(connection: sqlite3.Connection) -> dict[str, RuleState]:
    """All rules ever seen, by name."""
    return {row[0]: _rule_state(row) for row in connection.execute(f"SELECT {_RULE} FROM rules").fetchall()}


def _rule_state(row: tuple[Any, ...]) -> RuleState:
    rule, fingerprint, since_us, failures, paused, news_from_us = row
    return RuleState(rule, fingerprint, from_us(since_us), failures, paused, from_us_or_none(news_from_us))
