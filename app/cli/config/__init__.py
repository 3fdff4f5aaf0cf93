"""`runwarden config`: where the configuration is, whether it is valid, and how to create one."""

import os
from typing import TYPE_CHECKING

import click

from app.cli.config.edit import edit, set_value
from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand
from app.cli.output import Format
from app.cli.output.table import Column
from app.config import config_path, data_folder, example_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.config import Settings
    from app.console.keys.keymap import KeyFact


@click.group(cls=CommandGroup)
def config() -> None:
    """Show, check, create, edit or change the configuration file."""


config.add_command(edit)
config.add_command(set_value)


@config.command("path", cls=FactCommand)
@click.pass_obj
def show_path(invocation: Invocation) -> int:
    """Print the path of the configuration file; it need not exist."""
    path = config_path(invocation.config_file, os.environ)
    document = {"path": str(path), "exists": path.is_file()}
    if invocation.format is Format.TABLE:
        invocation.output.text(str(path))
    else:
        invocation.output.record(document, [("path", str(path)), ("exists", "yes" if document["exists"] else "no")])
    return Exit.DONE


@config.command("check", cls=FactCommand)
@click.pass_obj
def check(invocation: Invocation) -> int:
    """Check the configuration and show the settings in effect; nothing is sent."""
    settings = invocation.settings()
    profile = invocation.profile(settings)
    _refuse_bad_keys(settings)
    folder = data_folder(settings, profile)
    document = {
        "ok": True,
        "file": None if settings.file is None else str(settings.file),
        "profiles": [each.name for each in settings.profiles],
        "profile": profile.name,
        "base_url": profile.base_url,
        "read_only": profile.read_only,
        "data_folder": str(folder),
    }
    pairs = [
        ("file", document["file"] or "none: the environment alone"),
        ("profiles", ", ".join(each.name for each in settings.profiles)),
        ("profile", profile.name),
        ("base_url", profile.base_url),
        ("read_only", "yes" if profile.read_only else "no"),
        ("data_folder", str(folder)),
    ]
    invocation.output.record(document, [(label, str(value)) for label, value in pairs])
    return Exit.DONE


@config.command("keys", cls=FactCommand)
@click.pass_obj
def keys(invocation: Invocation) -> int:
    """List the ids for [keys], with their current keys."""
    from app.console.keys.keymap import catalog

    own = invocation.settings().keys
    facts = catalog()
    entries = [{"id": fact.id, "keys": _keys_of(fact, own), "does": fact.does} for fact in facts]
    invocation.output.listing(
        "keys",
        entries,
        facts,
        (
            Column("id", lambda fact: fact.id, "id"),
            Column("keys", lambda fact: " ".join(_keys_of(fact, own)), "keys"),
            Column("does", lambda fact: fact.does, "does", flexible=True),
        ),
    )
    return Exit.DONE


@config.command("init", cls=FactCommand)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def init(invocation: Invocation, *, force: bool) -> int:
    """Create the configuration file from the commented example, readable by you alone."""
    path = config_path(invocation.config_file, os.environ)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(example_text())
    except FileExistsError as error:
        raise failed(
            "config", f"{path} exists already. Edit it, or replace it with --force.", file=str(path)
        ) from error
    except OSError as error:
        raise failed("config", f"{path} cannot be written: {error.strerror}.", file=str(path)) from error
    invocation.output.record({"path": str(path), "created": True}, [("created", str(path))])
    invocation.output.note("Write your service's address into it, then: runwarden config check")
    return Exit.DONE


def _keys_of(fact: "KeyFact", own: "Mapping[str, str]") -> list[str]:
    return own[fact.id].split(",") if fact.id in own else list(fact.keys)


def _refuse_bad_keys(settings: "Settings") -> None:
    if not settings.keys and not any(command.key for command in settings.commands):
        return
    from app.console.keys.keymap import problems

    if found := problems(settings.keys, settings.commands):
        raise failed("config", " ".join((f"{settings.file}:", *found)), file=str(settings.file), problems=list(found))
