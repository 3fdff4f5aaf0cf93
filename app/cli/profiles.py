"""`runwarden profiles`: the services that are configured."""

import click

from app.cli.context import Invocation
from app.cli.exits import Exit
from app.cli.options import FactCommand, Noun
from app.cli.table import Column
from app.config import ConfigError, Profile, Settings
from app.token import CommandToken, EnvToken, FileToken, KeyringToken, StreamToken, TokenSource


@click.group(cls=Noun)
def profiles() -> None:
    """List the configured services."""


@profiles.command("list", cls=FactCommand)
@click.pass_obj
def list_profiles(invocation: Invocation) -> int:
    """List every profile: its address, and where its token comes from."""
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
        empty="No profile is configured. Make a file with: runwarden config init",
    )
    return Exit.DONE


def token_origin(source: TokenSource) -> str:
    """Where a token is read from, in words; never the token."""
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
