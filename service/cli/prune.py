"""`prune`: what only operators look at goes when it is old: logs, diffs, and the queue's notes on turns that ended."""

import click

from service.cli.output import Desk, administers
from service.clock import now_micros, parse_duration, rfc3339
from service.setup import SetupError

_MIB = 1 << 20


@click.command("prune")
@click.option("--older-than", "age", required=True, metavar="AGE", help="Such as 90d or 12w.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@administers
def command(desk: Desk, age: str, *, dry_run: bool) -> None:
    """Remove logs, diffs and queue entries of turns that ended longer ago; runs and their turns stay."""
    try:
        before = now_micros() - parse_duration(age)
    except ValueError as error:
        raise SetupError(f"--older-than: {error}") from error
    with desk.database() as database:
        from service.execution.retention import Pruning

        pruning = Pruning(database, desk.folder, dry_run=dry_run)
        # The database first: what takes longest is not lost when somebody interrupts the rest.
        stored = pruning.stored_files(before)
        files, size = pruning.files(before)
        entries = pruning.queue(before)
    document = {
        "before": rfc3339(before),
        "dry_run": dry_run,
        "queue_entries": entries,
        "stored_files": stored,
        "files": files,
        "bytes": size,
    }
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} what ended before {document['before']}",
        f"{'queue entries':24}{entries}",
        f"{'files in the database':24}{stored}",
        f"{'files here':24}{files}  {size / _MIB:.1f} MiB",
    ]
    desk.show(document, lines)
