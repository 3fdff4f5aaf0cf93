"""`runwarden config edit` and `config set`: changes of the configuration file that leave it valid."""

import os
import sys
from pathlib import Path

import click
from tomlkit import dumps, parse, string, table
from tomlkit import value as toml_value
from tomlkit.exceptions import TOMLKitError

from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed
from app.cli.options import FactCommand, ScreenCommand
from app.engine.atomic_file import replacing
from app.profiles import ConfigError, config_path, example_text
from app.profiles.load import read_text
from app.profiles.write import ChangedError, save


@click.command("edit", cls=ScreenCommand)
@click.pass_obj
def edit(invocation: Invocation) -> int:
    """Open the configuration in $EDITOR, and keep the saved file if it is valid."""
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


@click.command("set", cls=FactCommand)
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY, so that its default holds again.")
@click.pass_obj
def set_value(invocation: Invocation, /, *, key: str, value: str | None, unset: bool) -> int:
    """Set KEY, such as poll.runs_s or profiles.acme.read_only, to VALUE; comments and order of the file stay.

    VALUE is TOML (3, true, ["a"]); anything else is taken as text.
    """
    if (value is None) != unset:
        raise failed("usage", "Give a VALUE, or --unset to remove the key.")
    file = config_path(invocation.config_file, os.environ)
    before = read_text(file)
    *names, last = key.split(".")
    try:
        document = parent = parse(before or example_text())
        for name in names:
            if name not in parent and value is not None:
                parent[name] = table()
            parent = parent.get(name, {})
            if not hasattr(parent, "keys"):
                raise failed("usage", f"{name} in {key} is not a table: only keys of tables can be set.")
        if value is None:
            parent.pop(last, None)
        else:
            try:
                parent[last] = toml_value(value)
            except (TOMLKitError, ValueError):
                parent[last] = string(value)
        save(file, before, dumps(document))
    except TOMLKitError as error:
        raise failed("config", f"{file}: this is not TOML: {error}", file=str(file)) from error
    shown = "unset" if value is None else value
    invocation.output.record({"file": str(file), "key": key, "value": value}, [("file", str(file)), (key, shown)])
    return Exit.DONE


def _rejected(file: Path, text: str, why: str = "It is not valid.") -> CommandFailedError:
    """Save the rejected text in `FILE.rejected`, and return the failure that names it."""
    beside = file.with_name(f"{file.name}.rejected")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(beside) as written:
        written.write(text)
    return failed("config", f"{file} was not changed. {why} Your text is in {beside}.", file=str(file))
