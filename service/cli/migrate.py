"""`migrate`: the tables of the service and of its queue, ahead of the first start or of an upgrade."""

import click

from service.cli.output import Desk, administers
from service.store.schema import VERSION


@click.command("migrate")
@administers
def command(desk: Desk) -> None:
    """Make the tables, or bring them to this version; `serve` and `worker` do the same by themselves."""
    with desk.database(create=True) as database:
        from service.execution.queue import migrate_queue

        migrate_queue(database)
        place = database.url.render_as_string(hide_password=True)
    desk.show({"database": place, "schema_version": VERSION}, [f"{place}  schema version {VERSION}"])
