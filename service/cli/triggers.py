"""`trigger`: rules by which deliveries of code hosts start runs, the decisions on deliveries, and pending ones."""

import click

from service.cli.output import AdminContext, admin_command, fields, line, operator, organization_option, owner_of
from service.clock import now_micros, rfc3339
from service.setup import SetupError, find_organization
from service.store import deliveries, repositories
from service.store.deliveries import WAITING
from service.triggers.receiver import ApprovalError, approve


@click.group("trigger")
def trigger() -> None:
    """Runs that pull requests and issues start."""


@trigger.command("list")
@organization_option
@admin_command
def list_all(admin: AdminContext, slug: str) -> None:
    """List the rules of an organization's repositories."""
    with admin.read() as connection:
        known = repositories.of(connection, find_organization(connection, slug).id)
    rules = [(one, rule) for one in known for rule in one.triggers]
    documents = [{"repository": f"{one.platform}:{one.path}"} | rule.model_dump(mode="json") for one, rule in rules]
    lines = [
        f"{one.platform}:{one.path}  {'/'.join(rule.on)} into {' '.join(rule.branches)}  {rule.agent}  "
        f"forks: {rule.forks}"
        for one, rule in rules
    ]
    admin.show({"triggers": documents}, lines)


@trigger.command("log")
@click.option("--org", "slug", help="An organization's slug or id; all of them if left out.")
@click.option("--waiting", is_flag=True, help="Only what waits for approval.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="How many entries.")
@admin_command
def log(admin: AdminContext, slug: str | None, limit: int, *, waiting: bool) -> None:
    """Show the decisions on deliveries, the latest at the end."""
    with admin.read() as connection:
        owner = owner_of(connection, slug)
        found = deliveries.latest(connection, limit, organization_id=owner, result=WAITING if waiting else None)
    documents = []
    lines = []
    names = "id organization_id number is_issue event sender result detail agent run_id delivery"
    for one in found:
        at = rfc3339(one.received_at)
        repository = f"{one.platform}:{one.path_key}"
        named = {"at": at, "repository": repository, "commit": one.head_sha}
        documents.append(fields(one, names) | named)
        number = f"issue {one.number}" if one.is_issue else one.number
        about = f"{repository} {number} {one.event} {one.head_sha[:12]} by {one.sender}"
        lines.append(line(at, one.id, about, one.result, one.agent, one.run_id, one.detail))
    admin.show({"deliveries": documents}, lines)


@trigger.command("approve")
@click.argument("entry_id")
@admin_command
def approve_one(admin: AdminContext, entry_id: str) -> None:
    """Start the run that a fork's head waits for, on exactly that commit; read the commit first."""
    settings = admin.folder.settings()
    with admin.change("trigger.approve") as change:
        try:
            run = approve(change.connection, entry_id, settings.limits.active_runs, operator(), now_micros())
        except ApprovalError as error:
            raise SetupError(f"{error}; list what waits with: runwarden service trigger log --waiting") from error
        change.target = entry_id
        change.organization_id = run.organization_id
        change.detail = run.id
    admin.show({"id": entry_id, "run_id": run.id, "status": run.status}, [f"{entry_id}  {run.id} {run.status}"])
