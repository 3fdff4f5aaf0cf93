"""The `[[automations]]` tables as written: one is replaced or added, and every other byte of the file stays."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.atomic_file import alone, replacing
from app.config.load import parse, toml_values
from app.config.settings import ConfigError, Settings
from app.config.table import ConfigTable, Source
from app.config.write import write_errors

if TYPE_CHECKING:
    from app.rules.rule import Rule

_KEY: Final = "automations"
_ONE_TABLE: Final = "Write one [[automations]] table, and nothing else."


@dataclass(frozen=True, slots=True)
class AutomationTables:
    """One configuration file as it was read, and where its automations are written."""

    file: Path
    text: str
    spans: tuple[tuple[int, int], ...]
    """Beginning and end of each table, in the order of the file."""
    names: tuple[str, ...]

    def written(self, name: str) -> str:
        """The table of that name, as it is written.

        Raises:
            ConfigError: There is none.
        """
        start, end = self.spans[self._index(name)]
        return self.text[start:end].replace("\r\n", "\n")

    def with_table(self, name: str | None, written: str) -> str:
        """The file's text with the named table replaced by this one; without a name, this one is added at the end.

        Raises:
            ConfigError: The text is more than one table, or the file has no table of that name.
        """
        ending = "\r\n" if "\r\n" in self.text else "\n"
        table = ending.join([*written.strip().splitlines(), ""])
        if name is not None:
            start, end = self.spans[self._index(name)]
            return self._checked(f"{self.text[:start]}{table}{self.text[end:]}", self._index(name))
        at = self.spans[-1][1] if self.spans else len(self.text)
        before, rest = self.text[:at].rstrip(), self.text[at:]
        gap = ending * 2 if before else ""
        return self._checked(f"{before}{gap}{table}{ending if rest.strip() else ''}{rest.lstrip()}", len(self.spans))

    def _checked(self, after: str, index: int) -> str:
        """The text, if it differs from the file in that one table only."""
        old, new = toml_values(self.file, self.text), toml_values(self.file, after)
        were, are = (_array(values.pop(_KEY, [])) for values in (old, new))
        others = (*were[:index], *were[index + 1 :])
        if old != new or (*are[:index], *are[index + 1 :]) != others or len(are) != len(others) + 1:
            raise ConfigError("this is not one automation.", cure=_ONE_TABLE, file=self.file)
        return after

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ConfigError(f"there is no automation {name!r} any more.", cure="Read it again.", file=self.file)
        return self.names.index(name)


def read_tables(file: Path) -> AutomationTables:
    """Read the tables of a file.

    Raises:
        ConfigError: It cannot be read, or its automations are written in a way that cannot be edited here.
    """
    from tomlkit.exceptions import TOMLKitError

    text = _read(file)
    held = _array(toml_values(file, text).get(_KEY, []))
    spans: tuple[tuple[int, int], ...] = ()
    with suppress(TOMLKitError):  # tomlkit refuses some valid TOML: no spans are found, which is reported below.
        spans = tuple(_spans(text))
    if [toml_values(file, text[start:end]).get(_KEY) for start, end in spans] != [[each] for each in held]:
        raise ConfigError("these automations are not tables of their own.", cure="Edit the file itself.", file=file)
    return AutomationTables(file, text, spans, tuple(str(each.get("name", "")) for each in held))


def read_rule(written: str, settings: Settings, others: Sequence[str] = ()) -> "Rule":
    """Read the text of one automation's table; lines in errors count from the beginning of this text.

    Raises:
        ConfigError: It holds a mistake, or one of the others has its name.
    """
    from app.rules.read import read_rules

    source = Source(Path("automation"), written)
    values = toml_values(source.file, written)
    if set(values) != {_KEY} or len(_array(values[_KEY])) != 1:
        raise ConfigError("this is not one automation.", cure=_ONE_TABLE)
    routes = ["default", *(route.name for route in settings.notify.routes)]
    profiles = [profile.name for profile in settings.profiles]
    (rule,) = read_rules(ConfigTable(source, values), profiles=profiles, routes=routes)
    if rule.name.casefold() in {name.casefold() for name in others}:
        raise ConfigError("another automation has this name.", cure="Choose another name.", key="name")
    return rule


def with_enabled(written: str, *, is_on: bool) -> str:
    """A table with its key `enabled` set, which is added below the name where it is missing."""
    from tomlkit import boolean, key, parse

    document = parse(f"{written.rstrip()}\n")
    (table,) = document[_KEY]
    if "enabled" in table:
        table["enabled"] = is_on
    else:
        keys = [name and name.key for name, _ in table.value.body]
        below = keys.index("name") + 1 if "name" in keys else 0
        table.value.body.insert(below, (key("enabled"), boolean(str(is_on).lower())))
    return document.as_string()


def save_table(tables: AutomationTables, name: str | None, written: str) -> Settings:
    """Write the table into the file, and return the settings that it then holds.

    Raises:
        ConfigError: The file changed since it was read, cannot be written, or would not be valid; it was not touched.
    """
    # Keep a symbolic link, as a configuration in git often is one.
    target = tables.file.resolve()
    after = tables.with_table(name, written)
    with write_errors(target), alone(target.parent):
        if _read(tables.file) != tables.text:
            raise ConfigError("this changed since it was read.", cure="Open the automation again.", file=tables.file)
        settings = parse(tables.file, after)
        with replacing(target) as file:
            file.write(after)
    return settings


def _read(file: Path) -> str:
    try:
        # `read_text` would change the file's line endings.
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"this cannot be read: {error.strerror}.", cure="Correct that.", file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigError("this is not UTF-8 text.", cure="Save it as UTF-8.", file=file) from error


def _array(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """The tables, each from its header to the end of its last statement; comments after that belong to what follows.

    The first table that tomlkit does not reproduce byte for byte ends them.
    """
    from tomlkit import document, parse
    from tomlkit.items import AoT

    end = 0
    tables = parse(text).get(_KEY)
    for table in tables if isinstance(tables, AoT) else ():
        _strip_end(table)
        only_table = document()
        only_table.append(_KEY, AoT([table]))
        body = "\n" + only_table.as_string().partition("\n")[2]
        found = text.find(body, end)
        if found < 0:
            return
        end = found + len(body)
        # The table's span begins with its header, the line above its body.
        yield text.rfind("\n", 0, found) + 1, end


def _strip_end(last: object) -> None:
    """Remove the trailing comments and blank lines of a table.

    If it ends with a nested table, they belong to that one and are removed there.
    """
    from tomlkit.items import AoT, Table

    while isinstance(last, Table):
        body = last.value.body
        while body and body[-1][0] is None:
            body.pop()
        last = body[-1][1] if body else None
        if isinstance(last, AoT):
            last = last.body[-1]
