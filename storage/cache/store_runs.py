"""Storing the runs of an answer: what is held unchanged is only confirmed; the rest is added, or merged."""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Final, TypeVar

from storage.cache.learnt import final_statuses
from storage.cache.run_sql import search_text
from storage.cache.turns import UNKNOWN_US, Turns
from storage.database import immediate
from storage.records import Presence, Repository, Run, RunChanges, Transition
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


_Arrived = tuple[Run, int, int]
"""A run as it came, when it changed last, and its digest."""
_Columns = tuple[str, str, str, str, int, int, str]
"""A run's id, status, branch, repository, times of creation and change, and the text that a search looks into."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a changed run was until now."""

    status: str
    created_us: int
    updated_us: int
    turns: Turns


def store(connection: sqlite3.Connection, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
    """Store the runs of one answer in a transaction of its own; what they changed."""
    return store_all(connection, [(runs, asked_at)])[0]


def store_all(connection: sqlite3.Connection, answers: Iterable[tuple[Sequence[Run], datetime]]) -> list[RunChanges]:
    """Store the runs of answers, each with when it was asked for, in one transaction; what each of them changed."""
    with immediate(connection):
        merging = _Merging(connection, final_statuses(connection))
        changes = [merging.take(_arrived(runs), to_us(asked_at)) for runs, asked_at in answers]
        merging.note_names()
    return changes


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


def _arrived(runs: Sequence[Run]) -> dict[str, _Arrived]:
    """Each run once: pages that shift while they are walked repeat runs."""
    arrived: dict[str, _Arrived] = {}
    for received in runs:
        run, updated_us = received, to_sortable_us(received.updated_at)
        text = f"{run.run_id}\n{run.status}\n{run.branch_name}\n{run.repository.data_json}\n{run.raw_json}"
        if not text.isascii():
            run = _without_surrogates(run)
        # The digest differs where the run as received does; compared instead of it, which is fifty times as long.
        octets = text.encode("utf-8", "replace")
        digest = zlib.crc32(octets) << 31 ^ zlib.adler32(octets) ^ updated_us
        if run.run_id not in arrived or updated_us >= arrived[run.run_id][1]:
            arrived[run.run_id] = run, updated_us, digest
    return arrived


def _without_surrogates(run: Run) -> Run:
    place = Repository(sqlite_text(run.repository.platform), sqlite_text(run.repository.data_json))
    run_id, status, branch, raw = map(sqlite_text, (run.run_id, run.status, run.branch_name, run.raw_json))
    return replace(run, run_id=run_id, status=status, branch_name=branch, repository=place, raw_json=raw)


def _columns(run: Run, updated_us: int) -> _Columns:
    run_id, branch, place = run.run_id, run.branch_name, run.repository
    repository = _label(place.platform, place.data_json)
    text = search_text(run_id, repository, branch)
    return run_id, run.status, branch, repository, to_sortable_us(run.created_at), updated_us, text


# A history names few repositories many times, and each label is read out of JSON.
@lru_cache(maxsize=1_000)
def _label(platform: str, data_json: str) -> str:
    return sqlite_text(Repository(platform, data_json).label)


def _sightings(connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, int, int, int]]:
    """By run id: it, its number, its digest, and when the answer that was stored last was asked for."""
    return {
        found[0]: found
        for some in _chunks(run_ids)
        for found in connection.execute(
            "SELECT r.run_id, r.id, s.digest, s.asked_us FROM runs AS r JOIN sightings AS s ON s.id = r.id"
            f" WHERE r.run_id IN ({_marks(some)})",
            some,
        )
    }


@dataclass(frozen=True, slots=True)
class _Merging:
    """Answers on their way into the tables, within a transaction."""

    connection: sqlite3.Connection
    finals: Collection[str]
    counts: Counter[str] = field(default_factory=Counter)
    """By how many the runs of each status become more or fewer."""
    newest: dict[str, int] = field(default_factory=dict)
    """The newest creation of each repository's runs."""

    def take(self, arrived: Mapping[str, _Arrived], asked_us: int) -> RunChanges:
        """Store the runs of an answer that was asked for at this time; what they changed."""
        sightings = _sightings(self.connection, list(arrived))
        same: list[int] = []
        new: list[_Arrived] = []
        changed: dict[int, _Arrived] = {}
        for run_id, found in arrived.items():
            seen = sightings.get(run_id)
            if seen is None:
                new.append(found)
                continue
            _, number, digest, seen_us = seen
            if asked_us < seen_us <= asked_us + _CLOCK_SET_BACK_US:
                continue
            if digest == found[2]:
                same.append(number)
            else:
                changed[number] = found
        for some in _chunks(same):
            sql = f"UPDATE sightings SET asked_us = ? WHERE id IN ({_marks(some)})"
            self.connection.execute(sql, (asked_us, *some))
        added = self._add(new, asked_us) if new else ()
        return RunChanges(added, *self._change(changed, asked_us)) if new or changed else RunChanges()

    def _add(self, new: Sequence[_Arrived], asked_us: int) -> tuple[str, ...]:
        """Insert runs that were not held before; their ids."""
        # Of all ids that were ever given: one of a dropped run is not given again.
        last = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
        numbered = list(enumerate(new, last[0] + 1 if last else 1))
        columns = [_columns(run, updated_us) for run, updated_us, _ in new]
        _insert(
            self.connection,
            "INSERT INTO runs (id, run_id, status, is_final, branch, repository, created_us, updated_us, first_seen_us,"
            " presence, first_status, first_at_us, active_since_us, worked_us, took_us, search)",
            [self._row(number, found, asked_us) for (number, _), found in zip(numbered, columns, strict=True)],
        )
        self._keep(numbered, asked_us)
        self.counts.update([status for _, status, *_ in columns])
        return tuple([run_id for run_id, *_ in columns])

    def _change(self, changed: Mapping[int, _Arrived], asked_us: int) -> tuple[tuple[Transition, ...], tuple[str, ...]]:
        """Merge what differs from what is held; the changes of status, and the ids of the other runs that changed."""
        held = self._held(list(changed))
        columns = {number: _columns(run, updated_us) for number, (run, updated_us, _) in changed.items()}
        moved = sorted(
            (_at_us(updated_us, asked_us), number, status)
            for number, (_, status, _, _, _, updated_us, _) in columns.items()
            if held[number].status != status
        )
        moves = [(number, held[number].status, status, at_us) for at_us, number, status in moved]
        self.connection.executemany("INSERT INTO transitions (run, old, new, at_us) VALUES (?, ?, ?, ?)", moves)
        self.connection.executemany(
            "UPDATE runs SET status = ?, is_final = ?, branch = ?, repository = ?, created_us = ?,"
            " updated_us = ?, presence = 'current', active_since_us = ?, worked_us = ?, took_us = ?, search = ?"
            " WHERE id = ?",
            [(*self._changed_row(found, held[number], asked_us), number) for number, found in columns.items()],
        )
        self._keep(list(changed.items()), asked_us)
        self.counts.subtract(old for _, old, _, _ in moves)
        self.counts.update(new for _, _, new, _ in moves)
        return (
            tuple(Transition(columns[number][0], old, new, from_us(at_us)) for number, old, new, at_us in moves),
            tuple(run_id for number, (run_id, status, *_) in columns.items() if held[number].status == status),
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

    def _row(self, number: int, columns: _Columns, asked_us: int) -> tuple[str | int, ...]:
        run_id, status, branch, repository, created_us, updated_us, text = columns
        self._note_newest(repository, created_us)
        is_final = status in self.finals
        turns = Turns.first(created_us, updated_us, asked_us, is_final=is_final)
        return (
            number, run_id, status, is_final, branch, repository, created_us, updated_us, asked_us, "current",
            status, _at_us(updated_us, asked_us), *turns, text,
        )  # fmt: skip

    def _changed_row(self, columns: _Columns, held: _Held, asked_us: int) -> tuple[str | int, ...]:
        _, status, branch, repository, created_us, updated_us, text = columns
        self._note_newest(repository, created_us)
        was_final, is_final = held.status in self.finals, status in self.finals
        at_us = _at_us(updated_us, asked_us)
        created_us = held.created_us if created_us == NO_TIME_US else created_us
        updated_us = held.updated_us if updated_us == NO_TIME_US else updated_us
        if held.turns.took_us == UNKNOWN_US:
            turns = Turns.first(created_us, updated_us, held.turns.active_since_us, is_final=is_final)
        else:
            turns = held.turns.then(at_us, was_final=was_final, is_final=is_final)
        return status, is_final, branch, repository, created_us, updated_us, *turns, text

    def _note_newest(self, repository: str, created_us: int) -> None:
        if created_us > self.newest.get(repository, NO_TIME_US - 1):
            self.newest[repository] = created_us

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

    def _keep(self, numbered: Sequence[tuple[int, _Arrived]], asked_us: int) -> None:
        _insert(
            self.connection,
            "INSERT OR REPLACE INTO run_bodies (id, platform, data_json, raw_json)",
            [
                (number, run.repository.platform, run.repository.data_json, run.raw_json)
                for number, (run, _, _) in numbered
            ],
        )
        _insert(
            self.connection,
            "INSERT OR REPLACE INTO sightings (id, digest, asked_us)",
            [(number, digest, asked_us) for number, (_, _, digest) in numbered],
        )


def _at_us(updated_us: int, asked_us: int) -> int:
    """When the run got its status."""
    return asked_us if updated_us == NO_TIME_US else updated_us


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
