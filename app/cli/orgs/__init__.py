"""`runwarden orgs`: partner organizations, created once each (spec 4.1)."""

import click

from app.cli.options import Noun
from app.cli.orgs.create import create
from app.cli.orgs.importing import import_organizations
from app.cli.orgs.listing import list_organizations


@click.group(cls=Noun)
def orgs() -> None:
    """Create, import and list partner organizations."""


for command in (create, list_organizations, import_organizations):
    orgs.add_command(command)
