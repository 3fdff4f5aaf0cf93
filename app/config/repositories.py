"""`[repositories]`: where the repositories that runs name can be fetched from; nothing in it becomes a git option."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from app.config.settings import RepositoryAddress, ResultsSettings
from app.config.table import ConfigTable
from storage.records.repository import DEFAULT_PLATFORM, Repository

_PLACEHOLDERS: Final = ("path", "owner", "repo", "group", "project")
_WEB: Final = r"(https?|ssh|git|file)://([^/\s]*)(/\S*)"
_SCP: Final = r"(?:[\w.+-]+@)?[A-Za-z0-9\[][\w.:\[\]-]*:[^:\s-]\S*"
_NAME: Final = r"[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*(?:/[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*)+"
_EXAMPLE: Final = 'Write it as in "git@github.com:{path}.git", "https://git.example.com/{path}.git" or "~/src/api".'
_MOST_MEGABYTES: Final = 10_000_000


def read_repositories(table: ConfigTable) -> tuple[RepositoryAddress, ...]:
    """Read the addresses by their patterns, the most specific first.

    Raises:
        ConfigError: An address is not one that git may be given.
    """
    entries = [RepositoryAddress(_pattern(key), _address(table, key)) for key in table.values]
    return tuple(sorted(entries, key=_generality))


def read_results(table: ConfigTable) -> ResultsSettings:
    """Read the settings of a run's results.

    Raises:
        ConfigError: The table holds a mistake.
    """
    base = ResultsSettings()
    results = ResultsSettings(
        reviews=table.texts("reviews", base.reviews, may_be_empty=True),
        mirrors_mb=table.whole("mirrors_mb", base.mirrors_mb, least=1, most=_MOST_MEGABYTES),
    )
    table.finish()
    return results


def address_of(entries: tuple[RepositoryAddress, ...], repository: Repository) -> str | None:
    """The address of a repository; None: none is configured.

    Raises:
        ValueError: The service's name for it cannot be put into an address; the message says why.
    """
    name = f"{repository.platform or DEFAULT_PLATFORM}:{repository.path}".casefold()
    entry = next((each for each in entries if fnmatchcase(name, each.pattern)), None)
    if entry is None:
        return None
    if "{" not in entry.address:
        return entry.address
    if not re.fullmatch(_NAME, repository.path) or {".", ".."} & set(repository.path.split("/")):
        raise ValueError(f"The service calls the repository {repository.path!r}: no address is made of such a name.")
    return entry.address.format_map(_parts(repository.path))


def _parts(path: str) -> Mapping[str, str]:
    group, _, project = path.rpartition("/")
    return dict(zip(_PLACEHOLDERS, (path, group, project, group, project), strict=True))


def _pattern(key: str) -> str:
    return (key if ":" in key else f"{DEFAULT_PLATFORM}:{key}").casefold()


def _generality(entry: RepositoryAddress) -> tuple[bool, int]:
    """The sort key of a pattern: exact names first, then by the number of literal characters."""
    return any(sign in entry.pattern for sign in "*?["), -len(re.sub(r"[*?\[\]]", "", entry.pattern))


def _address(table: ConfigTable, key: str) -> str:
    address = table.required_text(key).strip()
    for name in re.findall(r"\{([^{}]*)\}", address):
        if name not in _PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in _PLACEHOLDERS)
            table.fail(key, f"there is no placeholder {{{name}}}.", f"There are: {known}.")
    if re.sub(r"\{\w+\}", "", address).count("{") or "}" in re.sub(r"\{\w+\}", "", address):
        table.fail(key, "a brace stands alone.", _EXAMPLE)
    if problem := _problem(address):
        table.fail(key, problem, _EXAMPLE)
    is_path = address.startswith(("/", "~", "./", "../"))
    return str(table.source.file.parent / Path(address).expanduser()) if is_path else address


def _problem(address: str) -> str | None:
    """Why an address must not be passed to git; None: it may."""
    if address.startswith("-") or not address.isprintable() or re.match(r"[\w.+-]+::", address):
        return "this would be an option or a program to git, not an address."
    if found := re.fullmatch(_WEB, address):
        login, at, host = found[2].rpartition("@")
        if ":" in login or (at and found[1].startswith("http")):
            return "an address holds no user or password: git asks your credential helper."
        if host.startswith("-") or "{" in host or bool(host) == (found[1] == "file"):
            return "a placeholder must not choose the host." if "{" in host else "this is not an address."
        return None
    if address.startswith(("/", "~", "./", "../")) or ("://" not in address and re.fullmatch(_SCP, address)):
        return None
    return "this is not an address."
