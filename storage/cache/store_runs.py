"""Storing the runs of an answer.

`runs` holds what is filtered, sorted and searched, `run_bodies` each run as received, `sightings` its digest and when
its last answer was requested, `written` its update by our last write, `transitions` and `events` changes of status.
An answer waits in the `AnswerQueue`, and `RunMerge` merges it in a transaction: runs with the same digest are only
confirmed, others are added or changed, and answers to earlier requests change nothing. `statuses` and `repositories`
are brought up to date at the end.
"""

import asyncio
import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeVar
from zlib import adler32, crc32

import msgspec.json
from msgspec import Struct, field
from msgspec.structs import replace

from storage.cache.coverage import noted
from storage.cache.questions import ADD_TO_STATUS, QUESTIONS_DUE, mark_cancelled
from storage.cache.read_runs import final_statuses
from storage.cache.run_sql import (
    FIRST_SINCE_SQL,
    KNOWN_FROM,
    NOTHING_KNOWN,
    RANK,
    RESULT_FROM,
    UNKNOWN_US,
    TurnTimes,
    about_text,
    packed,
    search_text,
    severity_sql,
    took_sql,
)
from storage.database import immediate
from storage.records import CANCELLED, Presence, Run, RunChanges, RunSummary
from storage.records.run import ENDING_STATUSES, Repository, StatusTransition
from storage.thread import DatabaseThread
from storage.values import NO_TIME_US, from_us, sqlite_text, sqlite_text_or_none, to_sortable_us, to_us

T = TypeVar("T")
_CHUNK: Final = 500
"""Values bound to one statement."""
_CLOCK_SET_BACK_US: Final = timedelta(minutes=5) // timedelta(microseconds=1)
"""A stored answer from further in the future is from before our clock was set back: any answer is newer."""
_SECOND_US: Final = 1_000_000
_ROWS: Final = 100
_OUT_OF_SIGHT: Final = 0
"""The digest of a run that is not current. No answer has it, so the run counts as changed when it is listed again."""
_ADD: Final = f"""
INSERT INTO runs (
    id, run_id, status, is_final, branch, repository, created_us, updated_us, first_seen_us, presence,
    first_status, first_at_us, after_us, active_since_us, worked_us, took_us, severity, search, agent, findings
)
WITH
    new (id, asked_us, is_final, run_id, status, branch, repository, created_us, updated_us, search, after_us)
        AS (VALUES {{rows}}),
    begun AS (SELECT *, {FIRST_SINCE_SQL} AS active_since_us, 0 AS worked_us FROM new)
SELECT
    id, run_id, status, is_final, branch, repository, created_us, updated_us, asked_us, 'current',
    status, iif(updated_us = {NO_TIME_US}, asked_us, updated_us), after_us, active_since_us, worked_us, {took_sql()},
    {severity_sql(is_stuck="0")}, search, '', {packed(None)}
FROM begun
"""
_ADD_EVENT: Final = """
INSERT INTO events (run_id, repository, branch, new, at_us)
SELECT run_id, repository, branch, status, first_at_us FROM runs WHERE id = ?
"""
_KEEP_BODIES: Final = "INSERT OR REPLACE INTO run_bodies (id, platform, data_json, raw_json) VALUES {rows}"
_KEEP_SIGHTINGS: Final = "INSERT OR REPLACE INTO sightings (id, digest, asked_us) VALUES {rows}"
_CHANGE: Final = f"""
UPDATE runs SET status = ?1, is_final = ?2, branch = ?3, repository = ?4, created_us = ?5, updated_us = ?6,
    presence = 'current', active_since_us = ?7, worked_us = ?8, took_us = ?9,
    findings = iif(status = ?1 AND updated_us = ?6, findings, {packed(None)}),
    search = ?10 || substr(search, instr(search, '{KNOWN_FROM}'), iif(
        status = ?1 AND updated_us = ?6,
        length(search), instr(search, '{RESULT_FROM}') - instr(search, '{KNOWN_FROM}') + 1
    ))
WHERE id = ?11
"""
"""Drops findings and result when the status (?1) or update time (?6) changes: they describe the earlier state.

The parameters are a row of `_changed_row`, and the run's number. By name, they would cost about 5% more time.
"""
_CONFIRM: Final = f"""
UPDATE sightings SET asked_us = ?1 WHERE id IN (
    SELECT s.id FROM (VALUES {{rows}}) AS arrived CROSS JOIN runs AS r ON r.run_id = arrived.column1
    CROSS JOIN sightings AS s ON s.id = r.id AND s.digest = arrived.column2
    WHERE NOT (s.asked_us > ?1 AND s.asked_us <= ?1 + {_CLOCK_SET_BACK_US})
)
"""
_END: Final = f"""
UPDATE runs SET is_final = 1, took_us = {took_sql("1")}, severity = {severity_sql("1")}
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


def prepared(runs: Sequence[Run], cancelled: Collection[str] = ()) -> dict[str, ArrivedRun]:
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
        self._waiting: deque[PreparedRuns] = deque()
        self._batch: asyncio.Future[None] | None = None
        """The last batch that was started; it stores the waiting answers."""

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
        if not runs and news_from is None:
            return RunChanges()
        answer = PreparedRuns(to_us(asked_at), prepared(runs, cancelled), cancelled, is_of_write, news_from)
        self._waiting.append(answer)
        # Only the first waiting answer starts a batch; a running batch may already have taken this one.
        if self._batch is None or self._batch.done() or len(self._waiting) == 1:
            self._batch = asyncio.ensure_future(self._writer.run(self._store_waiting))
        try:
            await asyncio.shield(self._batch)
        finally:
            # It may still wait: the call was cancelled, the database did not open, or the batch began without it.
            # `remove` alone would render every run for its ValueError, a third of the time that storing takes.
            if answer in self._waiting:
                self._waiting.remove(answer)
        if answer.changes is None:
            # The batch failed or began without it. Store the answer alone, so only a faulty answer fails.
            await self._writer.run(lambda connection: store_all(connection, [answer]))
        return answer.changes or RunChanges()

    def _store_waiting(self, connection: sqlite3.Connection) -> None:
        if together := [self._waiting.popleft() for _ in range(len(self._waiting))]:
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
        merging.note_names()
    for answer, changed in zip(answers, changes, strict=True):
        answer.changes = changed


def set_presence(connection: sqlite3.Connection, run_ids: Sequence[str], presence: Presence) -> int:
    """Record whether the service still shows these runs; return how many changed."""
    rows = [{"presence": presence, "run_id": sqlite_text(run_id)} for run_id in run_ids]
    changed = connection.executemany(
        "UPDATE runs SET presence = :presence WHERE run_id = :run_id AND presence <> :presence", rows
    )
    sql = f"UPDATE sightings SET digest = {_OUT_OF_SIGHT} WHERE id = (SELECT id FROM runs WHERE run_id = :run_id)"
    connection.executemany(sql, rows)
    return max(0, changed.rowcount)


def store_summary(connection: sqlite3.Connection, run_id: str, summary: RunSummary) -> None:
    """Replace the known subject and result of a cached run."""
    asked, result, agent = sqlite_text(summary.asked), sqlite_text(summary.result), sqlite_text_or_none(summary.agent)
    summary = replace(summary, asked=asked, result=result, agent=agent)
    row = connection.execute(
        "SELECT id, status = ? AND updated_us = ?, run_id, repository, branch FROM runs WHERE run_id = ?",
        (sqlite_text(summary.status), to_sortable_us(summary.updated_at), sqlite_text(run_id)),
    ).fetchone()
    if row is None:
        return
    number, is_current, run_id, repository, branch = row
    findings = packed(summary.findings if is_current else None)
    search = search_text(run_id, repository, branch, asked, agent, result if is_current else "")
    sql = "UPDATE runs SET agent = ?, findings = ?, search = ? WHERE id = ?"
    connection.execute(sql, (agent or "", findings, search, number))
    sql = "INSERT OR REPLACE INTO summaries VALUES (?, ?)"
    connection.execute(sql, (number, msgspec.json.encode(summary).decode()))


def mark_final(connection: sqlite3.Connection, status: str) -> None:
    """Count a status as final from now on."""
    bound = {"status": sqlite_text(status)}
    connection.execute("UPDATE statuses SET is_final = 1 WHERE status = :status", bound)
    connection.execute(_END, bound)


class _Held(Struct, frozen=True):
    """The stored state of a changed run."""

    status: str
    created_us: int
    updated_us: int
    turns: TurnTimes


def _columns(arrived: ArrivedRun) -> tuple[str, str, str, str, int, int, str]:
    """Id, status, branch, repository, times of creation and update, and the text that a search reads."""
    run = arrived.run
    run_id, branch, created_us = run.run_id, run.branch_name, to_sortable_us(run.created_at)
    repository = _label(run.repository.platform, run.repository.data_json)
    about = about_text(run_id, repository, branch)
    return run_id, run.status, branch, repository, created_us, arrived.updated_us, about


# A history has few repositories and many runs, and each label is parsed from JSON.
@lru_cache(maxsize=1_000)
def _label(platform: str, data_json: str) -> str:
    return sqlite_text(Repository(platform, data_json).label)


def _sightings(connection: sqlite3.Connection, run_ids: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Each cached run: id, number, digest, when its last answer was requested, and the update of its last write."""
    for chunk in _chunks(run_ids):
        yield from connection.execute(
            f"SELECT r.run_id, r.id, s.digest, s.asked_us, ifnull(w.updated_us, {NO_TIME_US}) FROM runs AS r"
            " JOIN sightings AS s ON s.id = r.id LEFT JOIN written AS w ON w.run = r.id"
            f" WHERE r.run_id IN ({_marks(chunk)})",
            chunk,
        )


class RunMerge(Struct, frozen=True):
    """Merges answers into the tables, within a transaction."""

    connection: sqlite3.Connection
    finals: Collection[str]
    counts: Counter[str] = field(default_factory=Counter)
    """The change in each status's number of runs."""
    newest: dict[str, int] = field(default_factory=dict)
    """The newest creation of each repository's runs."""

    def merge(self, answer: PreparedRuns) -> RunChanges:
        """Store the runs of an answer; return the changes."""
        asked_us, arrived = answer.asked_us, list(answer.arrived.items())
        left: dict[str, ArrivedRun] = {}
        # Confirm unchanged runs, a hundred per statement; `left` holds the others.
        for start in range(0, len(arrived), _ROWS):
            chunk = arrived[start : start + _ROWS]
            if self.connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (chunk[-1][0],)).fetchone() is None:
                left.update(chunk)  # The last run is new, so the page is most likely all new history.
                continue
            values: list[str | int] = [asked_us]
            for run_id, entry in chunk:
                values += run_id, entry.digest
            if self.connection.execute(_with_rows(_CONFIRM, 2, len(chunk)), values).rowcount < len(chunk):
                left.update(chunk)
        same: list[int] = []
        changed: dict[int, ArrivedRun] = {}
        seen_at_us: dict[int, int] = {}
        for run_id, number, digest, seen_us, written_us in _sightings(self.connection, list(left)):
            entry = left.pop(run_id)
            if asked_us < seen_us <= asked_us + _CLOCK_SET_BACK_US:
                continue
            if not answer.is_of_write and _is_before(entry.updated_us, written_us):
                continue
            if digest == entry.digest:
                same.append(number)
            else:
                changed[number] = entry
                seen_at_us[number] = min(seen_us, asked_us)
        other = (*left.values(), *changed.values())
        if failed := [(entry.run.run_id,) for entry in other if entry.run.status == "failed"]:
            # Their agents may have asked a new question.
            self.connection.executemany("DELETE FROM questions WHERE run_id = ?", failed)
            sql = "INSERT INTO notes (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
            self.connection.execute(sql, (QUESTIONS_DUE,))
        for numbers in _chunks(same):
            sql = f"UPDATE sightings SET asked_us = ? WHERE id IN ({_marks(numbers)})"
            self.connection.execute(sql, (asked_us, *numbers))
        added = self._add(list(left.values()), asked_us) if left else ()
        changes = RunChanges(added, *self._change(changed, seen_at_us, asked_us)) if left or changed else RunChanges()
        if answer.is_of_write:
            sql = "INSERT OR REPLACE INTO written SELECT id, ? FROM runs WHERE run_id = ?"
            self.connection.executemany(sql, [(entry.updated_us, run_id) for run_id, entry in answer.arrived.items()])
        if answer.news_from is not None:
            sql = "INSERT OR IGNORE INTO notes (name, value) VALUES ('news_from_us', ?)"
            self.connection.execute(sql, (to_us(answer.news_from),))
        return changes

    def _add(self, new: Sequence[ArrivedRun], asked_us: int) -> tuple[str, ...]:
        """Insert new runs; return their ids."""
        # The highest number ever used, so the number of a deleted run is never used again.
        last = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
        numbered = list(enumerate(new, last[0] + 1 if last else 1))
        link = "SELECT last_ok_us, newest_us FROM links WHERE subject = 'runs' AND last_ok_us <= ?"
        polled_us, newest_us = self.connection.execute(link, (asked_us,)).fetchone() or (0, 0)
        news_us = noted(self.connection, "news_from_us")
        rows: list[str | int] = []
        events: list[tuple[int]] = []
        for number, arrived in numbered:
            run_id, status, branch, repository, created_us, updated_us, about = _columns(arrived)
            self._note_newest(repository, created_us)
            after_us = polled_us if created_us > newest_us else 0
            is_final = status in self.finals
            # Finished runs of the first stored answer, and older ones, are history and cause no event. This is not done
            # by a trigger, which would be slower.
            if not is_final or (news_us is not None and created_us > news_us):
                events.append((number,))
            rows += number, asked_us, is_final, run_id, status, branch, repository
            rows += created_us, updated_us, about + NOTHING_KNOWN, after_us
        _insert(self.connection, _ADD, 11, rows)
        self.connection.executemany(_ADD_EVENT, events)
        self._keep(numbered, asked_us)
        self.counts.update([arrived.run.status for arrived in new])
        return tuple([arrived.run.run_id for arrived in new])

    def _change(
        self, changed: dict[int, ArrivedRun], seen_at_us: Mapping[int, int], asked_us: int
    ) -> tuple[tuple[StatusTransition, ...], tuple[str, ...]]:
        """Merge changed runs; return the changes of status, and the ids of the others."""
        held = {
            number: _Held(status, created_us, updated_us, TurnTimes(*turns))
            for chunk in _chunks(list(changed))
            for number, status, created_us, updated_us, *turns in self.connection.execute(
                "SELECT id, status, created_us, updated_us, active_since_us, worked_us, took_us FROM runs"
                f" WHERE id IN ({_marks(chunk)})",
                chunk,
            ).fetchall()
        }
        for number, arrived in changed.items():
            before = held[number]
            # The run was cancelled, and only another field changed: the service continues to call it a failure.
            if (arrived.run.status, before.status, arrived.updated_us) == ("failed", CANCELLED, before.updated_us):
                changed[number] = replace(arrived, run=replace(arrived.run, status=CANCELLED))
        moves = [
            (number, held[number].status, arrived.run.status, _at_us(arrived.updated_us, asked_us))
            for number, arrived in changed.items()
            if held[number].status != arrived.run.status
        ]
        moves.sort(key=itemgetter(3, 0))
        self.connection.executemany(
            "INSERT INTO transitions (run, old, new, at_us, after_us) VALUES (?, ?, ?, ?, ?)",
            [(*move, seen_at_us[move[0]]) for move in moves],
        )
        rows = [(*self._changed_row(arrived, held[number], asked_us), number) for number, arrived in changed.items()]
        self.connection.executemany(_CHANGE, rows)
        self.connection.executemany(RANK, [(number,) for number, *_ in moves])
        self._keep(list(changed.items()), asked_us)
        self.counts.subtract(old for _, old, _, _ in moves)
        self.counts.update(new for _, _, new, _ in moves)
        transitions = [
            StatusTransition(changed[number].run.run_id, old, new, from_us(at_us)) for number, old, new, at_us in moves
        ]
        others = [entry.run.run_id for number, entry in changed.items() if held[number].status == entry.run.status]
        return tuple(transitions), tuple(others)

    def note_names(self) -> None:
        """Store the numbers of runs by status, and each repository's newest run."""
        counts = [(status, runs, status in self.finals) for status, runs in self.counts.items()]
        self.connection.executemany(ADD_TO_STATUS, counts)
        self.connection.executemany(
            "INSERT INTO repositories (label, newest_us) VALUES (?, ?) ON CONFLICT (label) DO UPDATE SET"
            " newest_us = excluded.newest_us WHERE excluded.newest_us > newest_us",
            self.newest.items(),
        )

    def _changed_row(self, arrived: ArrivedRun, held: _Held, asked_us: int) -> tuple[str | int, ...]:
        _, status, branch, repository, created_us, updated_us, about = _columns(arrived)
        self._note_newest(repository, created_us)
        is_final, at_us = status in self.finals, _at_us(updated_us, asked_us)
        created_us = held.created_us if created_us == NO_TIME_US else created_us
        updated_us = held.updated_us if updated_us == NO_TIME_US else updated_us
        if held.turns.took_us == UNKNOWN_US:
            turns = TurnTimes.first(created_us, updated_us, held.turns.active_since_us, is_final=is_final)
        else:
            turns = held.turns.then(at_us, was_final=held.status in self.finals, is_final=is_final)
        return status, is_final, branch, repository, created_us, updated_us, *turns, about

    def _note_newest(self, repository: str, created_us: int) -> None:
        if created_us > self.newest.get(repository, NO_TIME_US - 1):
            self.newest[repository] = created_us

    def _keep(self, numbered: Iterable[tuple[int, ArrivedRun]], asked_us: int) -> None:
        bodies: list[str | int] = []
        sightings: list[str | int] = []
        for number, arrived in numbered:
            run = arrived.run
            bodies += number, run.repository.platform, run.repository.data_json, run.raw_json
            sightings += number, arrived.digest, asked_us
        _insert(self.connection, _KEEP_BODIES, 4, bodies)
        _insert(self.connection, _KEEP_SIGHTINGS, 3, sightings)


def _is_before(updated_us: int, written_us: int) -> bool:
    """Whether an answer shows a run as it was before our write; some services round listed times to whole seconds."""
    if updated_us % _SECOND_US == 0:
        written_us -= written_us % _SECOND_US
    return NO_TIME_US < updated_us < written_us


def _at_us(updated_us: int, asked_us: int) -> int:
    """When the run got its status."""
    return asked_us if updated_us == NO_TIME_US else updated_us


def _insert(connection: sqlite3.Connection, sql: str, columns: int, values: Sequence[str | int]) -> None:
    """Insert rows, given as their values in sequence; a hundred to a statement takes half the time."""
    for start in range(0, len(values), _ROWS * columns):
        chunk = values[start : start + _ROWS * columns]
        connection.execute(_with_rows(sql, columns, len(chunk) // columns), chunk)


@lru_cache(maxsize=100)
def _with_rows(sql: str, columns: int, rows: int) -> str:
    return sql.replace("{rows}", ", ".join([f"({', '.join('?' * columns)})"] * rows))


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
