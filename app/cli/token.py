"""`runwarden token`: whether the profile's token works, and for what."""

from typing import TYPE_CHECKING

import click

from app.api.errors import ForbiddenError, NotAuthorizedError
from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.options import FactCommand, Noun
from app.cli.profiles import token_origin

if TYPE_CHECKING:
    from app.engine import Engine


@click.group(cls=Noun)
def token() -> None:
    """Check the API token."""


@token.command("check", cls=FactCommand)
@click.pass_obj
def check(invocation: Invocation, /) -> int:
    """Ask the service whether it takes the token: exit code 0 if runs may be read, 4 if not.

    The API does not tell when a token expires, nor whether it may create organizations.
    """
    return invocation.run(lambda: _check(invocation))


async def _check(invocation: Invocation) -> int:
    async with invocation.engine(needs_token=True) as engine:
        origin = token_origin(engine.profile.token)
        base_url = engine.profile.base_url
        facts = {"base_url": base_url, "token_from": origin}
        try:
            health = await _may(engine, "health")
            runs = await _may(engine, "runs")
        except NotAuthorizedError:
            invocation.beside_error = {"valid": False, **facts, "runs": False, "health": False}
            raise
    document = {"valid": True, **facts, "runs": runs, "health": health}
    pairs = [
        ("token", "accepted"),
        ("service", base_url),
        ("token from", origin),
        ("runs", "allowed" if runs else "not allowed: it needs scope admin"),
        ("health", "allowed" if health else "not allowed"),
    ]
    invocation.output.record(document, pairs)
    return Exit.DONE if runs else Exit.NOT_AUTHORIZED


async def _may(engine: "Engine", what: str) -> bool:
    try:
        if what == "runs":
            await engine.client.list_runs(page_size=1)
        else:
            await engine.client.health()
    except ForbiddenError:
        return False
    return True
