"""`maintenance`, `migrate`, `prune`, `backup` and `restore`: the upkeep of a service."""

import os
import socket
import time
from pathlib import Path

import click

from service.cli.output import AdminCommand, AdminContext, operator
from service.clock import SECOND_MICROS, now_micros, parse_duration, rfc3339
from service.execution.queue import forget_ended, migrate_queue
from service.execution.retention import prune_files, prune_stored_files
from service.processes import backup as backups
from service.setup import SetupError
from service.store import workers
from service.store.schema import VERSION
from service.store.workers import Doorbell
from service.text import plural

_MIB = 1 << 20


@click.command("maintenance", cls=AdminCommand)
@click.argument("reason", required=False)
@click.option("--end", "is_end", is_flag=True, help="Begin turns again.")
def maintenance(admin: AdminContext, reason: str | None, *, is_end: bool) -> None:
    """Start no more turns, and show REASON to everybody who waits; turns at work finish. Runs are still accepted."""
    if bool(reason) == is_end:
        raise SetupError("give a REASON to begin the maintenance, or --end to end it")
    with admin.database() as database:
        with admin.change("maintenance.end" if is_end else "maintenance.begin", database) as change:
            change.detail = reason
            workers.set_maintenance(change.connection, None if is_end else reason)
        Doorbell(database).ring()
    text = "no turn begins; status tells when the workers can be stopped"
    if is_end:
        text = "the maintenance has ended"
    admin.show({"maintenance": reason}, text)


def drain(admin: AdminContext, ttl_s: float) -> None:
    """Let the workers of this machine begin nothing more, and return when they have nothing left at work.

    Raises:
        SetupError: No worker runs on this machine.
    """
    machine = socket.gethostname()
    with admin.database() as database:
        with admin.change("worker.drain", database) as change:
            living = workers.heard_within(change.connection, ttl_s, now_micros)
            if not (mine := {worker.executor for worker in living if worker.host == machine}):
                raise SetupError(f"no worker runs on {machine}; see: runwarden service status")
            workers.drain(change.connection, machine, living)
            change.target = machine
        Doorbell(database).ring()
        last_count = None
        while True:
            with database.read() as connection:
                living = workers.heard_within(connection, ttl_s, now_micros)
            left = [worker for worker in living if worker.executor in mine and (worker.concurrency or worker.at_work)]
            if not left:
                break
            count = sum(worker.at_work for worker in left)
            # A worker that still offers slots has not counted its turns since the drain.
            if count != last_count and not any(worker.concurrency for worker in left):
                click.echo(f"{machine}: {plural(count, 'turn')} still at work", err=True)
                last_count = count
            time.sleep(1.0)
    admin.show({"host": machine, "drained": len(mine)}, f"{machine}: nothing is at work; its workers can be stopped")


@click.command("migrate", cls=AdminCommand)
def migrate(admin: AdminContext) -> None:
    """Create or upgrade the tables; `serve` and `worker` also do so when they start."""
    with admin.database(create=True) as database:
        migrate_queue(database)
        address = database.url.render_as_string(hide_password=True)
    admin.show({"database": address, "schema_version": VERSION}, f"{address}  schema version {VERSION}")


@click.command("prune", cls=AdminCommand)
@click.option("--older-than", "age", required=True, metavar="AGE", help="Such as 90d or 12w.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
def prune(admin: AdminContext, age: str, *, dry_run: bool, yes: bool) -> None:
    """Remove logs, diffs, artifacts and queue entries of turns that ended longer ago; runs and their turns are kept."""
    try:
        before = now_micros() - parse_duration(age)
    except ValueError as error:
        raise SetupError(f"--older-than: {error}") from error
    subject = f"the logs, diffs and artifacts of turns that ended before {rfc3339(before)}"
    if not (dry_run or yes) and os.isatty(0) and not click.confirm(f"Remove {subject}?", err=True):
        raise SetupError("nothing was removed: it was not confirmed")
    with admin.database() as database:
        # The database first, so that interrupting the slow part loses nothing.
        stored = prune_stored_files(database, before, dry_run=dry_run)
        files, size = prune_files(database, admin.folder, before, dry_run=dry_run)
        entries = forget_ended(database, before, dry_run=dry_run)
    if not dry_run:
        with admin.change("prune") as change:
            change.detail = f"data from before {rfc3339(before)}"
    counts = {"queue_entries": entries, "stored_files": stored, "files": files, "bytes": size}
    document = {"before": rfc3339(before), "dry_run": dry_run, **counts}
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} data from before {document['before']}",
        f"{'queue entries':24}{entries}",
        f"{'files in the database':24}{stored}",
        f"{'files here':24}{files}  {size / _MIB:.1f} MiB",
    ]
    admin.show(document, *lines)


def _check_database(admin: AdminContext) -> None:
    if admin.database_url is not None:
        raise SetupError("PostgreSQL has its own back-ups: pg_dump and pg_restore, as docs/run/upgrade.md says")


@click.command("backup", cls=AdminCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def backup(admin: AdminContext, file: Path) -> None:
    """Back a service on SQLite up into FILE (.tar.gz), even while it runs; only its owner may read the file."""
    _check_database(admin)
    made_at = now_micros() // SECOND_MICROS * SECOND_MICROS
    with admin.database() as database:
        try:
            number = backups.back_up(admin.folder, file.absolute(), made_at)
        except backups.BackupError:
            # Raised again within the change, so that the audit trail names the failed back-up.
            with admin.change("backup", database):
                raise
        with admin.change("backup", database) as change:
            change.target = file.name
    size = file.stat().st_size
    document = {"file": str(file.absolute()), "bytes": size, "made_at": rfc3339(made_at), "members": number}
    admin.show(document, f"{file}  {size / _MIB:.1f} MiB  the service as of {document['made_at']}")


@click.command("restore", cls=AdminCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Even over a service that is not empty: ALL of it is replaced.")
def restore(admin: AdminContext, file: Path, *, force: bool) -> None:
    """Restore a service on SQLite from FILE, while it is stopped; turns that had not ended are executed again."""
    _check_database(admin)
    counts = backups.restore(file.absolute(), admin.folder, operator(), force=force)
    document = {"data_dir": str(admin.folder.root)} | counts | {"made_at": rfc3339(counts["made_at"])}
    counted = f"{plural(counts['organizations'], 'organization')}, {plural(counts['runs'], 'run')}"
    lines = [
        f"restored as of {document['made_at']}",
        f"  {counted}, logs and diffs: {counts['files']}",
        f"  executed again: {plural(counts['queued_again'], 'turn')} that had not ended",
        "  tokens revoked, organizations deactivated and runs deleted since are back: do it again where it matters",
    ]
    admin.show(document, *lines)
