"""`status`: what is in force: sandbox, limits, workers, and how many runs wait, work and ended."""

from typing import Any

import click
import sqlalchemy as sa

from service.cli.output import Desk, administers
from service.clock import SECOND_MICROS, now_micros, rfc3339
from service.execution.sandbox import NoSandboxError, find
from service.settings import Execution
from service.store import mails, workers
from service.store.schema import runs
from service.store.workers import Worker


@click.command("status")
@administers
def command(desk: Desk) -> None:
    """Show the sandbox and limits of agents, the living workers, and the number of runs by status."""
    settings = desk.folder.settings().execution
    with desk.database() as database, database.read() as connection:
        counted = connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status)).all()
        living = workers.heard_within(connection, int(settings.worker_ttl_s * SECOND_MICROS), now_micros)
        unsent = mails.unsent(connection)
        place = database.url.render_as_string(hide_password=True)
    by_status = {str(row[0]): int(row[1]) for row in counted}
    document = {
        "data_dir": str(desk.folder.root),
        "database": place,
        "sandbox": _sandbox(settings),
        "limits": settings.agent.model_dump(),
        "workers": [_worker(one) for one in living],
        "runs": by_status,
        "mails": unsent,
    }
    desk.show(document, _lines(document))


def _sandbox(settings: Execution) -> str:
    try:
        return str(find(settings.sandbox))
    except NoSandboxError as error:
        return f"required and missing: {error}"


def _worker(one: Worker) -> dict[str, Any]:
    return {
        "executor": one.executor,
        "host": one.host,
        "pid": one.pid,
        "concurrency": one.concurrency,
        "sandbox": one.sandbox,
        "started_at": rfc3339(one.started_at),
        "seen_at": rfc3339(one.seen_at),
    }


def _lines(document: dict[str, Any]) -> list[str]:
    heads = {"data folder": "data_dir", "database": "database", "sandbox here": "sandbox"}
    lines = [f"{head:14}{document[key]}" for head, key in heads.items()]
    lines += [f"{'limits here':14}{', '.join(f'{key} {value:.10g}' for key, value in document['limits'].items())}"]
    lines += [f"{'workers':14}{len(document['workers'])}"]
    for one in document["workers"]:
        lines.append(f"  {one['host']} pid {one['pid']}, {one['concurrency']} at a time, sandbox: {one['sandbox']}")
    lines += [f"{status:14}{number}" for status, number in sorted(document["runs"].items())]
    return [*lines, *(f"{f'mails {state}':14}{number}" for state, number in document["mails"].items() if number)]
