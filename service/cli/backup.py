"""`backup` and `restore`: one file with everything that a service cannot recreate."""

from pathlib import Path

import click

from service.cli.output import AdminContext, admin_command, operator
from service.clock import now_micros, rfc3339
from service.text import plural

_MIB = 1 << 20


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@admin_command
def backup(admin: AdminContext, file: Path) -> None:
    """Back the service up into FILE (.tar.gz), also while it runs; only its owner may read the file."""
    from service.backup.archive import BackupError
    from service.backup.backup import back_up

    with admin.database() as database:
        try:
            made = back_up(database, admin.folder, file.absolute(), now_micros)
        except BackupError:
            # Raised again within the change, so that the audit trail names the failed back-up.
            with admin.change("backup", database):
                raise
        with admin.change("backup", database) as change:
            change.target = file.name
    size = file.stat().st_size
    document = {
        "file": str(file.absolute()),
        "bytes": size,
        "made_at": rfc3339(made.made_at),
        "schema_version": made.schema_version,
        "members": len(made.members),
    }
    admin.show(document, [f"{file}  {size / _MIB:.1f} MiB  the service as of {document['made_at']}"])


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Also over a service that is not empty: ALL of it is replaced.")
@admin_command
def restore(admin: AdminContext, file: Path, *, force: bool) -> None:
    """Restore the service from FILE, while it is stopped; runs that had not ended are executed again."""
    from service.backup.restore import Restore

    made = Restore(file.absolute(), admin.folder, admin.database_url, operator(), now_micros).run(force=force)
    document = {
        "data_dir": str(admin.folder.root),
        "made_at": rfc3339(made.made_at),
        "organizations": made.organizations,
        "runs": made.runs,
        "queued_again": made.queued,
        "files": made.files,
    }
    lines = [
        f"restored as of {document['made_at']}",
        f"  {plural(made.organizations, 'organization')}, {plural(made.runs, 'run')}, logs and diffs: {made.files}",
        f"  executed again: {plural(made.queued, 'turn')} that had not ended"
        if made.queued
        else "  every turn had ended",
        "  tokens revoked, organizations deactivated and runs deleted since are back: do it again where it matters",
    ]
    admin.show(document, lines)
