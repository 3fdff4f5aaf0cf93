"""Filters and orders of runs as SQL, and how long runs worked; user input is bound, never spliced."""

import re
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from storage.records import FINAL_STATUSES, RUN_STATUSES, SORTABLE, RunFilter, RunSort, WorkTime
from storage.records.results import FindingCounts
from storage.records.run import ENDED_URGENCY, STUCK_URGENCY
from storage.values import NO_TIME_US, Where, among, from_us, sqlite_text, to_us

MAX_WORDS: Final = 32
"""How many words of a search count: SQLite limits the depth of expressions."""

KNOWN_FROM: Final = "\x1f"
"""The mark before a run's instructions and agent in the text that a search reads."""
RESULT_FROM: Final = "\x1e"
"""The mark before a run's result, which is outdated once the run changes, in the text that a search reads."""
NOTHING_KNOWN: Final = f"{KNOWN_FROM}\n{RESULT_FROM}"
"""The part about a run whose instructions, agent and result are unknown, in the text that a search reads."""
_BITS: Final = 10
"""Bits for the number of a run's findings of one severity."""
_MAX_FINDINGS: Final = 2**_BITS - 1
_SHIFTS: Final = {name: _BITS * at for at, (name, _) in enumerate(reversed(FindingCounts().by_severity))}
_FINDINGS: Final = {
    "any": "findings > 0",
    "none": "findings = 0",
    **{name: f"(findings >> {shift}) & {_MAX_FINDINGS} > 0" for name, shift in _SHIFTS.items()},
}

Key = tuple[str | int, ...]
"""The values of `key_columns`, which determine a run's place in an order."""
T = TypeVar("T")

_SPEC_FINAL: Final = ", ".join(f"('{status}')" for status in sorted(FINAL_STATUSES))
FINAL_SQL: Final = f"VALUES {_SPEC_FINAL} UNION ALL SELECT status FROM statuses WHERE is_final"
"""The final statuses, of the spec and learnt, as SQL: for indexes that hold the status and not `is_final`."""
ACTIVE_SQL: Final = "is_final = 0"
"""Spelt as in the index `runs_going`: only then does SQLite see that the index answers it."""

GOING_SQL: Final = f"{ACTIVE_SQL} AND status NOT IN ({FINAL_SQL}) AND presence <> 'lost'"
"""The active runs that the service still shows; with the status, because other indexes hold it and not `is_final`."""
STUCK_SQL: Final = "id IN (SELECT run FROM stuck)"
_ASCENDING: Final = {
    field.name: tuple((term.removesuffix(" DESC"), not term.endswith(" DESC")) for term in field.order.split(", "))
    for field in SORTABLE
}
"""The ascending order by each field: columns, and whether each rises."""


def _by_status(*, is_final: bool) -> str:
    statuses = (status for status in RUN_STATUSES if status.is_final == is_final)
    return " ".join(f"WHEN status = '{status.name}' THEN {status.urgency}" for status in statuses)


RANK: Final = f"""
UPDATE runs SET severity = CASE {_by_status(is_final=True)} WHEN is_final THEN {ENDED_URGENCY}
    WHEN {STUCK_SQL} THEN {STUCK_URGENCY} {_by_status(is_final=False)} ELSE {STUCK_URGENCY} END
WHERE id = ?
"""
"""Brings a run's urgency up to date. It is stored in a column: only stored values can be indexed."""


def where(condition: RunFilter) -> Where:
    since_us = NO_TIME_US + 1 if condition.since is None else to_us(condition.since)
    until_us = MAX_US if condition.until is None else to_us(condition.until)
    matching = Where()
    parts = [
        among("status", condition.statuses),
        _not(among("status", condition.not_statuses)),
        Where(GOING_SQL) if condition.active else None,
        # The plus keeps SQLite from the index of statuses: nearly every run has ended, and all would be sorted.
        Where(f"+status IN ({FINAL_SQL})") if condition.ended else None,
        Where(STUCK_SQL) if condition.stuck else None,
        Where("run_id IN (SELECT run_id FROM pins)") if condition.followed else None,
        _matching("repository", condition.repositories),
        _not(_matching("repository", condition.not_repositories)),
        _matching("branch", condition.branches),
        _not(_matching("branch", condition.not_branches)),
        Where("agent <> ''") if condition.not_agents or (condition.agents and "" not in condition.agents) else None,
        _matching("agent", condition.agents),
        _not(_matching("agent", condition.not_agents)),
        _findings(condition.findings),
        _findings(condition.not_findings, is_excluded=True),
        Where("created_us BETWEEN ? AND ?", (since_us, until_us)) if condition.since or condition.until else None,
        # Not LIKE, in which _ and % would have to be escaped.
        *(Where("instr(search, ?) > 0", (word,)) for word in search_words(condition)),
    ]
    for part in parts:
        matching &= part
    return matching


def search_words(condition: RunFilter) -> list[str]:
    return sqlite_text(condition.search).casefold().split()[:MAX_WORDS]


def orders_used(condition: RunFilter, sort: RunSort) -> frozenset[str]:
    """The orders whose indexes find the filter's runs, sorted like that."""
    names = {"repository": condition.repositories, "branch": condition.branches, "agent": condition.agents}
    filtered = (order for order, patterns in names.items() if any("*" not in pattern for pattern in patterns))
    findings = ("findings",) if condition.findings or condition.not_findings else ()
    return frozenset((sort.column, *filtered, *findings))


def about_text(run_id: str, repository: str, branch: str) -> str:
    """The case-folded text that a search reads for every run: one field per line, so no word spans two fields."""
    about = f"{run_id}\n{repository}\n{branch}".casefold()
    return about.replace(KNOWN_FROM, " ").replace(RESULT_FROM, " ")


def pack_findings(findings: FindingCounts | None) -> int:
    """The findings as a number that is higher the more severe they are; -1: unknown."""
    if findings is None:
        return -1
    return sum(min(count, _MAX_FINDINGS) << _SHIFTS[name] for name, count in findings.by_severity)


def _findings(values: tuple[str, ...], *, is_excluded: bool = False) -> Where | None:
    if not values:
        return None
    conditions = " OR ".join(_FINDINGS[value] for value in values if value in _FINDINGS) or "0"
    sql = f"findings >= 0 AND {'NOT ' * is_excluded}({conditions})"
    if "unknown" in values and not is_excluded:
        # The plus keeps SQLite from the index: the findings of nearly every run are unknown.
        return Where(f"(+findings < 0 OR {sql})")
    # Few are known: they are found by their index, whatever the order.
    return Where(f"id IN (SELECT id FROM runs WHERE {sql})")


def _matching(column: str, patterns: tuple[str, ...]) -> Where | None:
    """Matches any of these: names as they are, or with `*` for anything."""
    exact = among(column, tuple(pattern for pattern in patterns if "*" not in pattern))
    # In SQLite's GLOB only `*` stays special; several in a row become one, which is faster.
    texts = [re.sub(r"[\[?]", r"[\g<0>]", re.sub(r"\*+", "*", sqlite_text(text))) for text in patterns if "*" in text]
    parts = [*([exact] if exact else []), *(Where(f"{column} GLOB ?", (text,)) for text in texts)]
    sql = " OR ".join(part.sql for part in parts)
    if parts:
        return Where(f"({sql})", tuple(value for part in parts for value in part.parameters))
    return None


def _not(part: Where | None) -> Where | None:
    return None if part is None else Where(f"NOT ({part.sql})", part.parameters)


def order_by(sort: RunSort, *, backwards: bool = False) -> str:
    flip = sort.descending != backwards
    return ", ".join(f"{column} {'ASC' if rises != flip else 'DESC'}" for column, rises in _ASCENDING[sort.column])


def key_columns(sort: RunSort) -> tuple[str, ...]:
    """The columns that determine a run's place in the order."""
    return tuple(column for column, _ in _ASCENDING[sort.column])


def in_order(keyed: list[tuple[Key, T]], sort: RunSort) -> list[tuple[Key, T]]:
    """These keys of an order, each with its owner, sorted as SQLite does; equal ones stay in their order."""
    for at, (_, rises) in reversed(list(enumerate(_ASCENDING[sort.column]))):
        keyed = sorted(keyed, key=lambda owned: owned[0][at], reverse=rises == sort.descending)
    return keyed


def onwards(sort: RunSort, key: tuple[str | int, ...]) -> Where | None:
    """The condition of the run with this key and all after it; None: they are no single range of the index."""
    if len(before(sort, key)) != 1:
        return None
    rises = _ASCENDING[sort.column][0][1] != sort.descending
    marks = ", ".join("?" * len(key))
    return Where(f"({', '.join(key_columns(sort))}) {'>=' if rises else '<='} ({marks})", key)


def before(sort: RunSort, key: tuple[str | int, ...]) -> tuple[Where, ...]:
    """Disjoint conditions that together select the runs before this key; each is one range of the index."""
    ranges, equal, end = list[Where](), "", 0
    # Terms that run the same way are compared as one row value: a range that SQLite finds in the index.
    for rises, terms in groupby(_ASCENDING[sort.column], key=itemgetter(1)):
        columns = [column for column, _ in terms]
        end += len(columns)
        marks = ", ".join("?" * len(columns))
        side = "<" if rises != sort.descending else ">"
        ranges.append(Where(f"{equal}({', '.join(columns)}) {side} ({marks})", key[:end]))
        equal += "".join(f"{column} = ? AND " for column in columns)
    return tuple(ranges)


UNKNOWN_US: Final = -1
"""Stands for an unknown duration, and sorts below all known ones."""
MAX_US: Final = 2**62
"""Later than any time, and longer than any duration: an active run's `took_us` is counted down from here."""
TurnTimes = tuple[int, int, int]
"""How long a run's turns took, in microseconds, as the table `runs` has it: `active_since_us`, `worked_us`, `took_us`.

That is when its current or last turn began, the duration of the earlier turns, and that of all turns. The latter sorts
active runs above those that ended, the higher the earlier they began.
"""


def first_turn(created_us: int, updated_us: int, asked_us: int, *, is_final: bool) -> TurnTimes:
    """The times of a run's first turn, which begins when it was created; if that is unknown, when it was seen."""
    if created_us == NO_TIME_US:
        return asked_us, 0, UNKNOWN_US
    if not is_final:
        return created_us, 0, MAX_US - created_us
    return created_us, 0, UNKNOWN_US if updated_us == NO_TIME_US else max(0, updated_us - created_us)


def turns_after(turns: TurnTimes, at_us: int, *, was_final: bool, is_final: bool) -> TurnTimes:
    """The times after a change at `at_us`, which may have ended a turn or begun one."""
    since_us, worked_us, took_us = turns
    if was_final and is_final:
        # An update after the run ended is not further work.
        return turns
    if was_final:
        since_us, worked_us = at_us, max(0, took_us)
    if is_final:
        return since_us, worked_us, worked_us + max(0, at_us - since_us)
    return since_us, worked_us, MAX_US - since_us + worked_us


def took(took_us: int) -> WorkTime:
    """Decode the last of `TurnTimes`."""
    if took_us == UNKNOWN_US:
        return WorkTime()
    if took_us > MAX_US // 2:
        return WorkTime(since=from_us(MAX_US - took_us))
    return WorkTime(seconds=took_us / 1_000_000)
