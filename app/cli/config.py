"""`runwarden config`: the configuration file; every change of it is checked before it is kept."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.atomic_file import replacing
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed
from app.cli.options import CommandGroup, FactCommand, ScreenCommand
from app.cli.output import Column, Format
from app.config import ConfigError, config_path, data_folder, example_text
from app.config.write import ChangedError, read_text, save

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from app.config import Settings
    from app.console.keys.keymap import KeyFact


@click.group(cls=CommandGroup)
def config() -> None:
    """Show, check, create, edit or change the configuration file."""


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


def _refuse_bad_keys(settings: "Settings") -> None:
    if not settings.keys and not any(command.key for command in settings.commands):
        return
    from app.console.keys.keymap import problems

    if found := problems(settings.keys, settings.commands):
        raise failed("config", " ".join((f"{settings.file}:", *found)), file=str(settings.file), problems=list(found))


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


def _keys_of(fact: "KeyFact", own: "Mapping[str, str]") -> list[str]:
    return own[fact.id].split(",") if fact.id in own else list(fact.keys)


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


@config.command("edit", cls=ScreenCommand)
@click.pass_obj
def edit(invocation: Invocation) -> int:
    """Open the configuration in $EDITOR, and keep what was saved if it is valid."""
    file = config_path(invocation.config_file, os.environ)
    before = read_text(file)
    text = before or example_text()
    while True:
        edited = click.edit(text, extension=".toml")
        if edited is None or edited == (before or "").replace("\r\n", "\n"):
            invocation.output.note("Nothing was changed.")
            return Exit.DONE
        text = edited
        try:
            save(file, before, text)
        except ChangedError as error:
            raise _rejected(file, text, why="Another program has changed it in the meantime.") from error
        except ConfigError as error:
            invocation.output.note(f"runwarden: {error}")
            if not (sys.stdin.isatty() and click.confirm("Edit it again?", default=True, err=True)):
                raise _rejected(file, text) from error
        else:
            invocation.output.note(f"Written to {file}.")
            return Exit.DONE


@config.command("set", cls=FactCommand)
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY, so that its default holds again.")
@click.pass_obj
def set_value(invocation: Invocation, /, *, key: str, value: str | None, unset: bool) -> int:
    """Set KEY, such as poll.runs_s or profiles.acme.read_only, to VALUE; comments and order of the file stay.

    VALUE is TOML (3, true, ["a"]); what is not TOML is taken as text.
    """
    if (value is None) != unset:
        raise failed("usage", "Give a VALUE, or --unset to remove the key.")
    from tomlkit import dumps, parse
    from tomlkit.exceptions import TOMLKitError

    file = config_path(invocation.config_file, os.environ)
    before = read_text(file)
    names = key.split(".")
    try:
        document = parse(before or example_text())
        _change(document, names, None if value is None else _toml(value))
        save(file, before, dumps(document))
    except TOMLKitError as error:
        raise failed("config", f"{file}: this is not TOML: {error}", file=str(file)) from error
    said = "unset" if value is None else value
    invocation.output.record({"file": str(file), "key": key, "value": value}, [("file", str(file)), (key, said)])
    return Exit.DONE


def _change(document: "MutableMapping[str, Any]", names: list[str], value: object) -> None:
    """Set a key of a document, or remove it where the value is None."""
    from tomlkit import table

    parent: Any = document
    for name in names[:-1]:
        if name not in parent:
            if value is None:
                return
            parent[name] = table()
        parent = parent[name]
        if not hasattr(parent, "keys"):
            raise failed("usage", f"{name} in {'.'.join(names)} is not a table: only keys of tables can be set.")
    if value is None:
        parent.pop(names[-1], None)
    else:
        parent[names[-1]] = value


def _toml(text: str) -> object:
    from tomlkit import string, value
    from tomlkit.exceptions import TOMLKitError

    try:
        return value(text)
    except (TOMLKitError, ValueError):
        return string(text)


def _rejected(file: Path, text: str, why: str = "It is not valid.") -> CommandFailedError:
    """Save the rejected text in `FILE.rejected`, and return the failure that names it."""
    beside = file.with_name(f"{file.name}.rejected")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(beside) as written:
        written.write(text)
    return failed("config", f"{file} was not changed. {why} Your text is in {beside}.", file=str(file))
