"""Writes the reference of all commands from the commands themselves: `make reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from app.cli.main import root
from service.cli import main as service

PAGE: Final = Path(__file__).with_name("use") / "command-reference.md"
EVERYWHERE: Final = {"--json", "--output", "--data-dir", "--database"}
LONG: Final = 80
"""Characters of a help text from which on only its first clause is shown."""
TYPES: Final = {"TEXT", "INTEGER", "FLOAT"}
HEAD: Final = """# Command reference

`make reference` generates this page from the commands. `runwarden COMMAND --help` explains each option, and
`runwarden man` prints all of it. [Commands](commands.md) has JSON documents and exit codes.

Every command takes `--config`, `--profile`, `--data-dir`, `--read-only`, `--token-stdin`, `--verbose` and `--log-file`.
Commands that print facts take `--json` and `--output`. Those of `runwarden service` take `--data-dir`, `--database`,
`--json` and `--output`. An option with `=` takes a value.
"""


def reference() -> str:
    """The page: a list for each group, with a line for each command."""
    parts = [HEAD]
    for title, group in (("runwarden", root), ("runwarden service", service)):
        parts += [f"## {title}\n", "".join(lines(group))]
    return "\n".join(parts)


def lines(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each command with its arguments, its options and the first statement of its help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from lines(command, (*words, name))
        elif command is not None:
            usage = " ".join([*words, name, *filter(None, map(usage_of, command.params))])
            said = command.get_short_help_str(200)
            said = said if len(said) <= LONG else said.partition(";")[0].removesuffix(".") + "."
            yield f"- `{usage}`: {said}\n"


def usage_of(param: click.Parameter) -> str:
    """A parameter as in the usage line, without the type of its value; nothing for one that every command takes."""
    value = param.make_metavar(click.Context(root)).replace("INTEGER RANGE", "N")
    if not isinstance(param, click.Option):
        return value
    name = max(param.opts, key=len)
    if param.hidden or name in EVERYWHERE:
        return ""
    value = "" if value.split()[0] in TYPES else value
    flag = param.is_flag or param.count
    shown = name if flag else f"{name}={value}" if name.startswith("--") else f"{name} {value}"
    return shown if param.required else f"[{shown}]"


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
