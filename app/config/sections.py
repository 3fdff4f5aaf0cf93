"""The sections of the configuration that list the user's own things: keys, commands, automations and views."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from app.config.settings import Settings, UserCommand, ViewSettings
from app.config.table import ConfigTable
from storage.records.grouping import GROUPINGS

if TYPE_CHECKING:
    from app.rules.rule import Rule

COMMAND_PLACEHOLDERS: Final = ("run_id", "repository", "branch", "status", "profile", "base_url")
"""Placeholders in a command's arguments; the first four are facts of the run in focus."""
_SHOWN_KEYS: Final = 'Write it as in "C", "ctrl+l" or "f5"; several with commas between them.'


def read_keys(root: ConfigTable) -> dict[str, str]:
    """Read keys by the id of their action; the console checks that ids and keys exist.

    Raises:
        ConfigError: A value is not a key.
    """
    return dict(_keys(root.table("keys")))


def read_commands(root: ConfigTable) -> tuple[UserCommand, ...]:
    """Read the user's own programs, in the order of the file.

    Raises:
        ConfigError: Two have the same name, or an argument holds an unknown placeholder.
    """
    commands: list[UserCommand] = []
    for table in root.tables("commands"):
        command = _command(table)
        if command.name.casefold() in {other.name.casefold() for other in commands}:
            table.fail("name", "another command has this name.", "Rename one of them.")
        commands.append(command)
    return tuple(commands)


def _keys(table: ConfigTable) -> Iterator[tuple[str, str]]:
    # `run.continue = "C"` is a table within a table to TOML, and an id to people.
    for name, value in table.values.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{rest}", keys) for rest, keys in _keys(table.table(name)))
        else:
            yield name, _key(table, name)
    table.finish()


def _key(table: ConfigTable, name: str) -> str:
    keys = table.required_text(name)
    if keys != "".join(keys.split()):
        table.fail(name, "a key has no blanks in it.", _SHOWN_KEYS)
    return keys


def _command(table: ConfigTable) -> UserCommand:
    command = UserCommand(
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
        if name not in COMMAND_PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in COMMAND_PLACEHOLDERS)
            table.fail("argv", f"there is no placeholder {{{name}}}.", f"There are: {known}.")
    return command


def read_automations(root: ConfigTable, settings: Settings) -> tuple["Rule", ...]:
    """Read the automations, in the order of the file.

    Raises:
        ConfigError: A table holds a mistake, or names a profile or a route that is not there.
    """
    root.known.add("automations")
    if "automations" not in root.values:
        return ()
    from app.rules.read import read_rules  # imported only if there are automations: it needs a library for schedules

    profiles = [profile.name for profile in settings.profiles]
    return read_rules(root, profiles=profiles, routes=["default", *(route.name for route in settings.notify.routes)])


def read_views(root: ConfigTable) -> tuple[ViewSettings, ...]:
    """Read the views, in the order of the file.

    Raises:
        ConfigError: Two have the same name, or a query or an order is not valid.
    """
    views: list[ViewSettings] = []
    for table in root.tables("views"):
        view = _view(table)
        if view.name.casefold() in {other.name.casefold() for other in views}:
            table.fail("name", "another view has this name.", "Rename one of them.")
        views.append(view)
    return tuple(views)


def _view(table: ConfigTable) -> ViewSettings:
    from app.query import (
        parse,  # only where there are views: it is on the way to the first painted screen
        read_order,
    )

    name, query, order = table.required_text("name"), table.text("query", ""), table.optional_text("sort")
    group = table.optional_text("group")
    table.finish()
    if problems := parse(query, datetime.now(UTC)).problems:
        table.fail("query", f"at character {problems[0].start + 1}: {problems[0].message}", problems[0].cure)
    if group is not None and group not in GROUPINGS:
        table.fail("group", f"runs are not grouped by {group!r}.", f"Write {' or '.join(GROUPINGS)}.")
    try:
        return ViewSettings(name, query, None if order is None else read_order(order), group)
    except ValueError as error:
        table.fail("sort", f"{error}.", "Correct the column.")
