"""A small service to back up."""

import contextlib
from collections.abc import Iterator

from click.testing import CliRunner, Result

from service.cli import main
from service.clock import now_micros
from service.settings import DataFolder
from service.store import organizations, runs, turns
from service.store.database import Database
from service.store.runs import TurnRequest
from service.store.turns import TurnOutcome


def attempt(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def a_service(database: Database, folder: DataFolder) -> None:
    """Make an organization with three ended runs and their logs."""
    folder.create()
    database.migrate()
    now = now_micros()
    with database.write() as connection:
        owner = organizations.create(connection, name="Acme \N{SNOWMAN}", now=now).id
        order = TurnRequest(owner, "scribe", "github", "acme/api", "/srv/api.git", None, "do it")
        for run_id in [runs.accept(connection, order, now).id for _ in range(3)]:
            turns.end(connection, run_id, 1, TurnOutcome("completed"), now)
            folder.turn_log(run_id, 1).parent.mkdir()
            folder.turn_log(run_id, 1).write_text(f"log of {run_id}", "utf-8")


@contextlib.contextmanager
def opened(folder: DataFolder, url: str | None) -> Iterator[Database]:
    with contextlib.closing(Database(url or folder.database_url)) as database:
        yield database
