"""Storing the runs of an answer: what is held unchanged is only confirmed; the rest is added, or merged."""

import sqlite3
import zlib
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
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

_OUT_OF_SIGHT: Final = 0
"""The digest of a run that is not current: any sighting of it is a change."""


class _Facts(NamedTuple):
    """A run as its columns hold it."""

    run_id: str
    status: str
    branch: str
    repository: str
    created_us: int
    updated_us: int
    platform: str
    data_json: str
    raw_json: str
    digest: int
    """Differs where the run as received does; compared instead of it, which is fifty times as long."""


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
    digests = {run_id: _digest(run) for run_id, run in arrived.items()}
    sightings = _sightings(connection, list(arrived))
    stale_from, stale_to = asked_us, asked_us + _CLOCK_SET_BACK_US
    same: list[int] = []
    changed: dict[str, int] = {}
    for run_id, (number, digest, seen_us) in sightings.items():
        if stale_from < seen_us <= stale_to:
            continue
        if digest == digests[run_id]:
            same.append(number)
        else:
            changed[run_id] = number
    for some in _chunks(same):
        connection.execute(f"UPDATE sightings SET asked_us = ? WHERE id IN ({_marks(some)})", (asked_us, *some))
    different = [run_id for run_id in arrived if run_id in changed or run_id not in sightings]
    if not different:
        return RunChanges()
    facts = dict(zip(different, _facts([(arrived[run_id], digests[run_id]) for run_id in different]), strict=True))
    new = [found for run_id, found in facts.items() if run_id not in sightings]
    merging = _Merging(connection, asked_us, final_statuses(connection), Counter())
    merging.add(new)
    transitions, updated = merging.change({changed[run_id]: facts[run_id] for run_id in different if run_id in changed})
    merging.note_names(facts.values())
    return RunChanges(tuple(found.run_id for found in new), transitions, updated)


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
    text = (
        f"{run.status}\n{run.branch_name}\n{run.repository.data_json}\n{to_sortable_us(run.updated_at)}\n{run.raw_json}"
    )
    octets = text.encode("utf-8", "replace")
    return zlib.crc32(octets) << 31 ^ zlib.adler32(octets)


def _facts(runs: Sequence[tuple[Run, int]]) -> Iterator[_Facts]:
    # A batch names few repositories many times, and each label is read out of JSON.
    places = {repository: _place(repository) for repository in {run.repository for run, _ in runs}}
    for run, digest in runs:
        label, platform, data_json = places[run.repository]
        yield _Facts(
            sqlite_text(run.run_id),
            sqlite_text(run.status),
            sqlite_text(run.branch_name),
            label,
            to_sortable_us(run.created_at),
            to_sortable_us(run.updated_at),
            platform,
            data_json,
            sqlite_text(run.raw_json),
            digest,
        )


def _place(repository: Repository) -> tuple[str, str, str]:
    return sqlite_text(repository.label), sqlite_text(repository.platform), sqlite_text(repository.data_json)


def _newest(runs: Sequence[Run]) -> dict[str, Run]:
    """Each run once: pages that shift while they are walked repeat runs."""
    newest: dict[str, Run] = {}
    for run in runs:
        run_id = sqlite_text(run.run_id)
        other = newest.get(run_id)
        if other is None or to_sortable_us(run.updated_at) >= to_sortable_us(other.updated_at):
            newest[run_id] = run
    return newest


def _sightings(connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """By run id: its number, its digest, and when the answer that was stored last was asked for."""
    found = (
        connection.execute(
            "SELECT r.run_id, r.id, s.digest, s.asked_us FROM runs AS r JOIN sightings AS s ON s.id = r.id"
            f" WHERE r.run_id IN ({_marks(some)})",
            some,
        )
        for some in _chunks(run_ids)
    )
    return {
        run_id: (number, digest, asked_us) for rows in found for run_id, number, digest, asked_us in rows.fetchall()
    }


@dataclass(frozen=True, slots=True)
class _Merging:
    """One batch on its way into the tables, within a transaction."""

    connection: sqlite3.Connection
    asked_us: int
    finals: Collection[str]
    counts: Counter[str]
    """By how many the runs of each status become more or fewer."""

    def add(self, new: Sequence[_Facts]) -> None:
        """Insert runs that were not held before."""
        # Of all ids that were ever given: one of a dropped run is not given again.
        found = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
        numbered = list(enumerate(new, found[0] + 1 if found else 1))
        self.connection.executemany(
            "INSERT INTO runs (id, run_id, status, is_final, branch, repository, created_us, updated_us, first_seen_us,"
            " presence, first_status, first_at_us, active_since_us, worked_us, took_us, search)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'current', ?, ?, ?, ?, ?, ?)",
            (self._row(number, facts) for number, facts in numbered),
        )
        self._keep(numbered)
        self.counts.update(facts.status for facts in new)

    def change(self, changed: Mapping[int, _Facts]) -> tuple[tuple[Transition, ...], tuple[str, ...]]:
        """Merge what differs from what is held; the changes of status, and the ids of the other runs that changed."""
        held = self._held(list(changed))
        moved = sorted(
            (self._at_us(facts), number) for number, facts in changed.items() if held[number].status != facts.status
        )
        moves = [(number, held[number].status, changed[number].status, at_us) for at_us, number in moved]
        self.connection.executemany("INSERT INTO transitions (run, old, new, at_us) VALUES (?, ?, ?, ?)", moves)
        self.connection.executemany(
            "UPDATE runs SET status = ?, is_final = ?, branch = ?, repository = ?, created_us = ?,"
            " updated_us = ?, presence = 'current', active_since_us = ?, worked_us = ?, took_us = ?, search = ?"
            " WHERE id = ?",
            (self._changed_row(number, facts, held[number]) for number, facts in changed.items()),
        )
        self._keep(changed.items())
        self.counts.subtract(old for _, old, _, _ in moves)
        self.counts.update(new for _, _, new, _ in moves)
        return (
            tuple(Transition(changed[number].run_id, old, new, from_us(at_us)) for number, old, new, at_us in moves),
            tuple(facts.run_id for number, facts in changed.items() if held[number].status == facts.status),
        )

    def note_names(self, arrived: Iterable[_Facts]) -> None:
        """Keep the numbers of runs by status, and each repository's newest run."""
        self.connection.executemany(
            "INSERT INTO statuses (status, runs) VALUES (?, ?) ON CONFLICT (status) DO UPDATE SET"
            " runs = runs + excluded.runs",
            self.counts.items(),
        )
        newest: dict[str, int] = {}
        for facts in arrived:
            newest[facts.repository] = max(facts.created_us, newest.get(facts.repository, NO_TIME_US))
        self.connection.executemany(
            "INSERT INTO repositories (label, newest_us) VALUES (?, ?) ON CONFLICT (label) DO UPDATE SET"
            " newest_us = excluded.newest_us WHERE excluded.newest_us > newest_us",
            newest.items(),
        )

    def _at_us(self, facts: _Facts) -> int:
        """When the run got its status."""
        return self.asked_us if facts.updated_us == NO_TIME_US else facts.updated_us

    def _row(self, number: int, facts: _Facts) -> tuple[str | int, ...]:
        run_id, status, branch, repository, created_us, updated_us, *_ = facts
        is_final = status in self.finals
        turns = Turns.first(created_us, updated_us, self.asked_us, is_final=is_final)
        return (
            number, run_id, status, is_final, branch, repository, created_us, updated_us, self.asked_us, status,
            self._at_us(facts), *turns, search_text(run_id, repository, branch),
        )  # fmt: skip

    def _changed_row(self, number: int, facts: _Facts, held: _Held) -> tuple[str | int, ...]:
        run_id, status, branch, repository, created_us, updated_us, *_ = facts
        was_final, is_final = held.status in self.finals, status in self.finals
        created_us = held.created_us if created_us == NO_TIME_US else created_us
        updated_us = held.updated_us if updated_us == NO_TIME_US else updated_us
        if held.turns.took_us == UNKNOWN_US:
            turns = Turns.first(created_us, updated_us, held.turns.active_since_us, is_final=is_final)
        else:
            turns = held.turns.then(self._at_us(facts), was_final=was_final, is_final=is_final)
        return (
            status, is_final, branch, repository, created_us, updated_us, *turns,
            search_text(run_id, repository, branch), number,
        )  # fmt: skip

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

    def _keep(self, numbered: Collection[tuple[int, _Facts]]) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO run_bodies (id, platform, data_json, raw_json) VALUES (?, ?, ?, ?)",
            [(number, facts.platform, facts.data_json, facts.raw_json) for number, facts in numbered],
        )
        self.connection.executemany(
            "INSERT OR REPLACE INTO sightings (id, digest, asked_us) VALUES (?, ?, ?)",
            [(number, facts.digest, self.asked_us) for number, facts in numbered],
        )


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
