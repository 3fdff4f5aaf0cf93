"""Storing the runs of an answer: what is held unchanged is only confirmed; the rest is added, or merged."""

import sqlite3
import zlib
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from storage.cache.learnt import final_statuses
from storage.cache.run_sql import search_text
from storage.cache.turns import UNKNOWN_US, Turns
from storage.database import immediate
from storage.records import Presence, Repository, Run, RunChanges, Transition
from storage.thread import DatabaseThread
from storage.values import NO_TIME_US, from_us, sqlite_text, to_sortable_us, to_us

T = TypeVar("T")

_CHUNK: Final = 500
"""Values bound to one statement."""

_CLOCK_SET_BACK_US: Final = timedelta(minutes=5) // timedelta(microseconds=1)
"""An answer from further in the future was stored before our clock was set back: any answer is newer."""

_ROWS: Final = 100
"""Rows inserted by one statement."""

_OUT_OF_SIGHT: Final = 0
"""The digest of a run that is not current: any sighting of it is a change."""


_Arrived = tuple[Run, int]
"""A run as it came, and its digest."""
_Columns = tuple[str, str, str, str, int, int, str]
"""A run's id, status, branch, repository, times of creation and change, and the text that a search looks into."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a changed run was until now."""

    status: str
    created_us: int
    updated_us: int
    turns: Turns


class AnswerQueue:
    """Stores answers that arrive while others are stored in one transaction: a commit costs more than a page."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread
        self._waiting: deque[_Answer] = deque()

    async def store(self, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
        """Store the runs of an answer; what they changed."""
        if not runs:
            return RunChanges()
        answer = _Answer(runs, asked_at)
        self._waiting.append(answer)
        try:
            return await self._thread.run(lambda connection: self._stored(connection, answer))
        finally:
            # Cancelled, or failed, before its turn came.
            with suppress(ValueError):
                self._waiting.remove(answer)

    def _stored(self, connection: sqlite3.Connection, answer: "_Answer") -> RunChanges:
        # It may have been stored together with one that came before it.
        if answer.changes is None:
            together = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                _store_all(connection, together)
            except (sqlite3.Error, ValueError):
                # Each answer fails for itself.
                self._waiting.extendleft(each for each in reversed(together) if each is not answer)
                _store_all(connection, [answer])
        return answer.changes or RunChanges()


def _store_all(connection: sqlite3.Connection, answers: "Sequence[_Answer]") -> None:
    with immediate(connection):
        changes = [_stored(connection, each.runs, each.asked_at) for each in answers]
    for each, changed in zip(answers, changes, strict=True):
        each.changes = changed


@dataclass(slots=True, eq=False, repr=False)
class _Answer:
    runs: Sequence[Run]
    asked_at: datetime
    changes: RunChanges | None = None
    """None: it is not stored yet."""


def store(connection: sqlite3.Connection, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
    """Store the runs of one answer in a transaction of its own; what they changed."""
    with immediate(connection):
        return _stored(connection, runs, asked_at)


def _stored(connection: sqlite3.Connection, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
    asked_us = to_us(asked_at)
    arrived = _newest(runs)
    sightings = _sightings(connection, list(arrived))
    same: list[int] = []
    new: list[_Arrived] = []
    changed: dict[int, _Arrived] = {}
    for run_id, run in arrived.items():
        digest, seen = _digest(run), sightings.get(run_id)
        if seen is None:
            new.append((run, digest))
        elif asked_us < seen.asked_us <= asked_us + _CLOCK_SET_BACK_US:
            continue
        elif seen.digest == digest:
            same.append(seen.number)
        else:
            changed[seen.number] = run, digest
    for some in _chunks(same):
        connection.execute(f"UPDATE sightings SET asked_us = ? WHERE id IN ({_marks(some)})", (asked_us, *some))
    if not new and not changed:
        return RunChanges()
    merging = _Merging(connection, asked_us, final_statuses(connection))
    added = merging.add(new)
    transitions, updated = merging.change(changed)
    merging.note_names()
    return RunChanges(added, transitions, updated)


def set_presence(connection: sqlite3.Connection, run_ids: Sequence[str], presence: Presence) -> int:
    """Record whether the service still shows these runs; how many this changed."""
    ids = [sqlite_text(run_id) for run_id in run_ids]
    with immediate(connection):
        changed = connection.executemany(
            "UPDATE runs SET presence = :presence WHERE run_id = :run_id AND presence <> :presence",
            [{"presence": presence, "run_id": run_id} for run_id in ids],
        )
        connection.executemany(
            f"UPDATE sightings SET digest = {_OUT_OF_SIGHT} WHERE id = (SELECT id FROM runs WHERE run_id = ?)",
            [(run_id,) for run_id in ids],
        )
    return max(0, changed.rowcount)


def _digest(run: Run) -> int:
    """Differs where the run as received does; compared instead of it, which is fifty times as long."""
    text = (
        f"{run.status}\n{run.branch_name}\n{run.repository.data_json}\n{to_sortable_us(run.updated_at)}\n{run.raw_json}"
    )
    octets = text.encode("utf-8", "replace")
    return zlib.crc32(octets) << 31 ^ zlib.adler32(octets)


def _columns(run: Run) -> _Columns:
    run_id, branch = sqlite_text(run.run_id), sqlite_text(run.branch_name)
    repository = _label(run.repository.platform, run.repository.data_json)
    created_us, updated_us = to_sortable_us(run.created_at), to_sortable_us(run.updated_at)
    text = search_text(run_id, repository, branch)
    return run_id, sqlite_text(run.status), branch, repository, created_us, updated_us, text


# A history names few repositories many times, and each label is read out of JSON.
@lru_cache(maxsize=1_000)
def _label(platform: str, data_json: str) -> str:
    return sqlite_text(Repository(platform, data_json).label)


def _newest(runs: Sequence[Run]) -> dict[str, Run]:
    """Each run once: pages that shift while they are walked repeat runs."""
    newest: dict[str, Run] = {}
    for run in runs:
        run_id = sqlite_text(run.run_id)
        other = newest.get(run_id)
        if other is None or to_sortable_us(run.updated_at) >= to_sortable_us(other.updated_at):
            newest[run_id] = run
    return newest


class _Sighting(NamedTuple):
    """What is read of every run of an answer."""

    number: int
    digest: int
    asked_us: int
    """When the answer that was stored last was asked for."""


def _sightings(connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, _Sighting]:
    """What is held of these runs, by id; those not held are left out."""
    return {
        run_id: _Sighting(*seen)
        for some in _chunks(run_ids)
        for run_id, *seen in connection.execute(
            "SELECT r.run_id, r.id, s.digest, s.asked_us FROM runs AS r JOIN sightings AS s ON s.id = r.id"
            f" WHERE r.run_id IN ({_marks(some)})",
            some,
        ).fetchall()
    }


@dataclass(frozen=True, slots=True)
class _Merging:
    """One batch on its way into the tables, within a transaction."""

    connection: sqlite3.Connection
    asked_us: int
    finals: Collection[str]
    counts: Counter[str] = field(default_factory=Counter)
    """By how many the runs of each status become more or fewer."""
    newest: dict[str, int] = field(default_factory=dict)
    """The newest creation of each repository's runs."""

    def add(self, new: Sequence[_Arrived]) -> tuple[str, ...]:
        """Insert runs that were not held before; their ids."""
        # Of all ids that were ever given: one of a dropped run is not given again.
        found = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
        numbered = list(enumerate(new, found[0] + 1 if found else 1))
        rows = [self._row(number, _columns(run)) for number, (run, _) in numbered]
        _insert(
            self.connection,
            "INSERT INTO runs (id, run_id, status, is_final, branch, repository, created_us, updated_us, first_seen_us,"
            " presence, first_status, first_at_us, active_since_us, worked_us, took_us, search)",
            rows,
        )
        self._keep(numbered)
        self.counts.update([status for _, _, status, *_ in rows])
        return tuple([run_id for _, run_id, *_ in rows])

    def change(self, changed: Mapping[int, _Arrived]) -> tuple[tuple[Transition, ...], tuple[str, ...]]:
        """Merge what differs from what is held; the changes of status, and the ids of the other runs that changed."""
        held = self._held(list(changed))
        facts = {number: _columns(run) for number, (run, _) in changed.items()}
        moved = sorted(
            (self._at_us(updated_us), number, status)
            for number, (_, status, _, _, _, updated_us, _) in facts.items()
            if held[number].status != status
        )
        moves = [(number, held[number].status, status, at_us) for at_us, number, status in moved]
        self.connection.executemany("INSERT INTO transitions (run, old, new, at_us) VALUES (?, ?, ?, ?)", moves)
        self.connection.executemany(
            "UPDATE runs SET status = ?, is_final = ?, branch = ?, repository = ?, created_us = ?,"
            " updated_us = ?, presence = 'current', active_since_us = ?, worked_us = ?, took_us = ?, search = ?"
            " WHERE id = ?",
            [(*self._changed_row(found, held[number]), number) for number, found in facts.items()],
        )
        self._keep(list(changed.items()))
        self.counts.subtract(old for _, old, _, _ in moves)
        self.counts.update(new for _, _, new, _ in moves)
        return (
            tuple(Transition(facts[number][0], old, new, from_us(at_us)) for number, old, new, at_us in moves),
            tuple(run_id for number, (run_id, status, *_) in facts.items() if held[number].status == status),
        )

    def note_names(self) -> None:
        """Keep the numbers of runs by status, and each repository's newest run."""
        self.connection.executemany(
            "INSERT INTO statuses (status, runs) VALUES (?, ?) ON CONFLICT (status) DO UPDATE SET"
            " runs = runs + excluded.runs",
            self.counts.items(),
        )
        self.connection.executemany(
            "INSERT INTO repositories (label, newest_us) VALUES (?, ?) ON CONFLICT (label) DO UPDATE SET"
            " newest_us = excluded.newest_us WHERE excluded.newest_us > newest_us",
            self.newest.items(),
        )

    def _at_us(self, updated_us: int) -> int:
        """When the run got its status."""
        return self.asked_us if updated_us == NO_TIME_US else updated_us

    def _row(self, number: int, columns: _Columns) -> tuple[str | int, ...]:
        run_id, status, branch, repository, created_us, updated_us, text = columns
        if created_us > self.newest.get(repository, NO_TIME_US - 1):
            self.newest[repository] = created_us
        is_final = status in self.finals
        turns = Turns.first(created_us, updated_us, self.asked_us, is_final=is_final)
        return (
            number, run_id, status, is_final, branch, repository, created_us, updated_us, self.asked_us, "current",
            status, self._at_us(updated_us), *turns, text,
        )  # fmt: skip

    def _changed_row(self, columns: _Columns, held: _Held) -> tuple[str | int, ...]:
        _, status, branch, repository, created_us, updated_us, text = columns
        if created_us > self.newest.get(repository, NO_TIME_US - 1):
            self.newest[repository] = created_us
        was_final, is_final = held.status in self.finals, status in self.finals
        at_us = self._at_us(updated_us)
        created_us = held.created_us if created_us == NO_TIME_US else created_us
        updated_us = held.updated_us if updated_us == NO_TIME_US else updated_us
        if held.turns.took_us == UNKNOWN_US:
            turns = Turns.first(created_us, updated_us, held.turns.active_since_us, is_final=is_final)
        else:
            turns = held.turns.then(at_us, was_final=was_final, is_final=is_final)
        return status, is_final, branch, repository, created_us, updated_us, *turns, text

    def _held(self, numbers: Sequence[int]) -> dict[int, _Held]:
        return {
            number: _Held(status, created_us, updated_us, Turns(*turns))
            for some in _chunks(numbers)
            for number, status, created_us, updated_us, *turns in self.connection.execute(
                "SELECT id, status, created_us, updated_us, active_since_us, worked_us, took_us FROM runs"
                f" WHERE id IN ({_marks(some)})",
                some,
            ).fetchall()
        }

    def _keep(self, numbered: Sequence[tuple[int, _Arrived]]) -> None:
        _insert(
            self.connection,
            "INSERT OR REPLACE INTO run_bodies (id, platform, data_json, raw_json)",
            [
                (number, sqlite_text(place.platform), sqlite_text(place.data_json), sqlite_text(run.raw_json))
                for number, (run, _) in numbered
                for place in (run.repository,)
            ],
        )
        _insert(
            self.connection,
            "INSERT OR REPLACE INTO sightings (id, digest, asked_us)",
            [(number, digest, self.asked_us) for number, (_, digest) in numbered],
        )


def _insert(connection: sqlite3.Connection, into: str, rows: Sequence[tuple[str | int, ...]]) -> None:
    """Insert rows a hundred to a statement, which takes half as long as one by one."""
    if not rows:
        return
    row = f"({_marks(rows[0])})"
    whole = len(rows) - len(rows) % _ROWS
    several = f"{into} VALUES {', '.join([row] * _ROWS)}"
    for start in range(0, whole, _ROWS):
        connection.execute(several, list(chain.from_iterable(rows[start : start + _ROWS])))
    connection.executemany(f"{into} VALUES {row}", rows[whole:])


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
