"""`backup` and `restore`: one file with everything that a service on SQLite cannot recreate."""

from dataclasses import asdict
from pathlib import Path

import click

from service.cli.output import AdminContext, admin_command, operator
from service.clock import SECOND_MICROS, now_micros, rfc3339
from service.setup import SetupError
from service.text import plural


def _check_database(admin: AdminContext) -> None:
    if admin.database_url is not None:
        raise SetupError("PostgreSQL has its own back-ups: pg_dump and pg_restore, as docs/operations.md says")


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@admin_command
def backup(admin: AdminContext, file: Path) -> None:
    """Back a service on SQLite up into FILE (.tar.gz), also while it runs; only its owner may read the file."""
    from service.backup import BackupError, back_up

    _check_database(admin)
    made_at = now_micros() // SECOND_MICROS * SECOND_MICROS
    with admin.database() as database:
        try:
            number = back_up(admin.folder, file.absolute(), made_at)
        except BackupError:
            # Raised again within the change, so that the audit trail names the failed back-up.
            with admin.change("backup", database):
                raise
        with admin.change("backup", database) as change:
            change.target = file.name
    size = file.stat().st_size
    document = {"file": str(file.absolute()), "bytes": size, "made_at": rfc3339(made_at), "members": number}
    admin.show(document, [f"{file}  {size / (1 << 20):.1f} MiB  the service as of {document['made_at']}"])


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Also over a service that is not empty: ALL of it is replaced.")
@admin_command
def restore(admin: AdminContext, file: Path, *, force: bool) -> None:
    """Restore a service on SQLite from FILE, while it is stopped; turns that had not ended are executed again."""
    from service.backup import restore

    _check_database(admin)
    made = restore(file.absolute(), admin.folder, operator(), force=force)
    document = {"data_dir": str(admin.folder.root)} | asdict(made) | {"made_at": rfc3339(made.made_at)}
    lines = [
        f"restored as of {document['made_at']}",
        f"  {plural(made.organizations, 'organization')}, {plural(made.runs, 'run')}, logs and diffs: {made.files}",
        f"  executed again: {plural(made.queued_again, 'turn')} that had not ended",
        "  tokens revoked, organizations deactivated and runs deleted since are back: do it again where it matters",
    ]
    admin.show(document, lines)
