"""Writes the reference of all commands from the commands themselves: `make reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from app.cli.main import root
from service.cli import main as service

PAGE: Final = Path(__file__).with_name("use") / "command-reference.md"
EVERYWHERE: Final = {"--json", "--output", "--data-dir", "--database"}
HEAD: Final = """# Command reference

`make reference` generates this page from the commands. `runwarden COMMAND --help` explains each option, and
`runwarden man` prints all of it. [Commands](commands.md) has JSON documents and exit codes.

Every command takes `--config`, `--profile`, `--data-dir`, `--read-only`, `--token-stdin`, `--verbose` and `--log-file`.
Commands that print facts take `--json` and `--output`. Those of `runwarden service` take `--data-dir`, `--database`,
`--json` and `--output`.
"""


def reference() -> str:
    """The page: a table for each group, with a row for each command."""
    parts = [HEAD]
    for title, group in (("runwarden", root), ("runwarden service", service)):
        parts += [f"## {title}\n", "| command | |\n|---|---|\n" + "".join(rows(group))]
    return "\n".join(parts)


def rows(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each command with its arguments, its options and the first sentence of its help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from rows(command, (*words, name))
        elif command is not None:
            usage = " ".join([*words, name, *filter(None, map(usage_of, command.params))])
            cells = (f"`{usage}`", command.get_short_help_str(200))
            yield "".join(f"| {cell.replace('|', chr(92) + '|')} " for cell in cells) + "|\n"


def usage_of(param: click.Parameter) -> str:
    """A parameter as the usage line shows it; nothing for one that every command takes."""
    value = param.make_metavar(click.Context(root)).replace("INTEGER RANGE", "N")
    if not isinstance(param, click.Option):
        return value
    name = max(param.opts, key=len)
    if param.hidden or name in EVERYWHERE:
        return ""
    shown = name if param.is_flag or param.count else f"{name} {value}"
    return shown if param.required else f"[{shown}]"


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
