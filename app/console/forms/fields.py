"""The fields of a form: their values and problems, the fields that several forms share, and how values are read."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from textual.widget import Widget

from app.actions.fields import FieldProblem
from app.api.requests import Json
from app.console.forms.drafts import Values
from app.text import SafeText, safe_text
from storage.cache import Cache
from storage.errors import StorageError
from storage.records import Repository, RunFilter
from widgets.forms.field import ChoiceField, FormField, ParagraphField
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


class FormFields:
    """The fields by their keys, in order."""

    def __init__(self, rows: Sequence[Widget], problems: Callable[[], tuple[FieldProblem, ...]]) -> None:
        """Take the fields among the rows; `problems` returns what is wrong with their values."""
        self._fields = {row.key: row for row in rows if isinstance(row, FormField)}
        self._problems = problems
        self.instructions = next((row for row in rows if isinstance(row, ParagraphField)), None)
        """The field of the instructions; None: the form takes none."""
        self.last_typed = ""

    def __getitem__(self, key: str) -> FormField:
        """Return the field with this key."""
        return self._fields[key]

    @property
    def values(self) -> Values:
        """The values by field, as typed."""
        return {key: field.value for key, field in self._fields.items()}

    def fill(self, values: Values) -> None:
        """Replace all values; fields without one are emptied."""
        for key, field in self._fields.items():
            field.fill(values.get(key, ""))
        self.last_typed = ""

    def insist(self) -> tuple[FieldProblem, ...]:
        """Show all problems, also of untouched fields, and focus the first field that has one."""
        for field in self._fields.values():
            field.insist()
        if found := self.complain():
            self._fields.get(found[0].field, next(iter(self._fields.values()))).take_focus()
        return found

    def complain(self) -> tuple[FieldProblem, ...]:
        """Show the problems of touched fields below them; return all problems."""
        found = self._problems()
        by_field = {problem.field: problem.message for problem in reversed(found)}
        for key, field in self._fields.items():
            message = by_field.get(key) if field.touched else None
            field.complain(safe_text(message) if message else None)
        return found

    def to_focus(self) -> FormField:
        """The field that was typed in last; at first the one most in need of a value, or else the instructions."""
        if self.last_typed in self._fields:
            return self._fields[self.last_typed]
        wrong = {problem.field for problem in self._problems()}
        fields = tuple(self._fields.values())
        return next((field for field in fields if field.key in wrong), self.instructions or fields[0])

    async def offer_repositories(self, cache: Cache) -> None:
        """Suggest the repositories that have runs, if the form asks for one."""
        if isinstance(field := self._fields.get("repository"), ChoiceField):
            await offer_repositories(cache, field)

    async def offer_branches(self, cache: Cache) -> None:
        """Suggest the branches seen in the named repository, if the form asks for one."""
        if isinstance(field := self._fields.get("branch_name"), ChoiceField):
            await offer_branches(cache, field, self.values.get("repository", "").strip())


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
