"""`repository`: repositories that work by name, wherever they are cloned from."""

from pathlib import Path
from typing import Any

import click

from service.cli.output import Desk, administers
from service.clock import now_micros
from service.entries import RepositoryEntry
from service.reference import PLATFORMS
from service.setup import SetupError, add_repository, find_organization
from service.store import repositories
from service.store.repositories import Repository


@click.group("repository")
def command() -> None:
    """Configured repositories."""


def _document(one: Repository) -> dict[str, Any]:
    return {field: getattr(one, field) for field in Repository.__slots__}


def _line(one: Repository) -> str:
    return f"{one.name}  {one.platform}:{one.path}  {one.url}"


@command.command("add")
@click.argument("name")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@click.option("--platform", type=click.Choice(PLATFORMS), required=True)
@click.option("--path", required=True, help="owner/repo or group/project.")
@click.option("--url", help="What git clones: a URL or a folder; the connected host's clone URL if left out.")
@administers
def add(desk: Desk, name: str, slug: str, **options: str | None) -> None:
    """Configure a repository, or change the one at its path."""
    entry = RepositoryEntry.model_validate({"name": name, **options})
    with desk.write() as connection:
        organization = find_organization(connection, slug)
        made = add_repository(connection, organization, entry, Path.cwd(), now_micros())
    desk.show(_document(made), [_line(made)])


@command.command("list")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@administers
def list_all(desk: Desk, slug: str) -> None:
    """List an organization's repositories."""
    with desk.read() as connection:
        found = repositories.of(connection, find_organization(connection, slug).id)
    desk.show({"repositories": [_document(one) for one in found]}, [_line(one) for one in found])


@command.command("remove")
@click.argument("name")
@click.option("--org", "slug", required=True, help="The organization's slug or id.")
@administers
def remove(desk: Desk, name: str, slug: str) -> None:
    """Forget a repository; its runs stay, and the repository itself is not touched."""
    with desk.write() as connection:
        organization = find_organization(connection, slug)
        if not repositories.remove(connection, organization.id, name):
            raise SetupError(
                f"{organization.slug} has no repository {name!r}; "
                f"list them with: runwarden service repository list --org {organization.slug}"
            )
    desk.show({"name": name, "state": "removed"}, [f"{name} removed"])
