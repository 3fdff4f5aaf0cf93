"""`runwarden config edit` and `config set`: changes of the configuration that are checked before they are kept."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.atomic_file import replacing
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed
from app.cli.options import FactCommand, ScreenCommand
from app.config import ConfigError, config_path, example_text

if TYPE_CHECKING:
    from collections.abc import MutableMapping


@click.command("edit", cls=ScreenCommand)
@click.pass_obj
def edit(invocation: Invocation) -> int:
    """Open the configuration in $EDITOR, and keep what was saved if it is valid."""
    file, before = _read(invocation)
    text = before or example_text()
    while True:
        edited = click.edit(text, extension=".toml")
        if edited is None or edited == before:
            invocation.output.note("Nothing was changed.")
            return Exit.DONE
        text = edited
        try:
            _keep(file, before, text)
        except ConfigError as error:
            invocation.output.note(f"runwarden: {error}")
            if not (sys.stdin.isatty() and click.confirm("Edit it again?", default=True, err=True)):
                raise _rejected(file, text) from error
        else:
            invocation.output.note(f"Written to {file}.")
            return Exit.DONE


@click.command("set", cls=FactCommand)
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

    file, before = _read(invocation)
    names = key.split(".")
    try:
        document = parse(before or example_text())
        _change(document, names, None if value is None else _toml(value))
        _keep(file, before, dumps(document))
    except TOMLKitError as error:
        raise failed("config", f"{file}: this is not TOML: {error}", file=str(file)) from error
    said = "unset" if value is None else value
    invocation.output.record({"file": str(file), "key": key, "value": value}, [("file", str(file)), (key, said)])
    return Exit.DONE


def _change(document: "MutableMapping[str, Any]", names: list[str], value: object) -> None:
    """Set a key of a document, or remove it where the value is None."""
    from tomlkit import table

    place: Any = document
    for name in names[:-1]:
        if name not in place:
            if value is None:
                return
            place[name] = table()
        place = place[name]
        if not hasattr(place, "keys"):
            raise failed("usage", f"{name} in {'.'.join(names)} is not a table: only keys of tables can be set.")
    if value is None:
        place.pop(names[-1], None)
    else:
        place[names[-1]] = value


def _toml(text: str) -> object:
    from tomlkit import string, value
    from tomlkit.exceptions import TOMLKitError

    try:
        return value(text)
    except (TOMLKitError, ValueError):
        return string(text)


def _read(invocation: Invocation) -> tuple[Path, str | None]:
    """The configuration file, with links resolved, and its text; None: there is none yet."""
    file = config_path(invocation.config_file, os.environ).resolve()
    try:
        return file, file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return file, None
    except (OSError, UnicodeError) as error:
        raise failed("config", f"{file} cannot be read: {error}.", file=str(file)) from error


def _keep(file: Path, before: str | None, text: str) -> None:
    """Replace the file by a valid text, unless another program has changed it in between.

    Raises:
        ConfigError: The text is not valid; the file is as it was.
    """
    from app.config.load import parse

    parse(file, text)
    try:
        now = file.read_text(encoding="utf-8") if file.exists() else None
        if now != before:
            raise _rejected(file, text, why="Another program has changed it in the meantime.")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(file) as written:
            written.write(text)
    except OSError as error:
        raise failed("config", f"{file} cannot be written: {error.strerror}.", file=str(file)) from error


def _rejected(file: Path, text: str, why: str = "It is not valid.") -> CommandFailedError:
    """The failure of an edit that was not kept: the work is in a file beside, and not lost."""
    beside = file.with_name(f"{file.name}.rejected")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(beside) as written:
        written.write(text)
    return failed("config", f"{file} was not changed. {why} Your text is in {beside}.", file=str(file))
