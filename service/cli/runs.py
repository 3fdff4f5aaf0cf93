"""`run`: a run's turns, their logs and diffs; cancelling and deleting one, and deleting an organization."""

from typing import Final, Literal

import click
from sqlalchemy import Connection

from service.cli.output import AdminCommand, AdminContext, AdminGroup, fields_of, line, operator, owner_of, require
from service.clock import now_micros
from service.setup import SetupError, find_organization
from service.store import deletions, dispatch, organizations, postings, repositories, runs, turn_files, turns
from service.store.runs import FINAL, OPEN, Filters, Run
from service.store.turn_files import MAX_LOG
from service.text import plural

_WAIT_S: Final = 60.0
"""How long a deletion waits for a worker to stop a turn."""

_SHOWN: Final = 100
_AT_ONCE: Final = 100
"""Runs that are cancelled in one transaction."""
_COLUMNS: Final = ("run_id", "status", "organization", "repository", "branch_name", "agent", "created_at")
_Rows = list[dict[str, str]]
_org = click.option("--org", "slug", help="Only this organization's.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_force = click.option("--force", is_flag=True, help="Even while it works: it is cancelled first.")


class _RunGroup(AdminGroup):
    """A group for which `run ID` means `run show ID`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_command = args[0] in self.commands
        return super().resolve_command(ctx, args if is_command else ["show", *args])


run = _RunGroup("run", help="Show a run's turns, its log or its diff (`run ID`); cancel or delete a run.")


@run.command("list")
@_org
@click.option("--status", type=click.Choice([*OPEN, *FINAL]), help="Only of this status.")
@click.option("--limit", default=_SHOWN, show_default=True, type=click.IntRange(1))
def list_runs(admin: AdminContext, slug: str | None, status: str | None, limit: int) -> None:
    """List runs, newest first."""
    with admin.read() as connection:
        filters = Filters(owner_of(connection, slug), status)
        page = runs.page(connection, filters, None, limit)
        count = runs.count(connection, filters)
        names = {row.id: row.slug for row in organizations.all_of(connection)}
    documents: list[dict[str, object]] = [
        fields_of(row, "status", "agent", "turn", "created_at", "updated_at")
        | {"run_id": row.id, "organization": names[row.organization_id]}
        | {"repository": f"{row.platform}:{row.path}", "branch_name": row.branch}
        for row in page
    ]
    texts = [line(*map(document.get, _COLUMNS)) for document in documents]
    admin.show({"runs": documents, "total_count": count}, *texts, f"{len(page)} of {plural(count, 'run')}")


@run.command("cancel")
@click.argument("run_id", required=False)
@_org
@click.option("--status", type=click.Choice(OPEN), help="All that are queued, or all that work.")
@_yes
def cancel(admin: AdminContext, run_id: str | None, slug: str | None, status: str | None, *, yes: bool) -> None:
    """End an active run as failed, or all of an organization or status.

    Their agents are stopped, and nothing is pushed.
    """
    if (run_id is None) == (slug is None and status is None):
        raise SetupError("name a run, or choose active runs with --org or --status")
    if run_id is None:
        with admin.read() as connection:
            chosen = runs.active(connection, Filters(owner_of(connection, slug), status), None)
        try:
            agreed = yes or not chosen or click.confirm(f"Cancel {plural(len(chosen), 'run')}?", err=True)
        except click.Abort:
            agreed = False
        if not agreed:
            raise SetupError("nothing was cancelled: it was not confirmed; give --yes where there is no terminal")
        cancelled: list[str] = []
        for start in range(0, len(chosen), _AT_ONCE):
            with admin.change("run.cancel") as change:
                run_turns = [(row.id, row.turn) for row in chosen[start : start + _AT_ONCE]]
                cancelled += turns.cancel_each(change.connection, run_turns, status, operator(), now_micros)
                change.is_recorded = True
        admin.show({"cancelled": cancelled}, f"{plural(len(cancelled), 'run')} cancelled")
        return
    with admin.change("run.cancel") as change:
        run = _required_run(change.connection, run_id)
        change.target, change.organization_id = run_id, run.organization_id
        if not turns.cancel(change.connection, run_id, "cancelled by the operator", now_micros()):
            raise SetupError(f"the run {run_id} has ended already: it is {run.status}")
        run_now = _required_run(change.connection, run_id)
    admin.show({"run_id": run_id, "status": run_now.status}, f"{run_id}  {run_now.status}: cancelled")


def _required_run(connection: Connection, run_id: str) -> Run:
    return require(runs.by_id(connection, run_id), "run", run_id, "runs list")


@run.command("show")
@click.argument("run_id")
@click.option("--log", "what", flag_value="log", help="What happened, turn by turn.")
@click.option("--diff", "what", flag_value="diff", help="What each turn committed.")
@click.option("--turn", "number", type=click.IntRange(1), help="This turn alone.")
def show(admin: AdminContext, run_id: str, what: Literal["log", "diff"] | None, number: int | None) -> None:
    """Show a run's turns, its log or its diff."""
    with admin.read() as connection:
        run = _required_run(connection, run_id)
        settings = admin.folder.settings().execution
        conversation = dispatch.explain_turns(connection, run, settings, now_micros, for_operator=True)
        chosen = [turn for turn in conversation if number in {None, turn.number}]
        posted = [posting.document() for posting in postings.of_run(connection, run_id)]
        if not chosen:
            raise SetupError(f"the run {run_id} has no turn {number}; it has {run.turn}")
        pieces = []
        for key in [(turn.run_id, turn.number) for turn in chosen]:
            log = None
            if what == "log":
                log = turn_files.log_piece(connection, admin.folder, key, 0, MAX_LOG)
            diff = None
            if what == "diff":
                diff = turn_files.diff(connection, admin.folder, key, "diff")
            pieces.append((log and log.data) or diff or b"")
    names = "status", "attempt", "summary", "failure", "failure_kind", "outcome", "reason", "caller", "finished_at"
    documents = [fields_of(turn, *names) | {"turn": turn.number, "commit": turn.commit_sha} for turn in chosen]
    texts = [
        line(f"turn {turn.number}", turn.outcome or turn.status, turn.commit_sha or "-", turn.reason or turn.summary)
        for turn in chosen
    ]
    if what == "diff" and admin.format == "table" and any(pieces):
        # As the bytes are, for git apply.
        for turn, patch in zip(chosen, pieces, strict=True):
            file = admin.folder.turn_file(run_id, turn.number, "diff")
            click.echo(f"turn {turn.number}: {file if file.exists() else 'in the database'}", err=True)
            click.echo(patch, nl=False)
        return
    if what is None:
        texts += [f"{row['kind']}  {row['state']}  {row['url'] or ''}  {row['reason'] or ''}" for row in posted]
    else:
        shown = [patch.decode("utf-8", "replace").rstrip("\n") for patch in pieces]
        documents = [document | {what: text} for document, text in zip(documents, shown, strict=True)]
        none = "nothing changed, it was pruned, or it is kept on the worker's machine"
        texts = [
            text
            or f"turn {turn.number}  {turn.status}: no {what} here ({none if turn.attempt else 'not executed yet'})"
            for turn, text in zip(chosen, shown, strict=True)
        ]
    head = {"run_id": run.id, "status": run.status, "branch_name": run.branch, "agent": run.agent}
    admin.show(head | {"turns": documents, "postings": posted}, *texts)


def _confirm(name: str, subject: str, *, yes: bool) -> None:
    if yes:
        return
    try:
        typed = click.prompt(f"This deletes {subject} permanently. Type {name} to continue", err=True)
    except click.Abort as error:
        raise SetupError("nothing was deleted: it was not confirmed; give --yes where there is no terminal") from error
    if typed.strip() != name:
        raise SetupError(f"nothing was deleted: the typed name is not {name}")


@run.command("delete")
@click.argument("run_id")
@_force
@_yes
def delete_run(admin: AdminContext, run_id: str, *, force: bool, yes: bool) -> None:
    """Delete a run: its turns, logs, diffs and queue entries. Its branch stays on the code host."""
    with admin.read() as connection:
        _required_run(connection, run_id)
    _confirm(run_id, f"the run {run_id}", yes=yes)
    with admin.change("run.delete") as change:
        run = _required_run(change.connection, run_id)
        change.target, change.organization_id = run_id, run.organization_id
        if run.status not in FINAL and not force:
            raise SetupError(f"the run {run_id} is {run.status}; wait until it finishes, or cancel it with --force")
        left = deletions.branches_of(change.connection, run.organization_id, run_id)
        deletions.delete_runs(change.connection, [run_id], now_micros())
    _conclude(admin, {"run_id": run_id}, f"{run_id} deleted", left, webhooks=[])


@click.command("delete", cls=AdminCommand)
@click.argument("slug")
@_force
@_yes
def delete_organization(admin: AdminContext, slug: str, *, force: bool, yes: bool) -> None:
    """Delete an organization with all its data; branches and webhooks stay on its code hosts."""
    with admin.read() as connection:
        organization = find_organization(connection, slug)
    _confirm(organization.slug, f"the organization {organization.slug} with all its runs", yes=yes)
    with admin.change("organization.delete") as change:
        change.target, change.detail = change.of(organization.id).id, f"{organization.slug}: {organization.name}"
        active = runs.count(change.connection, Filters(organization.id), only_active=True)
        if active and not force:
            raise SetupError(f"{organization.slug} has {plural(active, 'active run')}: wait, or cancel with --force")
        left = deletions.branches_of(change.connection, organization.id)
        connected = repositories.of(change.connection, organization.id)
        deletions.begin_organization(change.connection, organization.id, now_micros())
        turns.cancel_all(change.connection, organization.id, "cancelled: the organization was deleted", now_micros())
    webhooks = [{"platform": row.platform, "path": row.path} for row in connected if row.webhook_configured]
    _conclude(admin, {"id": organization.id, "slug": organization.slug}, f"{organization.slug} deleted", left, webhooks)


def _conclude(admin: AdminContext, document: dict[str, object], head: str, branches: _Rows, webhooks: _Rows) -> None:
    """Remove leftovers in the queue and in the data folder, and report those elsewhere."""
    from service.execution.retention import complete_deletions  # dbos

    with admin.database() as database:
        at_work = complete_deletions(database, admin.folder, now_micros, _WAIT_S)
    state = "deleting" if at_work else "deleted"
    left_there = {"branches": branches, "webhooks": webhooks}
    document |= {"state": state, "left_on_code_hosts": left_there}
    lines = [head]
    lines += [f"  a worker still holds {plural(at_work, 'turn')} and removes the rest afterwards"] if at_work else []
    left = "  stays on the code host:"
    lines += [f"{left} branch {branch['branch']} of {branch['platform']}:{branch['path']}" for branch in branches]
    lines += [f"{left} webhook of {webhook['platform']}:{webhook['path']}" for webhook in webhooks]
    admin.show(document, *lines)
