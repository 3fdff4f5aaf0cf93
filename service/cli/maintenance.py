"""`apply`, `migrate`, `prune`, `status`, `backup` and `restore`: a service as a whole."""

import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import sqlalchemy as sa

from service.cli.output import AdminContext, admin_command, elsewhere_option, fields, operator
from service.clock import SECOND_MICROS, now_micros, parse_duration, rfc3339
from service.execution.sandbox import NoSandboxError, find
from service.setup import Setup, SetupError, apply_setup
from service.store import invitations, workers
from service.store.schema import VERSION, runs
from service.text import plural

_MIB = 1 << 20
_ACTIONS: Final = {
    "agent": "agent.add",
    "host": "host.connect",
    "offer": "offer.add",
    "repository": "repository.add",
}
"""What an entry of a document is in the audit trail."""


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@elsewhere_option
@admin_command
def apply(admin: AdminContext, file: Path, *, elsewhere: bool) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    raw = sys.stdin.buffer.read() if from_stdin else file.read_bytes()
    try:
        document = json.loads(raw) if file.suffix == ".json" else tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error
    setup = Setup.model_validate(document)
    with admin.change("apply", create=True) as change:
        base = Path.cwd() if from_stdin else file.absolute().parent
        made = apply_setup(change.connection, setup, base, now_micros(), None if elsewhere else admin.folder.root)
        change.record("apply")
        acts = [("organization.create", one["id"], one["id"]) for one in made["organizations"] if one["created"]]
        for one in made["organizations"]:
            acts += [("token.create", token["id"], one["id"]) for token in one["tokens"] if token["value"] is not None]
        acts += [(_ACTIONS[one["kind"]], one["name"], one["organization"]) for one in made["applied"]]
        for action, change.target, change.organization_id in acts:
            change.record(action)
    made |= {"data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    admin.show(made, _apply_lines(made))


def _apply_lines(made: dict[str, Any]) -> list[str]:
    slugs = {one["id"]: one["slug"] for one in made["organizations"]}
    lines = []
    for organization in made["organizations"]:
        lines.append(f"{organization['slug']}  {'created' if organization['created'] else 'kept'}")
        lines += [f"  it differs from the file, and stays so; to change it: {one}" for one in organization["differs"]]
        lines += [f"  token {one['alias']}: {one['value'] or 'kept'}" for one in organization["tokens"]]
        urls = {f"{one['platform']}:{one['path']}": f"  {one['url']}" for one in organization["repositories"]}
        lines += [
            f"  {one['kind']} {one['name']}  {one['outcome']}{urls.get(one['name'], '')}"
            for one in made["applied"]
            if one["kind"] in {"host", "repository"} and one["organization"] == organization["id"]
        ]
    for one in made["applied"]:
        if one["kind"] in {"agent", "offer"}:
            owner = one["organization"]
            of = "" if owner is None else f" of {slugs.get(owner, owner)}"
            lines.append(f"{one['kind']} {one['name']}{of}  {one['outcome']}")
    return [*lines, f"applied to the service in {made['data_dir']}"]


@click.command("migrate")
@admin_command
def migrate(admin: AdminContext) -> None:
    """Create or upgrade the tables; `serve` and `worker` also do so when they start."""
    from service.execution.queue import migrate_queue  # dbos

    with admin.database(create=True) as database:
        migrate_queue(database)
        address = database.url.render_as_string(hide_password=True)
    admin.show({"database": address, "schema_version": VERSION}, [f"{address}  schema version {VERSION}"])


@click.command("prune")
@click.option("--older-than", "age", required=True, metavar="AGE", help="Such as 90d or 12w.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@admin_command
def prune(admin: AdminContext, age: str, *, dry_run: bool) -> None:
    """Remove logs, diffs and queue entries of turns that ended longer ago; runs and their turns are kept."""
    try:
        before = now_micros() - parse_duration(age)
    except ValueError as error:
        raise SetupError(f"--older-than: {error}") from error
    from service.execution.queue import forget_ended  # dbos
    from service.execution.retention import Pruner

    with admin.database() as database:
        pruner = Pruner(database, admin.folder, dry_run=dry_run)
        # The database first, so that interrupting the slow part loses nothing.
        stored = pruner.stored_files(before)
        files, size = pruner.files(before)
        entries = forget_ended(database, before, dry_run=dry_run)
    if not dry_run:
        with admin.change("prune") as change:
            change.detail = f"what ended before {rfc3339(before)}"
    counts = {"queue_entries": entries, "stored_files": stored, "files": files, "bytes": size}
    document = {"before": rfc3339(before), "dry_run": dry_run, **counts}
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} what ended before {document['before']}",
        f"{'queue entries':24}{entries}",
        f"{'files in the database':24}{stored}",
        f"{'files here':24}{files}  {size / _MIB:.1f} MiB",
    ]
    admin.show(document, lines)


@click.command("status")
@admin_command
def status(admin: AdminContext) -> None:
    """Show the sandbox and limits of agents, the workers alive, and the number of runs by status."""
    settings = admin.folder.settings().execution
    with admin.database() as database, database.read() as connection:
        counted = connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status))
        by_status: dict[str, int] = dict(counted.all())
        living = workers.heard_within(connection, int(settings.worker_ttl_s * SECOND_MICROS), now_micros)
        unsent = invitations.unsent_mails(connection)
        address = database.url.render_as_string(hide_password=True)
    try:
        sandbox = str(find(settings))
    except NoSandboxError as error:
        sandbox = f"required and missing: {error}"
    limits = settings.agent.model_dump()
    names = "executor host pid concurrency sandbox started_at seen_at"
    document = {
        "data_dir": str(admin.folder.root),
        "database": address,
        "sandbox": sandbox,
        "limits": limits,
        "workers": [fields(one, names) for one in living],
        "runs": by_status,
        "mails": unsent,
    }
    facts: list[tuple[str, object]] = [
        ("data folder", admin.folder.root),
        ("database", address),
        ("sandbox here", sandbox),
        ("limits here", ", ".join(f"{key} {value:.10g}" for key, value in limits.items())),
        ("workers", len(living)),
    ]
    lines = [f"{head:14}{value}" for head, value in facts]
    lines += [f"  {one.host} pid {one.pid}, {one.concurrency} at a time, sandbox: {one.sandbox}" for one in living]
    lines += [f"{status:14}{number}" for status, number in sorted(by_status.items())]
    lines += [f"{f'mails {state}':14}{number}" for state, number in unsent.items() if number]
    admin.show(document, lines)


def _check_database(admin: AdminContext) -> None:
    if admin.database_url is not None:
        raise SetupError("PostgreSQL has its own back-ups: pg_dump and pg_restore, as docs/operations.md says")


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@admin_command
def backup(admin: AdminContext, file: Path) -> None:
    """Back a service on SQLite up into FILE (.tar.gz), also while it runs; only its owner may read the file."""
    from service.backup import BackupError, back_up  # fastapi

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
    from service.backup import restore as restore_service  # fastapi

    _check_database(admin)
    made = restore_service(file.absolute(), admin.folder, operator(), force=force)
    document = {"data_dir": str(admin.folder.root)} | asdict(made) | {"made_at": rfc3339(made.made_at)}
    lines = [
        f"restored as of {document['made_at']}",
        f"  {plural(made.organizations, 'organization')}, {plural(made.runs, 'run')}, logs and diffs: {made.files}",
        f"  executed again: {plural(made.queued_again, 'turn')} that had not ended",
        "  tokens revoked, organizations deactivated and runs deleted since are back: do it again where it matters",
    ]
    admin.show(document, lines)
