"""`trigger`: rules by which deliveries of code hosts start runs, the decisions on deliveries, and pending ones."""

import click

from service.cli.output import AdminContext, admin_command, fields, line, operator, organization_option, owner_of
from service.clock import now_micros, rfc3339
from service.setup import SetupError, find_organization
from service.store import deliveries, repositories
from service.store.deliveries import NO_NUMBER, WAITING
from service.store.outages import clock_time
from service.triggers.receiver import ApprovalError, approve


@click.group("trigger")
def trigger() -> None:
    """Runs that pull requests, issues and schedules start."""


@trigger.command("list")
@organization_option
@admin_command
def list_all(admin: AdminContext, slug: str) -> None:
    """List the rules of an organization's repositories."""
    with admin.read() as connection:
        owner = find_organization(connection, slug).id
        known = repositories.of(connection, owner)
        schedules = repositories.scheduled(connection, owner)
    due = {(one.repository.name, one.index): one.next_times for one in schedules}
    documents, lines = [], []
    for one in known:
        for index, rule in enumerate(one.triggers):
            place, times = f"{one.platform}:{one.path}", due.get((one.name, index), [])
            documents.append({"repository": place, "next_times": [*map(rfc3339, times)]} | rule.model_dump(mode="json"))
            when = f"{'/'.join(rule.on)} into {' '.join(rule.branches)}"
            how = f"forks: {rule.forks}"
            if rule.schedule:
                when, how = f"{rule.schedule} ({rule.timezone})", f"next: {', '.join(map(clock_time, times))}"
            lines.append(f"{place}  {when}  {rule.agent}  {how}")
    admin.show({"triggers": documents}, lines)


@trigger.command("log")
@click.option("--org", "slug", help="An organization's slug or id; all of them if left out.")
@click.option("--waiting", is_flag=True, help="Only what waits for approval.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="How many entries.")
@admin_command
def log(admin: AdminContext, slug: str | None, limit: int, *, waiting: bool) -> None:
    """Show the decisions on deliveries and due times, the latest at the end."""
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
        about = f"{repository} {one.event} {one.cause}" if one.number == NO_NUMBER else about
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
