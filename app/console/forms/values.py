"""Fields that several forms share, and how their values are read."""

import json
import math
from contextlib import suppress
from typing import Final

from app.actions.refusals import FieldProblem
from app.api.requests import Json
from app.text import SafeText, safe_text
from storage.cache import Cache
from storage.errors import StorageError
from storage.records import Repository, RunFilter
from widgets.forms.field import ChoiceField
from widgets.forms.inputs import printable
from widgets.forms.pairs import Pairs

_WORDS: Final[dict[type, str]] = {
    bool: "yes/no",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
    type(None): "null",
}


def repository_field(hint: str, value: str) -> ChoiceField:
    """The field that names a repository."""
    return ChoiceField("repository", "repository", hint, value=value, placeholder="owner/repo")


def branch_field(value: str) -> ChoiceField:
    """The field for a branch; branches seen in the repository are suggested."""
    hint = "Empty: the service makes one."
    return ChoiceField("branch_name", "branch", hint, value=value, placeholder="chosen by the service")


async def offer_repositories(cache: Cache, field: ChoiceField) -> None:
    """Suggest the repositories that have runs."""
    # Suggestions are a comfort: the screen behind reports a broken cache.
    with suppress(StorageError):
        field.offer(await cache.repositories())


async def offer_branches(cache: Cache, field: ChoiceField, repository: str) -> None:
    """Suggest the branches seen in a repository; none while it is not named."""
    # An agent's repository is named without its platform.
    labels = (repository, f"gitlab:{repository}")
    with suppress(StorageError):
        field.offer(await cache.branches(RunFilter(repositories=labels)) if repository else ())


def read_value(text: str) -> Json:
    """Read a value: JSON if it is valid JSON, else the plain text."""
    try:
        value: Json = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text.strip()
    # 1e999 is a valid JSON number that no float can hold.
    return text.strip() if isinstance(value, float) and not math.isfinite(value) else value


def reading(text: str) -> SafeText:
    """Name the type that `read_value` reads."""
    return safe_text(_WORDS[type(read_value(text))])


def read_pairs(field: str, pairs: Pairs) -> dict[str, Json] | FieldProblem:
    """Read keys and values as the request's object, or return the problem."""
    keys = [key for key, _ in pairs]
    if "" in keys:
        return FieldProblem(field, f"Give {dict(pairs)['']!r} a key, or delete it.")
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        return FieldProblem(field, f"{twice} is there twice; keep one.")
    return {key: read_value(value) for key, value in pairs}


def read_repository(text: str) -> Repository | FieldProblem:
    """Read the repository, or return the problem."""
    if not text.strip():
        return FieldProblem("repository", "Name it: owner/repo, or gitlab:group/project.")
    try:
        return Repository.parse(text)
    except ValueError:
        return FieldProblem("repository", "Write owner/repo, or gitlab:group/project.")


def faithful(text: str) -> str:
    """Return the text if an input shows exactly it, else an empty one."""
    return text if printable(text) == text and "\n" not in text and "\t" not in text else ""


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON.")
