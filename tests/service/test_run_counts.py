"""How many runs there are: counted each time as long as that is quick."""

import sqlalchemy as sa

from service.clock import DAY_MICROS
from service.lab import history
from service.store import organizations, runs
from service.store.database import Database
from service.store.runs import Filters, RunCounts

NOW = 1_700_000_000_000_000


def test_large_counts_are_kept_for_a_moment_and_small_ones_are_not(database: Database) -> None:
    """10,000 and more are counted once in a while, in proportion to their number; below that, each time."""
    now = [0.0]
    counts = RunCounts(lambda: now[0])
    with database.write() as connection:
        owner = organizations.create(connection, name="Acme", slug="acme", now=NOW).id
    history.make(database, history.HistorySpec("acme", runs.EXACT_BELOW, 1, DAY_MICROS, NOW, active=0, repositories=2))
    every, failed = Filters(owner), Filters(owner, status="failed")
    looks: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *given: looks.append(given[2]))
    with database.read() as connection:
        connection.execute(sa.select(1))
        looks.clear()
        first = [counts.count(connection, every), counts.count(connection, every), len(looks)]
        few = counts.count(connection, failed)
        again = [counts.count(connection, failed) == few, len(looks)]
        now[0] = 0.06
        later = [counts.count(connection, every), len(looks)]

    assert first == [10_000, 10_000, 1]
    assert 0 < few < 10_000
    assert again == [True, 3]
    assert later == [10_000, 4]
