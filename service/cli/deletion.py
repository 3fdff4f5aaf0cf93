"""`run delete` and `org delete`: remove all data of a run or organization; leftovers on code hosts are reported."""

from typing import Final

import click

from service.cli.output import AdminContext, admin_command
from service.clock import now_micros
from service.setup import SetupError, find_organization
from service.store import deletions, repositories, runs, turns
from service.store.database import Database
from service.store.runs import FINAL
from service.text import plural

_WAIT_S: Final = 60.0
"""How long a deletion waits for a worker to stop a turn."""

_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_force = click.option("--force", is_flag=True, help="Also while it works: what works is cancelled first.")


def _confirm(name: str, what: str, *, yes: bool) -> None:
    if yes:
        return
    try:
        typed = click.prompt(f"This deletes {what} for good. Type {name} to go on", err=True)
    except click.Abort as error:
        raise SetupError("nothing was deleted: it was not confirmed; give --yes where there is no terminal") from error
    if typed.strip() != name:
        raise SetupError(f"nothing was deleted: what was typed is not {name}")


@click.command("delete")
@click.argument("run_id")
@_force
@_yes
@admin_command
def delete_run(admin: AdminContext, run_id: str, *, force: bool, yes: bool) -> None:
    """Delete a run: its turns, logs, diffs and queue entries. Its branch stays on the code host."""
    with admin.read() as connection:
        if runs.by_id(connection, run_id) is None:
            raise SetupError(f"there is no run {run_id!r} in this service; list them with: runwarden runs list")
    _confirm(run_id, f"the run {run_id}", yes=yes)
    with admin.change("run.delete") as change:
        found = runs.by_id(change.connection, run_id)
        if found is None:
            raise SetupError(f"there is no run {run_id!r} any longer")
        change.target, change.organization_id = run_id, found.organization_id
        if found.status not in FINAL and not force:
            raise SetupError(f"the run {run_id} is {found.status}; wait for its end, or cancel it with --force")
        deletions.delete_runs(change.connection, [run_id], now_micros())
    left = [(found.platform, found.path, found.branch)]
    _conclude(admin, {"run_id": run_id}, f"{run_id} deleted", left, webhooks=[])


@click.command("delete")
@click.argument("slug")
@_force
@_yes
@admin_command
def delete_organization(admin: AdminContext, slug: str, *, force: bool, yes: bool) -> None:
    """Delete an organization with all its data; branches and webhooks stay on its code hosts."""
    with admin.read() as connection:
        found = find_organization(connection, slug)
    _confirm(found.slug, f"the organization {found.slug} with all its runs", yes=yes)
    with admin.change("organization.delete") as change:
        find_organization(change.connection, found.id)
        change.target = change.organization_id = found.id
        active = deletions.active_runs(change.connection, found.id)
        if active and not force:
            raise SetupError(f"{found.slug} has {plural(active, 'active run')}: wait, or cancel with --force")
        left = deletions.branches_of(change.connection, found.id)
        known = repositories.of(change.connection, found.id)
        deletions.begin_organization(change.connection, found.id, now_micros())
        turns.cancel_all(change.connection, found.id, "cancelled: the organization was deleted", now_micros())
    webhooks = [(one.platform, one.path) for one in known if one.webhook_configured]
    _conclude(admin, {"id": found.id, "slug": found.slug}, f"{found.slug} deleted", left, webhooks)


def _conclude(
    admin: AdminContext,
    document: dict[str, object],
    line: str,
    branches: list[tuple[str, str, str]],
    webhooks: list[tuple[str, str]],
) -> None:
    """Remove leftovers in the queue and in the data folder, and report those elsewhere."""
    with admin.database() as database:
        held = _complete(admin, database)
    document |= {
        "state": "deleted" if held == 0 else "deleting",
        "left_on_code_hosts": {
            "branches": [dict(zip(("platform", "path", "branch"), one, strict=True)) for one in branches],
            "webhooks": [dict(zip(("platform", "path"), one, strict=True)) for one in webhooks],
        },
    }
    lines = [line]
    lines += [f"  a worker still holds {plural(held, 'turn')} and removes the rest afterwards"] if held else []
    lines += [f"  stays on the code host: branch {branch} of {platform}:{path}" for platform, path, branch in branches]
    lines += [f"  stays on the code host: webhook of {platform}:{path}" for platform, path in webhooks]
    admin.show(document, lines)


def _complete(admin: AdminContext, database: Database) -> int:
    from service.execution.retention import Deletion

    return Deletion(database, admin.folder, now_micros).complete(_WAIT_S)
