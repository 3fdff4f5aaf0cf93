"""`runwarden profiles` and `runwarden token`: the configured services, and whether their tokens work."""

from typing import TYPE_CHECKING

import click

from app.api.errors import ForbiddenError, NotAuthorizedError
from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Column
from app.config import ConfigError, Profile, Settings
from app.config.token import CommandToken, EnvToken, FileToken, KeyringToken, StreamToken, TokenSource

if TYPE_CHECKING:
    from collections.abc import Awaitable


@click.group(cls=CommandGroup)
def profiles() -> None:
    """List the configured services."""


@profiles.command("list", cls=FactCommand)
@click.pass_obj
def list_profiles(invocation: Invocation) -> int:
    """List every profile with its address and the source of its token."""
    settings = invocation.settings()
    chosen = _chosen(invocation, settings)
    columns: tuple[Column[Profile], ...] = (
        Column("profile", lambda p: p.name, "profile"),
        Column("default", lambda p: "yes" if p.name == chosen else "", "default"),
        Column("base_url", lambda p: p.base_url, "base_url", flexible=True),
        Column("token from", lambda p: token_origin(p.token), "token_from", flexible=True),
        Column("read_only", lambda p: "yes" if p.read_only else "no", "read_only"),
    )
    entries = [
        {
            "name": profile.name,
            "default": profile.name == chosen,
            "base_url": profile.base_url,
            "token_from": token_origin(profile.token),
            "read_only": profile.read_only,
        }
        for profile in settings.profiles
    ]
    invocation.output.listing(
        "profiles",
        entries,
        settings.profiles,
        columns,
        empty="No profile is configured. Create a file with: runwarden config init",
    )
    return Exit.DONE


def token_origin(source: TokenSource) -> str:
    """The source of a token, in words; never the token."""
    match source:
        case EnvToken():
            return f"environment variable {source.variable}"
        case FileToken():
            return f"file {source.path}"
        case CommandToken():
            return f"command {source.argv[0]}"
        case KeyringToken():
            return f"keyring entry {source.name}"
        case StreamToken():
            return "stdin"


def _chosen(invocation: Invocation, settings: Settings) -> str | None:
    try:
        return invocation.profile(settings).name
    except ConfigError:
        return None


@click.group(cls=CommandGroup)
def token() -> None:
    """Check the API token."""


@token.command("check", cls=FactCommand)
@async_command
async def check(invocation: Invocation, /) -> int:
    """Ask the service whether it accepts the token: exit code 0 if runs may be read, 4 if not.

    The API does not report when a token expires, or whether it may create organizations.
    """
    async with invocation.engine(needs_token=True) as engine:
        origin = token_origin(engine.profile.token)
        base_url = engine.profile.base_url
        facts = {"base_url": base_url, "token_from": origin}
        try:
            health = await _is_allowed(engine.client.health())
            runs = await _is_allowed(engine.client.list_runs(page_size=1))
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


async def _is_allowed(request: "Awaitable[object]") -> bool:
    try:
        await request
    except ForbiddenError:
        return False
    return True
