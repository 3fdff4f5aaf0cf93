"""How fast pages of runs enter the cache, and pass through it unchanged, against sqlite-utils' own upsert."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import sqlite_utils

from bench.figures import Figure, in_turn, timed
from bench.history import NOW, pages, store
from storage.cache import opening
from storage.cache.schema import ORDER_INDEXES, make_index
from storage.records import Run

COUNT = 20_000
LOAD_BAR = 0.8
AGAIN_BAR = 0.3


def measure(_: int) -> Iterator[Figure]:
    """Loading, and loading the same again."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        numbers = iter(range(1000))
        kept, every = root / "kept.sqlite3", list(pages(COUNT))
        store(kept, every)
        load, yardstick = in_turn(
            lambda: timed(lambda: store(root / f"{next(numbers)}.sqlite3", every)),
            lambda: timed(lambda: upsert(root / f"{next(numbers)}.sqlite3", every)),
            rounds=9,
        )
        yield Figure(f"load {COUNT:,} runs", load, "sqlite-utils upsert_all", yardstick, bar=LOAD_BAR)
        sorted_load, _ = in_turn(
            lambda: timed(lambda: store(indexed(root / f"{next(numbers)}.sqlite3"), every)), lambda: 0.0, rounds=3
        )
        yield Figure("the same, where every order is in use", sorted_load, "sqlite-utils upsert_all", yardstick)
        again, _ = in_turn(lambda: timed(lambda: store(kept, every)), lambda: 0.0, rounds=9)
        yield Figure(
            f"load {COUNT:,} runs again, unchanged", again, "sqlite-utils upsert_all", yardstick, bar=AGAIN_BAR
        )


def indexed(path: Path) -> Path:
    """An empty cache in which every order was asked for."""
    opening.prepare(path, NOW)
    with closing(opening.connect_writer(path)) as connection:
        for order in ORDER_INDEXES:
            make_index(connection, order)
    return path


def upsert(path: Path, every: Sequence[list[Run]]) -> None:
    """The same pages through sqlite-utils, as durable as the cache is."""
    database = sqlite_utils.Database(path)
    database.enable_wal()
    database.execute("PRAGMA synchronous = NORMAL")
    for page in every:
        database["runs"].upsert_all(
            (
                {
                    "run_id": run.run_id,
                    "status": run.status,
                    "branch": run.branch_name,
                    "repository": json.dumps(json.loads(run.repository.data_json)),
                    "created": run.created_at.timestamp() if run.created_at else None,
                    "updated": run.updated_at.timestamp() if run.updated_at else None,
                    "raw": run.raw_json,
                }
                for run in page
            ),
            pk="run_id",
        )
    database.close()
