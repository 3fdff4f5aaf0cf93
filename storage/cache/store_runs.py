"""Storing the runs of an answer.

`runs` holds the filtered, sorted and searched fields, `run_bodies` each run as received, `sightings` its digest and
when its last answer was requested, `written` its update by our last write, `transitions` and `events` status changes.
An answer waits in the `AnswerQueue`, and `RunMerge` merges it in a transaction: runs with the same digest are only
confirmed, others are added or changed, and answers to earlier requests change nothing. `statuses` and `repositories`
are brought up to date at the end.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import adler32, crc32

import msgspec.json
from msgspec import Struct, field
from msgspec.structs import replace

from storage.cache.coverage import load_note
from storage.cache.questions import ADD_TO_STATUS, QUESTIONS_DUE, mark_cancelled
from storage.cache.read_runs import final_statuses
from storage.cache.run_sql import (
    KNOWN_FROM,
    NOTHING_KNOWN,
    RANK,
    RESULT_FROM,
    UNKNOWN_US,
    TurnTimes,
    about_text,
    first_turn,
    pack_findings,
    turns_after,
)
from storage.database import execute, immediate, scalar, select_in
from storage.records import CANCELLED, Presence, Repository, Run, RunChanges, RunSummary, StatusTransition
from storage.records.run import ENDED_URGENCY, ENDING_STATUSES, STATUS_BY_NAME, STUCK_URGENCY
from storage.thread import DatabaseThread
from storage.values import NO_TIME_US, from_us, sqlite_text, to_sortable_us, to_us

_CLOCK_SET_BACK_US: Final = timedelta(minutes=5) // timedelta(microseconds=1)
"""A stored answer from further in the future is from before our clock was set back: any answer is newer."""
_SECOND_US: Final = 1_000_000
_BEFORE_ALL_US: Final = NO_TIME_US - 1
_ROWS: Final = 100
"""Rows inserted by one statement."""
_ADD: Final = """
INSERT INTO runs (
    id, run_id, status, is_final, branch, repository, created_us, updated_us, first_seen_us, presence, first_status,
    first_at_us, after_us, active_since_us, worked_us, took_us, severity, search, agent, findings
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'current', ?, ?, ?, ?, ?, ?, ?, ?, '', -1)"""
_CHANGE: Final = f"""
UPDATE runs SET status = ?1, is_final = ?2, branch = ?3, repository = ?4, created_us = ?5, updated_us = ?6,
    presence = 'current', active_since_us = ?7, worked_us = ?8, took_us = ?9,
    findings = iif(status = ?1 AND updated_us = ?6, findings, -1),
    search = ?10 || substr(search, instr(search, '{KNOWN_FROM}'), iif(
        status = ?1 AND updated_us = ?6,
        length(search), instr(search, '{RESULT_FROM}') - instr(search, '{KNOWN_FROM}') + 1
    ))
WHERE id = ?11
"""
"""Drops findings and result when the status (?1) or update time (?6) changes: they describe the earlier state.

By name, the parameters would cost about 5% more time.
"""
_CONFIRM: Final = """
UPDATE sightings SET asked_us = :asked WHERE id IN (
    SELECT s.id FROM json_each(:digests) AS arrived CROSS JOIN runs AS r ON r.run_id = arrived.key
    CROSS JOIN sightings AS s ON s.id = r.id AND s.digest = arrived.value
    WHERE s.asked_us NOT BETWEEN :asked + 1 AND :asked + :set_back
)
"""
_STORED: Final = """
SELECT r.run_id, r.id, s.digest, s.asked_us, ifnull(w.updated_us, ?), r.status, r.created_us, r.updated_us,
    r.active_since_us, r.worked_us, r.took_us
FROM runs AS r JOIN sightings AS s ON s.id = r.id LEFT JOIN written AS w ON w.run = r.id
WHERE r.run_id IN (?)
"""
_SEE_REPOSITORY: Final = """
INSERT INTO repositories (label, newest_us) VALUES (?, ?)
ON CONFLICT (label) DO UPDATE SET newest_us = excluded.newest_us WHERE excluded.newest_us > newest_us
"""
_END: Final = """
UPDATE runs SET is_final = 1, severity = :severity, took_us = iif(
    :no_time IN (created_us, updated_us), :unknown, worked_us + max(0, updated_us - active_since_us)
)
WHERE status = :status AND NOT is_final
"""


class ArrivedRun(Struct, frozen=True, gc=False):
    """A run of an answer."""

    run: Run
    updated_us: int
    digest: int
    """A digest of the run as received, to compare runs by: the run itself is fifty times as long."""


class PreparedRuns(Struct, eq=False):
    """The runs of an answer, prepared for storing."""

    asked_us: int
    arrived: Mapping[str, ArrivedRun]
    cancelled: Collection[str] = ()
    is_of_write: bool = False
    news_from: datetime | None = None
    changes: RunChanges | None = None
    """None: the answer is not stored yet."""


def prepare(runs: Sequence[Run], cancelled: Collection[str] = ()) -> dict[str, ArrivedRun]:
    """Each run once, by id, in its newest version: runs are repeated when pages shift during a walk."""
    arrived: dict[str, ArrivedRun] = {}
    for run in runs:
        updated_us = to_sortable_us(run.updated_at)
        text = f"{run.run_id}\n{run.status}\n{run.branch_name}\n{run.repository.data_json}\n{run.raw_json}"
        octets = text.encode("utf-8", "replace")
        digest = crc32(octets) << 31 ^ adler32(octets) ^ updated_us
        stored = run
        if not text.isascii():
            repository = Repository(sqlite_text(run.repository.platform), sqlite_text(run.repository.data_json))
            run_id, status, branch, raw = map(sqlite_text, (run.run_id, run.status, run.branch_name, run.raw_json))
            stored = Run(run_id, status, branch, repository, run.created_at, run.updated_at, raw)
        if run.status == "failed" and run.run_id in cancelled:
            stored = replace(stored, status=CANCELLED)
        if stored.run_id not in arrived or updated_us >= arrived[stored.run_id].updated_us:
            arrived[stored.run_id] = ArrivedRun(stored, updated_us, digest)
    return arrived


class AnswerQueue:
    """Stores answers that arrive during a transaction together in the next one: a commit costs more than a page."""

    def __init__(self, writer: DatabaseThread) -> None:
        self._writer = writer
        self._waiting: list[PreparedRuns] = []
        self._has_stored = False
        """Whether the file is known to hold an answer, so that an empty one changes nothing."""

    async def store(
        self,
        runs: Sequence[Run],
        asked_at: datetime,
        cancelled: Collection[str] = (),
        *,
        is_of_write: bool = False,
        news_from: datetime | None = None,
    ) -> RunChanges:
        """Store an answer's runs as current, as of its request; the answer to an earlier request changes nothing.

        `cancelled`: the runs that are known to be cancelled, although the service reports them as "failed".
        `is_of_write`: this is the answer to a write. Lists may lag behind it, so later answers with an older
        `updated_at` are ignored.
        `news_from`: if this is the first answer, runs created until then, by the service's clock, are history.
        """
        if not runs and (news_from is None or self._has_stored):
            return RunChanges()
        answer = PreparedRuns(to_us(asked_at), prepare(runs, cancelled), cancelled, is_of_write, news_from)
        self._waiting.append(answer)
        try:
            await asyncio.sleep(0)  # Answers that are stored at the same moment share a transaction.
            await self._writer.run(self._store_waiting)
        except BaseException:
            # The call was cancelled, or the database cannot be used.
            with suppress(ValueError):
                self._waiting.remove(answer)
            raise
        if answer.changes is None:
            # Its transaction failed, or left it out. Store the answer alone, so only a faulty answer fails.
            await self._writer.run(lambda connection: store_all(connection, [answer]))
        self._has_stored = self._has_stored or news_from is not None
        return answer.changes or RunChanges()

    def _store_waiting(self, connection: sqlite3.Connection) -> None:
        # An answer that arrives between the two steps is stored alone.
        together = [*self._waiting]
        self._waiting = []
        # None waits if an earlier call has stored all of them.
        if together:
            with suppress(sqlite3.Error):
                store_all(connection, together)


def store_all(connection: sqlite3.Connection, answers: Sequence[PreparedRuns]) -> None:
    """Store the runs of answers in one transaction, and note the changes in each."""
    with immediate(connection):
        statuses = {arrived.run.status for answer in answers for arrived in answer.arrived.values()}
        ending = {status for status in statuses if status.lower() in ENDING_STATUSES}
        merging = RunMerge(connection, final_statuses(connection) | ending)
        marked = mark_cancelled(connection, {run_id for answer in answers for run_id in answer.cancelled})
        changes = [merging.merge(answer) for answer in answers]
        changes[-1] = replace(changes[-1], updated=(*changes[-1].updated, *marked))
        counts = [(status, runs, status in merging.finals) for status, runs in merging.counts.items()]
        connection.executemany(ADD_TO_STATUS, counts)
        connection.executemany(_SEE_REPOSITORY, merging.newest.items())
    for answer, changed in zip(answers, changes, strict=True):
        answer.changes = changed


def set_presence(connection: sqlite3.Connection, run_ids: Sequence[str], presence: Presence) -> tuple[str, ...]:
    """Record whether the service still shows these runs; return those that changed."""
    changed = list[str]()
    for run_id in run_ids:
        sql = "UPDATE runs SET presence = ?1 WHERE run_id = ?2 AND presence <> ?1"
        if execute(connection, sql, presence, run_id).rowcount:
            changed.append(run_id)
        # No answer has this digest, so the run counts as changed when it is listed again.
        sql = "UPDATE sightings SET digest = 0 WHERE id = (SELECT id FROM runs WHERE run_id = ?)"
        execute(connection, sql, run_id)
    return tuple(changed)


def store_summary(connection: sqlite3.Connection, run_id: str, summary: RunSummary) -> None:
    asked, result = sqlite_text(summary.asked), sqlite_text(summary.result)
    agent = summary.agent and sqlite_text(summary.agent)
    summary = replace(summary, asked=asked, result=result, agent=agent)
    sql = "SELECT id, status = ? AND updated_us = ?, run_id, repository, branch FROM runs WHERE run_id = ?"
    row = execute(connection, sql, summary.status, to_sortable_us(summary.updated_at), run_id).fetchone()
    if row is None:
        return
    number, is_current, run_id, repository, branch = row
    findings = pack_findings(summary.findings if is_current else None)
    text = f"{KNOWN_FROM}{asked}\n{agent or ''}{RESULT_FROM}{result if is_current else ''}".casefold()
    search = about_text(run_id, repository, branch) + text
    sql = "UPDATE runs SET agent = ?, findings = ?, search = ? WHERE id = ?"
    connection.execute(sql, (agent or "", findings, search, number))
    sql = "INSERT OR REPLACE INTO summaries VALUES (?, ?)"
    connection.execute(sql, (number, msgspec.json.encode(summary).decode()))


def mark_final(connection: sqlite3.Connection, status: str) -> None:
    """Count a status that is not of the spec as final from now on."""
    bound = {"status": sqlite_text(status), "severity": ENDED_URGENCY, "no_time": NO_TIME_US, "unknown": UNKNOWN_US}
    connection.execute("UPDATE statuses SET is_final = 1 WHERE status = :status", bound)
    connection.execute(_END, bound)


# A history has few repositories and many runs, and each label is parsed from JSON.
@lru_cache(maxsize=1_000)
def _label(platform: str, data_json: str) -> str:
    return sqlite_text(Repository(platform, data_json).label)


class StoredRun(NamedTuple):
    """A changed run before its change."""

    number: int
    seen_us: int
    """When the run's last answer was requested."""
    status: str
    created_us: int
    updated_us: int
    turns: TurnTimes


class RunMerge(Struct, frozen=True):
    """Merges answers into the tables, within a transaction."""

    connection: sqlite3.Connection
    finals: Collection[str]
    counts: Counter[str] = field(default_factory=Counter)
    """The change in each status's number of runs."""
    newest: dict[str, int] = field(default_factory=dict)
    """The newest creation of each repository's runs."""

    def merge(self, answer: PreparedRuns) -> RunChanges:
        asked_us, left = answer.asked_us, dict(answer.arrived)
        run_ids = list(left)
        if not (run_ids and self._knows("run_id BETWEEN ? AND ?", min(run_ids), max(run_ids))):
            # No known id lies between theirs: all are new, as the pages of a history mostly are.
            run_ids = []
        elif self._knows("run_id = ?", run_ids[-1]):
            # Most likely nothing has changed.
            digests = msgspec.json.encode({run_id: entry.digest for run_id, entry in left.items()}).decode()
            bound = {"asked": asked_us, "digests": digests, "set_back": _CLOCK_SET_BACK_US}
            if self.connection.execute(_CONFIRM, bound).rowcount == len(left):
                left, run_ids = {}, []
        same: list[int] = []
        changed: list[tuple[StoredRun, ArrivedRun]] = []
        stored = select_in(self.connection, _STORED, run_ids, NO_TIME_US)
        for run_id, number, digest, seen_us, written_us, status, created_us, updated_us, *turns in stored:
            entry = left.pop(run_id)
            if asked_us < seen_us <= asked_us + _CLOCK_SET_BACK_US:
                continue
            # Some services round listed times to whole seconds.
            rounded_us = 0
            if entry.updated_us % _SECOND_US == 0:
                rounded_us = written_us % _SECOND_US
            is_before_write = NO_TIME_US < entry.updated_us < written_us - rounded_us
            if is_before_write and not answer.is_of_write:
                continue
            if digest == entry.digest:
                same.append(number)
            else:
                before = StoredRun(number, min(seen_us, asked_us), status, created_us, updated_us, tuple(turns))
                changed.append((before, entry))
        other = (*left.values(), *(entry for _, entry in changed))
        if failed := [(entry.run.run_id,) for entry in other if entry.run.status == "failed"]:
            # Their agents may have asked a new question.
            self.connection.executemany("DELETE FROM questions WHERE run_id = ?", failed)
            sql = "INSERT INTO notes (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
            self.connection.execute(sql, (QUESTIONS_DUE,))
        if same:
            sql = "UPDATE sightings SET asked_us = ? WHERE id IN (SELECT value FROM json_each(?))"
            self.connection.execute(sql, (asked_us, msgspec.json.encode(same).decode()))
        added = self._add(list(left.values()), asked_us) if left else ()
        changes = RunChanges(added, *self._change(changed, asked_us)) if other else RunChanges()
        if answer.is_of_write:
            sql = "INSERT OR REPLACE INTO written SELECT id, ? FROM runs WHERE run_id = ?"
            self.connection.executemany(sql, [(entry.updated_us, run_id) for run_id, entry in answer.arrived.items()])
        if answer.news_from is not None:
            sql = "INSERT OR IGNORE INTO notes (name, value) VALUES ('news_from_us', ?)"
            self.connection.execute(sql, (to_us(answer.news_from),))
        return changes

    def _knows(self, condition: str, *run_ids: str) -> bool:
        sql = f"SELECT 1 FROM runs WHERE {condition} LIMIT 1"
        return self.connection.execute(sql, run_ids).fetchone() is not None

    def _columns(self, arrived: ArrivedRun, asked_us: int) -> tuple[str, str, bool, str, str, int, int, int, str]:
        """Id, status, finality, branch, repository, times of creation, update and change, and the text for searches."""
        run = arrived.run
        run_id = run.run_id
        status = run.status
        branch = run.branch_name
        updated_us = arrived.updated_us
        created_us = to_sortable_us(run.created_at)
        repository = _label(run.repository.platform, run.repository.data_json)
        if self.newest.get(repository, _BEFORE_ALL_US) < created_us:
            self.newest[repository] = created_us
        at_us = asked_us if updated_us == NO_TIME_US else updated_us
        about = about_text(run_id, repository, branch)
        return run_id, status, status in self.finals, branch, repository, created_us, updated_us, at_us, about

    def _add(self, new: Sequence[ArrivedRun], asked_us: int) -> tuple[str, ...]:
        # The highest number ever used, so the number of a deleted run is never used again.
        last = scalar(self.connection, "SELECT seq FROM sqlite_sequence WHERE name = 'runs'") or 0
        link = "SELECT last_ok_us, newest_us FROM links WHERE subject = 'runs' AND last_ok_us <= ?"
        polled_us, newest_us = self.connection.execute(link, (asked_us,)).fetchone() or (0, 0)
        news_us = load_note(self.connection, "news_from_us")
        rows: list[str | int] = []
        events: list[tuple[str | int, ...]] = []
        for number, arrived in enumerate(new, last + 1):
            run_id, status, is_final, branch, label, created_us, updated_us, at_us, about = self._columns(
                arrived, asked_us
            )
            after_us = polled_us if created_us > newest_us else 0
            turns = first_turn(created_us, updated_us, asked_us, is_final=is_final)
            fact = STATUS_BY_NAME.get(status)
            unknown_urgency = ENDED_URGENCY if is_final else STUCK_URGENCY
            urgency = fact.urgency if fact else unknown_urgency
            rows += number, run_id, status, is_final, branch, label, created_us, updated_us, asked_us
            rows += status, at_us, after_us, *turns, urgency, about + NOTHING_KNOWN
            # Finished runs of the first stored answer, and older ones, are history and cause no event. This is not done
            # by a trigger, which would be slower.
            if not is_final or (news_us is not None and created_us > news_us):
                events.append((run_id, branch, label, status, at_us))
        _insert(self.connection, _ADD, rows)
        sql = "INSERT INTO events (run_id, branch, repository, new, at_us) VALUES (?, ?, ?, ?, ?)"
        self.connection.executemany(sql, events)
        self._keep(enumerate(new, last + 1), asked_us)
        self.counts.update([arrived.run.status for arrived in new])
        return tuple([arrived.run.run_id for arrived in new])

    def _change(
        self, changed: Sequence[tuple[StoredRun, ArrivedRun]], asked_us: int
    ) -> tuple[tuple[StatusTransition, ...], tuple[str, ...]]:
        """Merge changed runs; return the changes of status, and the ids of the others."""
        rows: list[tuple[str | int, ...]] = []
        moves: list[tuple[int, int, str, str, str, int]] = []
        numbered: list[tuple[int, ArrivedRun]] = []
        others: list[str] = []
        for stored, received in changed:
            arrived = received
            # The run was cancelled and another field changed; the service still reports a failure.
            if (received.run.status, stored.status, received.updated_us) == ("failed", CANCELLED, stored.updated_us):
                arrived = replace(received, run=replace(received.run, status=CANCELLED))
            run_id, status, is_final, branch, label, created_us, updated_us, at_us, about = self._columns(
                arrived, asked_us
            )
            created_us = stored.created_us if created_us == NO_TIME_US else created_us
            updated_us = stored.updated_us if updated_us == NO_TIME_US else updated_us
            active_since_us, _, took_us = stored.turns
            if took_us == UNKNOWN_US:
                turns = first_turn(created_us, updated_us, active_since_us, is_final=is_final)
            else:
                turns = turns_after(stored.turns, at_us, was_final=stored.status in self.finals, is_final=is_final)
            rows.append((status, is_final, branch, label, created_us, updated_us, *turns, about, stored.number))
            numbered.append((stored.number, arrived))
            if status == stored.status:
                others.append(run_id)
            else:
                moves.append((at_us, stored.number, run_id, stored.status, status, stored.seen_us))
                self.counts[stored.status] -= 1
                self.counts[status] += 1
        moves.sort()
        self.connection.executemany(
            "INSERT INTO transitions (at_us, run, old, new, after_us) VALUES (?, ?, ?, ?, ?)",
            [(at_us, number, old, new, seen_us) for at_us, number, _, old, new, seen_us in moves],
        )
        self.connection.executemany(_CHANGE, rows)
        self.connection.executemany(RANK, [(number,) for _, number, *_ in moves])
        self._keep(numbered, asked_us)
        transitions = [StatusTransition(run_id, old, new, from_us(at_us)) for at_us, _, run_id, old, new, _ in moves]
        return tuple(transitions), tuple(others)

    def _keep(self, numbered: Iterable[tuple[int, ArrivedRun]], asked_us: int) -> None:
        bodies: list[str | int] = []
        sightings: list[str | int] = []
        for number, arrived in numbered:
            run = arrived.run
            bodies += number, run.repository.platform, run.repository.data_json, run.raw_json
            sightings += number, arrived.digest, asked_us
        sql = "INSERT OR REPLACE INTO run_bodies (id, platform, data_json, raw_json) VALUES (?, ?, ?, ?)"
        _insert(self.connection, sql, bodies)
        sql = "INSERT OR REPLACE INTO sightings (id, digest, asked_us) VALUES (?, ?, ?)"
        _insert(self.connection, sql, sightings)


def _insert(connection: sqlite3.Connection, sql: str, values: Sequence[str | int]) -> None:
    """Insert rows, given as their values in sequence; a hundred to a statement takes half the time."""
    row, columns = sql.partition("VALUES ")[2], sql.count("?")
    for start in range(0, len(values), _ROWS * columns):
        chunk = values[start : start + _ROWS * columns]
        connection.execute(sql + f", {row}" * (len(chunk) // columns - 1), chunk)
