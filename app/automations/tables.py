"""The `[[automations]]` tables as text: replaces or adds one with tomlkit, and leaves the rest of the file alone.

Whatever cannot be read, found or changed raises `ConfigError`; the file is then left as it was.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tomlkit
from msgspec import Struct
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from app.automations.read_rules import read_rules
from app.automations.rule import Rule
from app.profiles.load import read_text, toml_values
from app.profiles.settings import ConfigError, Settings
from app.profiles.table import Table
from app.profiles.write import save

_KEY: Final = "automations"


class AutomationTables(Struct, frozen=True):
    """A configuration file as read, and the names of its automations."""

    file: Path
    text: str
    names: tuple[str, ...]

    def table_text(self, name: str) -> str:
        """The text of the table of that name, with the comments below it."""
        index = self._index(name)
        only_table = tomlkit.document()
        only_table.append(_KEY, AoT([self._parse()[1][index]]))
        return only_table.as_string().replace("\r\n", "\n").strip() + "\n"

    def save(self, name: str | None, written: str) -> Settings:
        """Replace the named rule's table in the file by `written`, or add it at the end; return the new settings."""
        ending = "\r\n" if "\r\n" in self.text else "\n"
        table_text = ending.join([*written.strip().splitlines(), ""])
        _parse_one(table_text)
        document, tables = self._parse()
        if name is not None:
            index = self._index(name)
            before = tables[index].as_string()
            # Blank lines below a table belong to it.
            below = before[len(before.rstrip()) :].removeprefix(ending)
            tables[index] = tomlkit.parse(table_text + below)[_KEY][0]
        elif tables:
            last = tables[-1].as_string()
            is_last = document.as_string().rstrip().endswith(last.rstrip())
            table = tomlkit.parse(table_text if is_last else table_text + ending)[_KEY][0]
            table.trivia.indent = "" if last.endswith(ending * 2) else ending
            tables.append(table)
        else:
            document.append(_KEY, tomlkit.parse(table_text)[_KEY])
        return save(self.file, self.text, document.as_string())

    def _parse(self) -> tuple[TOMLDocument, AoT]:
        fix = "Edit the file itself."
        try:
            document = tomlkit.parse(self.text)
            tables = document.get(_KEY, AoT([]))
        except TOMLKitError as error:  # It refuses some valid TOML.
            raise ConfigError(f"this cannot be edited here: {error}.", fix=fix, file=self.file) from error
        if not isinstance(tables, AoT) or len(tables) != len(self.names):
            raise ConfigError("these automations are not separate tables.", fix=fix, file=self.file)
        return document, tables

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ConfigError(f"there is no automation {name!r} any more.", fix="Read it again.", file=self.file)
        return self.names.index(name)


def read_tables(file: Path) -> AutomationTables:
    text = read_text(file) or ""
    tables = toml_values(file, text).get(_KEY)
    items = tables if isinstance(tables, list) else []
    return AutomationTables(file, text, tuple(str(table.get("name", "")) for table in items if isinstance(table, dict)))


def read_rule(written: str, settings: Settings, others: Sequence[str] = ()) -> Rule:
    """Read the text of one automation's table; line numbers in errors are relative to this text."""
    (rule,) = read_rules(Table(Path("automation"), written, _parse_one(written)), settings)
    if rule.name.casefold() in {name.casefold() for name in others}:
        raise ConfigError("another automation has this name.", fix="Choose another name.", key="name")
    return rule


def _parse_one(text: str) -> dict[str, object]:
    """The values of a text that consists of exactly one automation."""
    values = toml_values(Path("automation"), text)
    match values:
        case {"automations": [dict()], **rest} if not rest:
            return values
    raise ConfigError("this is not one automation.", fix="Write one [[automations]] table, and nothing else.")
