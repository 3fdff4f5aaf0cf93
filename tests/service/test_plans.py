"""PostgreSQL's plans: what is asked again and again reads what it needs through an index, however much has ended."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from service.clock import now_micros
from service.store import dispatch, organizations, runs, turns
from service.store.database import Database
from service.store.runs import Filters

OWNER = "org_1"
FILL = (
    (
        "INSERT INTO runs(id, organization_id, agent, status, branch, platform, path, path_key, url, turn, created_at,"
        " updated_at) SELECT 'run_'||n, '{owner}', 'a', 'completed', 'b'||n, 'github', 'a/b', 'a/b', 'u', 1, n, n"
        " FROM generate_series(1, 20000) n"
    ),
    (
        "INSERT INTO turns(run_id, number, status, instructions, inputs, attempt, accepted_at, dispatched_at,"
        " finished_at) SELECT 'run_'||n, 1, 'completed', 'go', '{{}}', 1, n, n, n FROM generate_series(1, 20000) n"
    ),
)


@pytest.fixture(scope="module")
def full(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with twenty thousand runs that ended."""
    made = Database(request.getfixturevalue("postgres").create("plans"))
    made.migrate()
    with made.write() as connection:
        owner = organizations.create(connection, name="Acme", now=now_micros()).id
        for statement in FILL:
            connection.execute(sa.text(statement.format(owner=owner)))
        connection.execute(sa.text("ANALYZE"))
    yield made
    made.close()


Question = Callable[[sa.Connection], Any]


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda connection: dispatch.next_turns(connection, 4, None), id="next_turns"),
        pytest.param(turns.open_runs, id="open_runs"),
        pytest.param(lambda connection: runs.has_more_active(connection, OWNER, 1000), id="has_more_active"),
        pytest.param(lambda connection: runs.page(connection, Filters(OWNER), None, 11), id="page"),
        pytest.param(lambda connection: runs.page(connection, Filters(OWNER, status="failed"), None, 11), id="failed"),
        pytest.param(lambda connection: runs.is_worked_on(connection, "u", "b1"), id="is_worked_on"),
    ],
)
def test_no_question_of_every_second_reads_what_has_ended(full: Database, ask: Question) -> None:
    """Neither the worker's rounds nor a page of a list scan runs or turns."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    with full.read() as connection:
        sa.event.listen(full.engine, "before_cursor_execute", note)
        try:
            ask(connection)
        finally:
            sa.event.remove(full.engine, "before_cursor_execute", note)
        plans = [
            "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            for statement, parameters in asked
        ]

    assert asked
    assert not [plan for plan in plans if "Seq Scan on runs" in plan or "Seq Scan on turns" in plan]
