"""`[keys]` and `[[commands]]`: other keys for what the console does, and programs of the user's own."""

import re
from collections.abc import Iterator
from typing import Final

from app.config.settings import Command
from app.config.table import Table

PLACEHOLDERS: Final = ("run_id", "repository", "branch", "status", "profile", "base_url")
"""What may stand in braces in a command's arguments; the first four are those of the run in focus."""
_SHOWN_KEYS: Final = 'Write it as in "C", "ctrl+l" or "f5"; several with commas between them.'


def read_keys(root: Table) -> dict[str, str]:
    """Keys by what they do; whether there is such an id, and such a key, only the console knows.

    Raises:
        ConfigError: A value is no key.
    """
    return dict(_keys(root.table("keys")))


def read_commands(root: Table) -> tuple[Command, ...]:
    """The user's own programs, in the order of the file.

    Raises:
        ConfigError: Two have the same name, or an argument holds a placeholder that nobody fills in.
    """
    commands: list[Command] = []
    for table in root.tables("commands"):
        command = _command(table)
        if command.name.casefold() in {other.name.casefold() for other in commands}:
            table.fail("name", "another command has this name.", "Rename one of them.")
        commands.append(command)
    return tuple(commands)


def _keys(table: Table) -> Iterator[tuple[str, str]]:
    # `run.continue = "C"` is a table within a table to TOML, and an id to people.
    for name, value in table.values.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{rest}", keys) for rest, keys in _keys(table.table(name)))
        else:
            yield name, _key(table, name)
    table.finish()


def _key(table: Table, name: str) -> str:
    keys = table.required_text(name)
    if keys != "".join(keys.split()):
        table.fail(name, "a key has no blanks in it.", _SHOWN_KEYS)
    return keys


def _command(table: Table) -> Command:
    command = Command(
        name=table.required_text("name"),
        argv=table.texts("argv", ()),
        key=_key(table, "key") if "key" in table.values else None,
        confirm=table.flag("confirm", default=False),
        terminal=table.flag("terminal", default=False),
    )
    table.known.add("key")
    table.finish()
    if not command.argv:
        table.fail("argv", "this key is missing.", 'Add the program and its arguments: argv = ["less", "{run_id}.log"]')
    for name in re.findall(r"\{([^{}]*)\}", "\n".join(command.argv)):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            table.fail("argv", f"nobody fills in {{{name}}}.", f"There are: {known}.")
    return command
