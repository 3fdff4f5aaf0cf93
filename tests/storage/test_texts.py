"""The text index finds what reading every run finds, and follows each change."""

import random
from collections import Counter
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from sqlite3 import OperationalError
from typing import Final

import pytest
from msgspec.structs import replace

from storage.cache import retention, store_runs, texts
from storage.cache.read_runs import Remembered, by_status, total
from storage.cache.window import first_rows, rows
from storage.database import immediate
from storage.records import Run, RunFilter, RunSort, RunSummary
from tests.storage.conftest import NOON, Connections, connected, make_run, store
from tests.waiting import present

RUNS: Final = 2 * texts.BLOCK + 70
SEARCHES: Final = (
    "7", "run_1234", "RUN_12 größe", "GRÖSSE", "acme/web 77", "acme/web -1", "ök", "faster 9", "\x1d\x1e5", "agent/",
    "nowhere", "claude", "%", "1 2 3", "done",
)  # fmt: skip
FILTERS: Final = (
    RunFilter(statuses=("failed",)),
    RunFilter(repositories=("acme/web",)),
    RunFilter(since=NOON - timedelta(minutes=600)),
)


def run(number: int, **changes: object) -> Run:
    chance = random.Random(number)
    return make_run(
        number, chance.choice(["failed", "completed"]),
        branch=f"agent/{chance.choice(['größe', 'ökologie', 'plain'])}-{number % 90}",
        repository=chance.choice(["acme/web", "acme/api"]),
        # Roughly newest first, several at a time.
        created_at=NOON - timedelta(minutes=number // 4 + chance.randrange(300)),
        **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run(number) for number in range(RUNS)]


def fill(database: Connections) -> None:
    with immediate(database[0]):
        assert not texts.fill(database[0])


def check(database: Connections, held: list[Run], about: dict[str, str]) -> None:
    """Check that every search's rows and numbers equal those of reading the runs."""
    lines = {each.run_id: [each.run_id, each.repository.label, each.branch_name] for each in held}
    folded = {name: "\n".join([*own, about.get(name, "")]).casefold() for name, own in lines.items()}
    for search, other in zip(SEARCHES, cycle(FILTERS), strict=False):
        matching = [each for each in held if all(word in folded[each.run_id] for word in search.casefold().split())]
        for condition in (RunFilter(), other):
            found = [
                each
                for each in matching
                if (not condition.statuses or each.status in condition.statuses)
                and (not condition.repositories or each.repository.label in condition.repositories)
                and (condition.since is None or present(each.created_at) >= condition.since)
            ]
            ids = [each.run_id for each in sorted(found, key=lambda each: (each.created_at, each.run_id), reverse=True)]
            wanted, remembered = replace(condition, search=search), Remembered()
            shown = first_rows(database[1], wanted, RunSort(), 5, 60, remembered)
            further = rows(database[1], wanted, RunSort(), 3, 40, remembered)

            assert [row.run_id for row in shown] == ids[:5], search
            assert [row.run_id for row in further] == ids[3:43], search
            assert total(database[1], wanted, remembered) == len(ids), search
            if not condition.statuses:
                assert by_status(database[1], wanted, remembered) == Counter(each.status for each in found), search


def test_a_search_agrees_with_reading_every_run(tmp_path: Path, runs: list[Run]) -> None:
    """Searches agree before and after indexing, and after each change: a text, an end, an age, a new run."""
    about: dict[str, str] = {}
    with connected(tmp_path, runs) as database:
        check(database, runs, about)
        fill(database)
        check(database, runs, about)

        for number in (3, 900, 2 * texts.BLOCK + 1):
            name = runs[number].run_id
            summary = RunSummary(
                "Make it FASTER", "Done: 9 of 9", "claude", status=runs[number].status, updated_at=NOON
            )
            store_runs.store_summary(database[0], name, summary)
            about[name] = "Make it FASTER\nclaude\nDone: 9 of 9"
        check(database, runs, about)
        fill(database)

        changed = run(3, updated_at=NOON + timedelta(minutes=5))
        about[changed.run_id] = "Make it FASTER\nclaude"
        added = [run(number) for number in range(RUNS, RUNS + 30)]
        store(database[0], [changed, *added])
        with immediate(database[0]):
            assert retention.drop_oldest(database[0], None, ()) == retention.STEP
        held = [row[0] for row in database[1].execute("SELECT run_id FROM runs").fetchall()]
        left = [each for each in (*runs[:3], changed, *runs[4:], *added) if each.run_id in set(held)]
        check(database, left, about)
        fill(database)
        check(database, left, about)


def test_an_incomplete_index_reads_every_run(tmp_path: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same is done if a search finds very many."""
    with connected(tmp_path, runs) as database:
        monkeypatch.setattr(texts, "_MAX_MISSING", 1)
        assert texts.newest(database[1], RunFilter(search="7"), 5) is None
        check(database, runs, {})
        fill(database)
        monkeypatch.setattr(texts, "_MAX_MATCHES", 100)
        assert texts.by_status(database[1], RunFilter(search="agent")) is None
        check(database, runs, {})


def test_a_cancelled_search_does_not_affect_the_reader(tmp_path: Path, runs: list[Run]) -> None:
    """Whichever statement it was running, the next read sees the newest state."""
    with connected(tmp_path, runs) as database:
        fill(database)
        _, reader = database
        for statement in ("FROM texts", "json_each"):
            reader.set_trace_callback(lambda sql, part=statement: part in sql and reader.interrupt())
            with pytest.raises(OperationalError, match="interrupted"):
                first_rows(reader, RunFilter(search="run_0003"), RunSort(), 5, 60, Remembered())
            reader.set_trace_callback(None)

            assert not reader.in_transaction
        check(database, runs, {})
