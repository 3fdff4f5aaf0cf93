"""`apply`, `migrate`, `prune` and `status`: a service as a whole."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import sqlalchemy as sa

from service.cli.output import AdminAct, AdminContext, admin_command, elsewhere_option
from service.clock import SECOND_MICROS, now_micros, parse_duration, rfc3339
from service.execution.sandbox import NoSandboxError, find
from service.settings import ExecutionSettings
from service.setup import Setup, SetupError, apply_setup, find_organization
from service.store import agents, hosts, invitations, organizations, repositories, trials, workers
from service.store.schema import VERSION, runs
from service.store.workers import Worker

_MIB = 1 << 20
_Inventory = dict[tuple[str, str | None, str], object]


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@elsewhere_option
@admin_command
def apply(admin: AdminContext, file: Path, *, elsewhere: bool) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    document = _parse(sys.stdin.buffer.read() if from_stdin else file.read_bytes(), file)
    setup = Setup.model_validate(document)
    with admin.change("apply", create=True) as change:
        base = Path.cwd() if from_stdin else file.absolute().parent
        before = _inventory(change.connection, setup)
        made = apply_setup(change.connection, setup, base, now_micros(), None if elsewhere else admin.folder.root)
        made["applied"] = _applied(change.connection, setup, made, before)
        _record(change, setup, made)
    made |= {"data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    admin.show(made, _apply_lines(made))


def _inventory(connection: sa.Connection, setup: Setup) -> _Inventory:
    """Return the existing things that a document can name, by kind, organization id and name."""
    held: _Inventory = {("agent", owner, one.name): one for owner, one in agents.all_of(connection)}
    held |= {("offer", None, one.code): one for one in trials.all_offers(connection)}
    for entry in setup.organizations:
        if found := organizations.by_slug(connection, entry.slug or organizations.slug_of(entry.name)):
            held |= {("host", found.id, one.platform): one for one in hosts.of(connection, found.id)}
            known = repositories.of(connection, found.id)
            held |= {("repository", found.id, f"{one.platform}:{one.path}".lower()): one for one in known}
    return held


def _applied(
    connection: sa.Connection, setup: Setup, made: dict[str, Any], before: _Inventory
) -> list[dict[str, str | None]]:
    """Return the outcome of each entry of the document: added, changed or unchanged."""
    after = _inventory(connection, setup)
    named: list[tuple[str, str | None, str]] = []
    for agent in setup.agents:
        owner = None if agent.organization is None else find_organization(connection, agent.organization).id
        named.append(("agent", owner, agent.name))
    named += [("offer", None, offer.code) for offer in setup.offers]
    for one in made["organizations"]:
        named += [("host", one["id"], platform) for platform in one["hosts"]]
        named += [("repository", one["id"], f"{known['platform']}:{known['path']}") for known in one["repositories"]]
    outcomes = []
    for kind, owner, name in named:
        key = (kind, owner, name.lower() if kind == "repository" else name)
        outcome = "added" if key not in before else "unchanged" if before[key] == after[key] else "changed"
        outcomes.append({"kind": kind, "name": name, "organization": owner, "outcome": outcome})
    return outcomes


def _record(change: AdminAct, setup: Setup, made: dict[str, Any]) -> None:
    """Record in the audit trail everything that was created or set."""
    change.record("apply")
    for one in made["organizations"]:
        change.organization_id = one["id"]
        entries = [("organization.create", one["id"])] if one["created"] else []
        entries += [("token.create", token["id"]) for token in one["tokens"] if token["value"] is not None]
        entries += [("host.connect", platform) for platform in one["hosts"]]
        entries += [("repository.add", f"{known['platform']}:{known['path']}") for known in one["repositories"]]
        for action, target in entries:
            change.target = target
            change.record(action)
    change.organization_id = None
    named = [("offer.add", offer.code) for offer in setup.offers]
    named += [("agent.add", agent.name) for agent in setup.agents]
    for action, target in named:
        change.target = target
        change.record(action)


def _parse(raw: bytes, file: Path) -> Any:
    try:
        text = raw.decode("utf-8")
        return json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error


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
    with admin.database(create=True) as database:
        from service.execution.queue import migrate_queue

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
    with admin.database() as database:
        from service.execution.queue import forget_ended
        from service.execution.retention import Pruner

        pruner = Pruner(database, admin.folder, dry_run=dry_run)
        # The database first, so that interrupting the slow part loses nothing.
        stored = pruner.stored_files(before)
        files, size = pruner.files(before)
        entries = forget_ended(database, before, dry_run=dry_run)
    if not dry_run:
        with admin.change("prune") as change:
            change.detail = f"what ended before {rfc3339(before)}"
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
    document = {
        "data_dir": str(admin.folder.root),
        "database": address,
        "sandbox": _sandbox(settings),
        "limits": settings.agent.model_dump(),
        "workers": [_worker(one) for one in living],
        "runs": by_status,
        "mails": unsent,
    }
    admin.show(document, _status_lines(document))


def _sandbox(settings: ExecutionSettings) -> str:
    try:
        return str(find(settings))
    except NoSandboxError as error:
        return f"required and missing: {error}"


def _worker(one: Worker) -> dict[str, object]:
    return {
        "executor": one.executor,
        "host": one.host,
        "pid": one.pid,
        "concurrency": one.concurrency,
        "sandbox": one.sandbox,
        "started_at": rfc3339(one.started_at),
        "seen_at": rfc3339(one.seen_at),
    }


def _status_lines(document: dict[str, Any]) -> list[str]:
    heads = {"data folder": "data_dir", "database": "database", "sandbox here": "sandbox"}
    lines = [f"{head:14}{document[key]}" for head, key in heads.items()]
    lines += [f"{'limits here':14}{', '.join(f'{key} {value:.10g}' for key, value in document['limits'].items())}"]
    lines += [f"{'workers':14}{len(document['workers'])}"]
    for one in document["workers"]:
        lines.append(f"  {one['host']} pid {one['pid']}, {one['concurrency']} at a time, sandbox: {one['sandbox']}")
    lines += [f"{status:14}{number}" for status, number in sorted(document["runs"].items())]
    return [*lines, *(f"{f'mails {state}':14}{number}" for state, number in document["mails"].items() if number)]
