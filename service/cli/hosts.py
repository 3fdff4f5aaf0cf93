"""`host`: the code hosts an organization connected."""

from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros
from service.entries import HostEntry
from service.reference import PLATFORMS
from service.setup import connect_host, find_organization
from service.store import hosts
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
    with desk.write() as connection:
        found = hosts.of(connection, find_organization(connection, slug).id)
    desk.show({"hosts": [_document(one) for one in found]}, [_line(one) for one in found])
