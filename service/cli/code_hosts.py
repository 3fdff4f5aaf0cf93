"""`host`, `repository` and `trigger`: connected code hosts, configured repositories, and the runs their rules start."""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from service.cli.output import INLINE, AdminContext, AdminGroup, Row, fields_of, line, operator, org_option, owner_of
from service.clock import now_micros, rfc3339
from service.hosts.health import HealthProbes
from service.hosts.tokens import HostTokens
from service.reference import ALIASES, PLATFORMS, without_login
from service.setup import HostEntry, RepositoryEntry, SetupError, add_repository, connect_host, find_organization
from service.store import deliveries, hosts, repositories
from service.store.deliveries import NO_NUMBER, WAITING
from service.store.hosts import PROBES, Host
from service.store.outages import clock_time
from service.store.repositories import Repository
from service.triggers.receiver import ApprovalError, approve

host = AdminGroup("host", help="Connected code hosts.")
repository = AdminGroup("repository", help="Configured repositories.")
trigger = AdminGroup("trigger", help="Runs that pull requests, issues and schedules start.")
_PLATFORM: Final = click.option(
    "--platform",
    type=click.Choice([*PLATFORMS, *ALIASES]),
    required=True,
    callback=lambda _context, _option, name: ALIASES.get(name, name),
)


def _row(row: Host | Repository) -> Row:
    # Only git may see the login in an address.
    document = {name: without_login(value) if isinstance(value, str) else value for name, value in asdict(row).items()}
    if isinstance(row, Host):
        # What it answered last is in the health document.
        del document["status"], document["token_told"]
        return document, f"{row.platform}  {row.host}  probe {row.probe}  {row.api_url or row.clone_url}"
    document["triggers"] = [rule.model_dump(mode="json") for rule in row.triggers]
    document["setup"] = None if row.setup is None else row.setup.model_dump(mode="json")
    return document, f"{row.name}  {row.platform}:{row.path}  {without_login(row.url)}"


@host.command("connect")
@org_option
@_PLATFORM
@click.option("--host", help="Its name in repository URLs.")
@click.option("--group", help="The groups or owners to accept, separated by commas; default: all of the host.")
@click.option("--probe", type=click.Choice(PROBES), default="api", show_default=True)
@click.option("--api-url", help="Its HTTP API; the public one if left out.")
@click.option("--clone-url", help="How a repository is cloned, with {path} in it.")
@click.option("--token-env", help="The service's environment variable that holds the host's token.")
@click.option("--token-command", type=INLINE, help='Prints a token: a list in TOML, such as \'["vault", "read"]\'.')
@click.option("--app", type=INLINE, help='A GitHub App in TOML: { id = 1, key_file = "app.pem", installation_id = 2 }.')
@click.option("--rotate", is_flag=True, default=None, help="Rotate GitLab's token before it expires.")
@click.option("--token-ends", help="The day on which that token expires, such as 2027-01-31.")
def connect(admin: AdminContext, slug: str, **options: Any) -> None:
    """Connect a code host, in place of the one connected on that platform."""
    entry = HostEntry.model_validate({name: value for name, value in options.items() if value is not None})
    with admin.change("host.connect") as change:
        host = connect_host(change.connection, change.of(slug), entry, now_micros())
        change.target = f"{host.platform} {host.host}"
    admin.show(*_row(host))


@host.command("check")
@org_option
def check(admin: AdminContext, slug: str) -> None:
    """Check an organization's code hosts and show why one is not ok; exit status 1 unless all are.

    The tokens are read from this command's environment, which may differ from that of the service.
    """
    with admin.database() as database:
        with database.read() as connection:
            organization = find_organization(connection, slug)
            connected = hosts.of(connection, organization.id)
            known = repositories.of(connection, organization.id)
        if not connected:
            raise SetupError(f"{organization.slug} has no code host; connect one with: runwarden service host connect")
        # The table shows the problems that a service would log.
        logging.getLogger("service").addHandler(logging.NullHandler())
        with closing(HealthProbes(HostTokens(database), admin.folder.settings().probing)) as probes:
            verdicts = probes.ask(connected, known)
    rows = list[Row]()
    for row in connected:
        status = verdicts[row.platform].status
        reason = verdicts[row.platform].reason
        document = {"platform": row.platform, "host": row.host, "status": status, "reason": reason}
        rows.append((document, f"{row.platform}  {row.host}  {status}  {reason or ''}".rstrip()))
    admin.show_rows("hosts", rows)
    if any(verdict.status != "ok" for verdict in verdicts.values()):
        raise SystemExit(1)


@host.command("disconnect")
@org_option
@_PLATFORM
def disconnect(admin: AdminContext, slug: str, platform: str) -> None:
    """Disconnect a code host; configured repositories stay, and so does the trial that it started."""
    _remove(admin, slug, platform, hosts.disconnect, action="host.disconnect", noun=f"{platform} host")
    admin.show({"platform": platform, "state": "disconnected"}, f"{platform} disconnected")


@host.command("list")
@org_option
def list_hosts(admin: AdminContext, slug: str) -> None:
    """List an organization's code hosts."""
    with admin.read() as connection:
        rows = hosts.of(connection, find_organization(connection, slug).id)
    admin.show_rows("hosts", map(_row, rows))


@repository.command("add")
@click.argument("name")
@org_option
@_PLATFORM
@click.option("--path", required=True, help="owner/repo or group/project.")
@click.option("--url", help="What git clones: a URL or a folder; the connected host's clone URL if left out.")
@click.option("--protect", "patterns", multiple=True, help="A pattern of branches no run may work on; may be repeated.")
@click.option("--trigger", "triggers", multiple=True, type=INLINE, help="A rule: { agent = …, instructions = … }.")
@click.option("--setup", type=INLINE, help='The setup for an agent: { run = ["npm ci"], cache = ["node_modules"] }.')
@click.option("--no-triggers", is_flag=True, help="Let no delivery of the code host start a run.")
@click.option("--webhook-secret-env", help="The variable with the secret of this repository's webhook.")
@click.option("--protect-nothing", is_flag=True, help="Let runs work on every branch, the default one too.")
def add(admin: AdminContext, name: str, slug: str, *, protect_nothing: bool, no_triggers: bool, **options: Any) -> None:
    """Configure a repository, or change the one with its path; rules and secret are kept unless given."""
    patterns = options.pop("patterns") or None
    triggers = options.pop("triggers") or None
    options |= {"protected": () if protect_nothing else patterns, "triggers": () if no_triggers else triggers}
    entry = RepositoryEntry.model_validate({"name": name, **options})
    with admin.change("repository.add") as change:
        organization = change.of(slug)
        repository = add_repository(change.connection, organization, entry, Path.cwd(), now_micros())
        change.target = f"{repository.platform}:{repository.path}"
    admin.show(*_row(repository))


@repository.command("remove")
@click.argument("name")
@org_option
def remove(admin: AdminContext, name: str, slug: str) -> None:
    """Remove a repository; its runs stay, and the repository itself is not touched."""
    _remove(admin, slug, name, repositories.remove, action="repository.remove", noun=f"repository {name!r}")
    admin.show({"name": name, "state": "removed"}, f"{name} removed")


@repository.command("list")
@org_option
def list_repositories(admin: AdminContext, slug: str) -> None:
    """List an organization's repositories."""
    with admin.read() as connection:
        rows = repositories.of(connection, find_organization(connection, slug).id)
    admin.show_rows("repositories", map(_row, rows))


def _remove(admin: AdminContext, slug: str, name: str, remove: Callable[..., bool], *, action: str, noun: str) -> None:
    with admin.change(action) as change:
        organization = change.of(slug)
        if not remove(change.connection, organization.id, name):
            raise SetupError(
                f"{organization.slug} has no {noun}; "
                f"list them with: runwarden service {action.partition('.')[0]} list --org {organization.slug}"
            )
        change.target = name


@trigger.command("list")
@org_option
def list_rules(admin: AdminContext, slug: str) -> None:
    """List the rules of an organization's repositories."""
    with admin.read() as connection:
        owner = find_organization(connection, slug).id
        connected = repositories.of(connection, owner)
        schedules = repositories.all_schedules(connection, owner)
    due = {(row.repository.name, row.index): row.next_times for row in schedules}
    rows = list[Row]()
    for row in connected:
        for index, rule in enumerate(row.triggers):
            place = f"{row.platform}:{row.path}"
            times = due.get((row.name, index), [])
            document = {"repository": place, "next_times": [*map(rfc3339, times)]} | rule.model_dump(mode="json")
            when = f"{'/'.join(rule.on)} into {' '.join(rule.branches)}"
            detail = f"forks: {rule.forks}"
            if rule.schedule:
                when = f"{rule.schedule} ({rule.timezone})"
                detail = f"next: {', '.join(map(clock_time, times))}"
            rows.append((document, f"{place}  {when}  {rule.agent}  {detail}"))
    admin.show_rows("triggers", rows)


@trigger.command("log")
@click.option("--org", "slug", help="An organization's slug or id; all of them if left out.")
@click.option("--waiting", is_flag=True, help="Only what waits for approval.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="How many entries.")
def list_deliveries(admin: AdminContext, slug: str | None, limit: int, *, waiting: bool) -> None:
    """Show the decisions on deliveries and due times, the latest at the end."""
    with admin.read() as connection:
        owner = owner_of(connection, slug)
        rows = deliveries.latest(connection, limit, organization_id=owner, result=WAITING if waiting else None)
    shown = list[Row]()
    for row in rows:
        at = rfc3339(row.received_at)
        repository = f"{row.platform}:{row.path_key}"
        document = fields_of(row, "id", "organization_id", "number", "is_issue", "event", "sender", "result", "detail")
        document |= fields_of(row, "agent", "run_id", "delivery")
        document |= {"at": at, "repository": repository, "commit": row.head_sha}
        number = f"issue {row.number}" if row.is_issue else row.number
        about = f"{repository} {number} {row.event} {row.head_sha[:12]} by {row.sender}"
        about = f"{repository} {row.event} {row.cause}" if row.number == NO_NUMBER else about
        shown.append((document, line(at, row.id, about, row.result, row.agent, row.run_id, row.detail)))
    admin.show_rows("deliveries", shown)


@trigger.command("approve")
@click.argument("entry_id")
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
    admin.show({"id": entry_id, "run_id": run.id, "status": run.status}, f"{entry_id}  {run.id} {run.status}")
