"""`[repositories]`: the addresses to fetch the repositories of runs from; nothing in it becomes a git option."""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from app.profiles.settings import RepositoryAddress
from app.profiles.table import Table
from storage.records.run import DEFAULT_PLATFORM, Repository

_PLACEHOLDERS: Final = ("path", "owner", "repo", "group", "project")
_WEB: Final = r"(https?|ssh|git|file)://([^/\s]*)(/\S*)"
_SCP: Final = r"(?:[\w.+-]+@)?[A-Za-z0-9\[][\w.:\[\]-]*:[^:\s-]\S*"
_NAME: Final = r"[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*(?:/[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]*)+"
_EXAMPLE: Final = 'Write it as in "git@github.com:{path}.git", "https://git.example.com/{path}.git" or "~/src/api".'
_PATHS: Final = ("/", "~", "./", "../")


def read_repositories(table: Table) -> tuple[RepositoryAddress, ...]:
    """Read the addresses and their patterns, the most specific first.

    Raises:
        ConfigError: An address is not one that git may be given.
    """
    entries = []
    for key in table.values:
        pattern = (key if ":" in key else f"{DEFAULT_PLATFORM}:{key}").casefold()
        address = table.get(key, str).strip()
        if problem := _problem(address):
            table.fail(key, problem, _EXAMPLE)
        if address.startswith(_PATHS):
            address = str(table.file.parent / Path(address).expanduser())
        entries.append(RepositoryAddress(pattern, address))
    # Exact names first, then by the number of literal characters.
    return tuple(
        sorted(
            entries,
            key=lambda one: (any(sign in one.pattern for sign in "*?["), -len(re.sub(r"[*?\[\]]", "", one.pattern))),
        )
    )


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
    group, _, project = repository.path.rpartition("/")
    return entry.address.format(path=repository.path, owner=group, repo=project, group=group, project=project)


def _problem(address: str) -> str | None:
    """Why an address must not be passed to git; None: it may."""
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", address) if name not in _PLACEHOLDERS]
    if unknown:
        return f"there is no placeholder {{{unknown[0]}}}, only {', '.join(f'{{{each}}}' for each in _PLACEHOLDERS)}."
    if set("{}") & set(re.sub(r"\{\w+\}", "", address)):
        return "a brace stands alone."
    if address.startswith("-") or not address.isprintable() or re.match(r"[\w.+-]+::", address):
        return "this would be an option or a program to git, not an address."
    if parts := re.fullmatch(_WEB, address):
        login, at, host = parts[2].rpartition("@")
        if ":" in login or (at and parts[1].startswith("http")):
            return "an address holds no user or password: git asks your credential helper."
        if "{" in host:
            return "a placeholder must not choose the host."
        return "this is not an address." if host.startswith("-") or bool(host) == (parts[1] == "file") else None
    if address.startswith(_PATHS) or ("://" not in address and re.fullmatch(_SCP, address)):
        return None
    return "this is not an address."
