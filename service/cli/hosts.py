"""`host`: the code hosts an organization connected."""

from contextlib import closing
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros
from service.entries import HostEntry
from service.hosts.health import HealthProbes
from service.reference import PLATFORMS
from service.setup import SetupError, connect_host, find_organization
from service.store import hosts, repositories
from service.store.hosts import PROBES, Host


@click.group("host")
def command() -> None:
    """Connected code hosts."""


def _document(one: Host) -> dict[str, Any]:
    return {field: getattr(one, field) for field in Host.__slots__}


def _line(one: Host) -> str:
    return f"{one.platform}  {one.host}  probe {one.probe}  {one.api_url or one.clone_url}"


@command.command("connect")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@click.option("--platform", type=click.Choice(PLATFORMS), required=True)
@click.option("--host", help="Its name in repository URLs.")
@click.option("--group", help="The GitLab group.")
@click.option("--probe", type=click.Choice(PROBES), default="api", show_default=True)
@click.option("--api-url", help="Its HTTP API; the public one if left out.")
@click.option("--clone-url", help="How a repository is cloned, with {path} in it.")
@click.option("--token-env", help="The service's environment variable that holds the host's token.")
@administers
def connect(desk: Desk, slug: str, **options: str | None) -> None:
    """Connect a code host, in place of the one connected on that platform."""
    entry = HostEntry.model_validate(options)
    with desk.write() as connection:
        made = connect_host(connection, find_organization(connection, slug), entry, now_micros())
    desk.show(_document(made), [_line(made)])


@command.command("list")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@administers
def list_all(desk: Desk, slug: str) -> None:
    """List an organization's code hosts."""
    with desk.read() as connection:
        found = hosts.of(connection, find_organization(connection, slug).id)
    desk.show({"hosts": [_document(one) for one in found]}, [_line(one) for one in found])


@command.command("check")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@administers
def check(desk: Desk, slug: str) -> None:
    """Ask an organization's code hosts how they are, and say why; exit status 1 unless all are ok.

    The tokens are read from this command's environment, which may differ from that of the service.
    """
    with desk.read() as connection:
        organization = find_organization(connection, slug)
        connected = hosts.of(connection, organization.id)
        known = repositories.of(connection, organization.id)
    if not connected:
        raise SetupError(f"{organization.slug} has no code host; connect one with: runwarden service host connect")
    with closing(HealthProbes(desk.folder.settings().probing)) as probes:
        found = probes.ask(connected, known)
    documents = [
        {"platform": one.platform, "host": one.host, "status": verdict.status, "reason": verdict.reason}
        for one, verdict in ((one, found[one.platform]) for one in connected)
    ]
    lines = [f"{one['platform']}  {one['host']}  {one['status']}  {one['reason'] or ''}".rstrip() for one in documents]
    desk.show({"hosts": documents}, lines)
    if any(verdict.status != "ok" for verdict in found.values()):
        raise SystemExit(1)


@command.command("disconnect")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@click.option("--platform", type=click.Choice(PLATFORMS), required=True)
@administers
def disconnect(desk: Desk, slug: str, platform: str) -> None:
    """Forget a code host; configured repositories stay, and so does the trial that it started."""
    with desk.write() as connection:
        organization = find_organization(connection, slug)
        if not hosts.disconnect(connection, organization.id, platform):
            raise SetupError(
                f"{organization.slug} has no {platform} host; "
                f"list them with: runwarden service host list --org {organization.slug}"
            )
    desk.show({"platform": platform, "state": "disconnected"}, [f"{platform} disconnected"])
