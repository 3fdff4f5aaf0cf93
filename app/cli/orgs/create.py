"""`orgs create`: one organization; the same email is refused while an earlier attempt's outcome is unknown."""

from typing import TYPE_CHECKING

import click

from app.cli.context import Invocation
from app.cli.documents import unsent_document
from app.cli.options import FactCommand
from app.cli.writes import carry_out, tell

if TYPE_CHECKING:
    from app.api.requests import CreateOrganization


@click.command("create", cls=FactCommand)
@click.argument("email")
@click.option("--offer-code", metavar="CODE", help="A partner offer code. Default: the standard trial.")
@click.option("--key", metavar="KEY", help="The same request under the same key is sent once.")
@click.pass_obj
def create(invocation: Invocation, /, *, email: str, offer_code: str | None, key: str | None) -> int:
    """Create an organization and invite EMAIL as its administrator. Each success makes another organization."""
    from app.api.requests import CreateOrganization

    invocation.beside_error = unsent_document("organization.create")
    request = CreateOrganization(email.strip(), offer_code)
    return invocation.run(lambda: _create(invocation, request, key))


async def _create(invocation: Invocation, request: "CreateOrganization", key: str | None) -> int:
    async with invocation.engine(needs_token=True) as engine:
        action = await carry_out(engine, request, key=key)
    return tell(invocation.output, action)
