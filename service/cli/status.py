"""`status`: what is in force in a data folder."""

import click
import sqlalchemy as sa

from service.cli.output import Desk, administers
from service.clock import now_micros, rfc3339
from service.execution.sandbox import NoSandboxError, find
from service.store import workers
from service.store.schema import runs


@click.command("status")
@administers
def command(desk: Desk) -> None:
    """Show sandbox, workers and the number of runs by status."""
    settings = desk.folder.settings()
    now = now_micros()
    with desk.read() as connection:
        counted = connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status)).all()
        known = workers.all_of(connection)
    try:
        sandbox = str(find(settings.execution.sandbox))
    except NoSandboxError as error:
        sandbox = f"required and missing: {error}"
    living = [one for one in known if now - one.seen_at < settings.execution.worker_ttl_s * 1_000_000]
    by_status = {str(row[0]): int(row[1]) for row in counted}
    document = {
        "data_dir": str(desk.folder.root),
        "sandbox": sandbox,
        "workers": [{"pid": one.pid, "sandbox": one.sandbox, "seen_at": rfc3339(one.seen_at)} for one in living],
        "runs": by_status,
    }
    lines = [f"data folder  {desk.folder.root}", f"sandbox      {sandbox}", f"workers      {len(living)}"]
    desk.show(document, [*lines, *(f"{status:12} {number}" for status, number in sorted(by_status.items()))])
