"""Completion of values from local data: names, statuses, repositories and runs, in bash, zsh and fish."""

import os
import shlex
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem, split_arg_string

from app.cli.context import Invocation
from app.cli.running import run
from app.profiles import CACHE_FILE, ConfigError, data_folder
from storage.errors import StorageError
from storage.records import STATUS_ORDER, RunFilter

VARIABLE: Final = "_RUNWARDEN_COMPLETE"
"""Set by the shells' scripts; click answers it."""
NEWEST: Final = 200
Items = list[CompletionItem[str]]


def suggestions(kind: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The local values of a kind that begin with `incomplete`; none if the files cannot be read."""
    invocation = ctx.ensure_object(Invocation)
    try:
        values = run(invocation, lambda: _values(kind, invocation))
    except (ConfigError, StorageError, OSError):
        return []
    chosen = ctx.params.get(param.name or "") or ()
    is_bash = os.environ.get(VARIABLE) == "bash_complete"
    # Bash puts a word into the line unquoted, and would run commands within a name; zsh and fish quote it. Bash
    # replaces only the part after the last colon.
    quoted = shlex.quote if is_bash else str
    before = incomplete.rfind(":") + 1 if is_bash else 0
    return [
        CompletionItem(quoted(value[before:]), help=description)
        for value, description in values
        if value.startswith(incomplete) and value not in chosen and value.isprintable()
    ]


def join_at_colons(environment: MutableMapping[str, str]) -> None:
    """Put together the words of bash's command line that it split at colons, as in `gitlab:group/project`."""
    words = split_arg_string(environment["COMP_WORDS"])
    place = int(environment["COMP_CWORD"])
    joined = list[str]()
    for number, word in enumerate(words):
        if number and ":" in {word, words[number - 1]}:
            joined[-1] += word
            place -= number <= int(environment["COMP_CWORD"])
        else:
            joined.append(word)
    environment.update(COMP_WORDS=shlex.join(joined), COMP_CWORD=str(place))


async def _values(kind: str, invocation: Invocation) -> list[tuple[str, str]]:
    settings = invocation.settings(quietly=True)
    if kind == "profiles":
        return [(profile.name, profile.base_url) for profile in settings.profiles]
    if kind == "automations":
        return [(rule.name, "") for rule in settings.automations]
    path = None
    with suppress(ConfigError):  # No profile is named, or an unknown one.
        path = data_folder(settings, invocation.profile(settings)) / CACHE_FILE
    if path is None or not path.exists():
        if kind == "statuses":
            return [(status, "") for status in STATUS_ORDER]
        return []
    from storage.cache.cache import Cache  # sqlite3

    async with await Cache.open(path) as cache:
        match kind:
            case "statuses":
                return [(status, "") for status in await cache.known_statuses()]
            case "repositories":
                return [(label, "") for label in await cache.repositories()]
            case _:
                runs = await cache.runs(RunFilter(), NEWEST)
                return [(run.run_id, f"{run.status} {run.repository.label} {run.branch_name}") for run in runs]
