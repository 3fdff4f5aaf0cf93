"""Places: organizations take turns at them, and none waits for the stuck runs of another."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from service.clock import now_micros
from service.store import schema, turns
from service.store.database import Database
from service.store.dispatch import next_turns
from service.store.turns import TurnOutcome
from tests.service.conftest import BOTH, Api, Make, accepted, organization
from tests.service_process import demo_setup
from tests.waiting import eventually


class Queue:
    """Accepted turns of organizations with a letter each, and what is dispatched of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.owners: dict[str, str] = {}
        self.under_way: list[tuple[str, int]] = []

    def accept(self, name: str, count: int, branch: str | None = None) -> None:
        self.owners[organization(self.database, name.lower(), now_micros())] = name
        for _ in range(count):
            accepted(self.database, name.lower(), now=now_micros(), branch=branch)

    def dispatch(self, places: int, share: int | None = None, ended: int = 0) -> str:
        """End so many turns, and return the organizations that get places then."""
        with self.database.write() as connection:
            for _ in range(min(ended, len(self.under_way))):
                turns.end(connection, *self.under_way.pop(0), TurnOutcome("completed"), now_micros())
            found = next_turns(connection, places, share, 0)
            keys = [(turn.run_id, turn.number) for turn in found]
            if keys:
                turns.mark_dispatched(connection, keys, now_micros())
        self.under_way += keys
        return "".join(sorted(self.owners[turn.organization_id] for turn in found))

    def fill(self, count: int) -> None:
        """Let twenty organizations, A to T, have so many waiting turns in turn: copies of one, the oldest of all."""
        for letter in "ABCDEFGHIJKLMNOPQRST":
            self.accept(letter, 0)
        pattern = accepted(self.database, "a").id
        owners = [*self.owners]
        with self.database.write() as connection:
            run, turn = (
                connection.execute(sa.select(table).where(key == pattern)).mappings().one()
                for table, key in ((schema.runs, schema.runs.c.id), (schema.turns, schema.turns.c.run_id))
            )
            turns.cancel(connection, pattern, "cancelled", now_micros())
            runs, queued = [], []
            for number in range(count):
                own = {"organization_id": owners[number % 20]}
                run_id = f"run_{count:06}-{number:06}"
                runs.append({**run, **own, "id": run_id, "branch": run_id, "created_at": number})
                queued.append({**turn, **own, "run_id": run_id, "accepted_at": number})
            connection.execute(sa.insert(schema.runs), runs)
            connection.execute(sa.insert(schema.turns), queued)


@BOTH
def test_organizations_take_turns_however_much_one_of_them_asked_for(database: Database) -> None:
    """The only run of the second does not wait for forty of the first; of one branch only one run is queued."""
    queue = Queue(database)
    queue.accept("A", 40)
    queue.accept("B", 1)
    queue.accept("C", 2)

    assert queue.dispatch(4) == "AABC"
    assert queue.dispatch(4) == ""
    assert queue.dispatch(4, ended=1) == "A", "all have as many, and it waits longest"
    assert queue.dispatch(4, ended=1) == "C", "of those that wait, it has the fewest"
    queue.accept("D", 20, branch="same")
    queue.accept("D", 1)
    assert queue.dispatch(12).count("D") == 2


def test_one_place_is_left_for_others_where_there_are_any(database: Database) -> None:
    """Who comes later finds it free; who is alone uses all of them; a share that is set holds."""
    queue = Queue(database)
    queue.accept("A", 9)
    assert queue.dispatch(3) == "AAA"
    queue.accept("B", 0)
    assert queue.dispatch(3, ended=3) == "AA"
    queue.accept("B", 1)
    assert queue.dispatch(3) == "B"
    assert queue.dispatch(6, share=1, ended=1) == ""


def test_a_new_organization_is_served_whatever_waits(database: Database) -> None:
    """With two places, about ten turns of twenty others come before its first on each place, and before its next."""
    queue = Queue(database)
    queue.fill(1000)
    queue.dispatch(2)
    queue.accept("Z", 2)
    served = "".join(queue.dispatch(2, ended=2) for _ in range(22))
    before_first, before_second, _ = served.split("Z")

    assert len(before_first) <= 21
    assert len(before_second) <= 21


@BOTH
def test_the_next_turn_is_found_without_reading_what_waits_or_has_ended(database: Database) -> None:
    """Beside two thousand turns it takes at most three times the effort that it takes beside ten."""
    queue = Queue(database)
    queue.fill(10)
    beside_ten = effort(database)
    queue.fill(2000)
    waiting = effort(database)
    queue.dispatch(2)
    no_room = effort(database)
    with database.write() as connection:
        ended = {"status": "completed", "dispatched_at": 1, "finished_at": 2}
        connection.execute(sa.update(schema.turns).values(ended))
    # PostgreSQL passes over what has just left an index once.
    queue.dispatch(2)
    nothing_waits = effort(database)

    assert waiting <= 3 * beside_ten
    assert max(no_room, nothing_waits) <= beside_ten


def effort(database: Database) -> int:
    """Look for the next turns, and count SQLite's steps, or the rows that PostgreSQL reads of tables and indexes."""
    steps: list[None] = []
    with database.read() as connection:
        if not database.is_sqlite:
            before = rows_read(connection)
            next_turns(connection, 2, None, 0)
            return rows_read(connection) - before
        raw: Any = connection.connection.driver_connection
        raw.set_progress_handler(lambda: steps.append(None), 1)
        next_turns(connection, 2, None, 0)
        raw.set_progress_handler(None, 0)
    return len(steps)


def rows_read(connection: sa.Connection) -> int:
    """Return how many rows and index entries of our tables this PostgreSQL connection has read of late."""
    read = "SUM(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))"
    query = f"SELECT {read} FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return int(connection.exec_driver_sql(query).scalar_one())


def two(tmp_path: Path) -> dict[str, Any]:
    """The demo's setup with a second organization."""
    setup = demo_setup(tmp_path)
    setup["organizations"].append(setup["organizations"][0] | {"name": "Other", "slug": "other"})
    return setup


def test_a_second_tenant_is_served_beside_the_stuck_or_stopped_runs_of_the_first(start: Make, tmp_path: Path) -> None:
    """The first has six, none of which ends; a deactivated organization's are stopped, at work and waiting."""
    settings = '[execution]\nsandbox = "none"\nconcurrency = 2\ndrain_s = 0.1\n'
    api = start(setup=two(tmp_path), settings=settings)
    acme, other = (Api(api.service, one) for one in api.service.setup["organizations"])
    stuck = [acme.start(f"wait {tmp_path / 'never'}") for _ in range(6)]

    assert other.ended(other.start("nothing"))["status"] == "completed"
    assert {acme.run(one)["status"] for one in stuck} == {"working", "queued"}
    working = next(one for one in stuck if acme.run(one)["status"] == "working")
    acme.service.admin("org", "deactivate", "acme")
    eventually(lambda: "interrupted" in acme.log(working), "the agent is interrupted")
    assert other.ended(other.start("nothing"))["status"] == "completed"
    for run_id in stuck:
        turn = acme.service.admin("run", run_id)["turns"][0]
        assert (turn["status"], turn["failure"]) == ("failed", "cancelled: the organization was deactivated")


def test_an_organization_has_so_many_active_runs_and_no_more(start: Make, tmp_path: Path) -> None:
    """Exactly, however many are asked for at once; another organization has its own."""
    api = start(setup=two(tmp_path), settings="[limits]\nactive_runs = 3\n", arguments=["--no-worker"])
    acme, other = (Api(api.service, one) for one in api.service.setup["organizations"])
    body = {"repository": "acme/api", "inputs": {"instructions": "wait"}}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: acme.post("/external/agents/scribe/runs", body), range(8)))
    accepted = [answer.json()["execution_id"] for answer in answers if answer.status_code == 201]
    refused = {(answer.status_code, answer.json().get("error_code")) for answer in answers} - {(201, None)}
    other.start("theirs")
    assert acme.post(f"/external/runs/{accepted[0]}/cancel", {}).status_code == 202
    again = acme.follow(accepted[0], "once more")

    assert (len(accepted), refused) == (3, {(400, "too_many_active_runs")})
    assert again.status_code == 201
    assert acme.follow(accepted[1], "beside it").status_code in {400, 409}
    assert len(list(acme.runs(status="queued"))) == 3
