"""The fields of forms: how each is shown, and how its text is read into a request and written back."""

import json
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from app.actions.refusals import FieldProblem
from app.api.requests import Json
from storage.records import Repository
from widgets.forms.field import ChoiceField, FormField, LineField, PairsField, ParagraphField, pairs_in, read_value
from widgets.forms.inputs import LONGEST_LINE, printable


def faithful(text: str) -> str:
    """Return the text if a one-line input shows exactly it; an empty one otherwise."""
    is_shown = printable(text) == text and "\n" not in text and "\t" not in text and len(text) <= LONGEST_LINE
    return text if is_shown else ""


def read_repository(text: str) -> Repository | FieldProblem:
    """Read the repository, or return the problem."""
    if not text.strip():
        return FieldProblem("repository", "Name it: owner/repo, or gitlab:group/project.")
    try:
        return Repository.parse(text)
    except ValueError:
        return FieldProblem("repository", "Write owner/repo, or gitlab:group/project.")


def read_pairs(key: str, text: str) -> dict[str, Json] | FieldProblem:
    """Read lines of `key=value` as the request's object, or return the problem."""
    values: dict[str, Json] = {}
    for name, equals, value in pairs_in(text):
        if not equals or not name:
            return FieldProblem(key, f"Write {(name or value)!r} as key=value, or delete it.")
        if name in values:
            return FieldProblem(key, f"{name} is given twice; keep one.")
        values[name] = read_value(value)
    return values


def _read_number(key: str, text: str) -> int | FieldProblem | None:
    typed = text.strip()
    if typed and not (typed.isascii() and typed.isdigit()):
        return FieldProblem(key, "A project id is a number; or leave it empty.")
    return int(typed) if typed else None


class Kind(Struct, frozen=True):
    """A field's text, how it is read into the request, and how a sent value is written back."""

    control: Callable[..., FormField]
    read: Callable[[str, str], Any]
    """Reads the text of the field with this key; or returns its problem."""
    written: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    stand_in: Any = None
    """Stands for a value that cannot be read, so that the other fields can be checked."""
    shows: Callable[[str], bool] = lambda text: faithful(text) == text
    """Whether the field shows exactly this text."""


TEXT: Final = Kind(ParagraphField, lambda _, text: text, shows=lambda text: printable(text) == text)
LINE: Final = Kind(LineField, lambda _, text: text.strip())
OPTIONAL: Final = Kind(LineField, lambda _, text: text.strip() or None)
CHOICE: Final = Kind(ChoiceField, lambda _, text: text.strip())
OPTIONAL_CHOICE: Final = Kind(ChoiceField, lambda _, text: text.strip() or None)
NUMBER: Final = Kind(LineField, _read_number, stand_in=1)
PAIRS: Final = Kind(
    PairsField,
    read_pairs,
    lambda values: "\n".join(f"{key}={written(value)}" for key, value in values.items()),
    {},
    lambda text: printable(text) == text,
)


def written(value: Json) -> str:
    """Return a value as it is typed in a line of `key=value`."""
    # Text that would be read or shown as another value is quoted.
    is_plain = isinstance(value, str) and read_value(value) == value == faithful(value)
    return str(value) if is_plain else json.dumps(value)


class Field(Struct, frozen=True):
    """One field of a form, and of the request that it makes."""

    key: str
    """The request's attribute."""
    label: str
    hint: str = ""
    kind: Kind = LINE
    placeholder: str = ""

    def make(self, value: str) -> FormField:
        """Make the control, with this text in it."""
        return self.kind.control(self.key, self.label, self.hint, value=value, placeholder=self.placeholder)


BRANCH: Final = Field(
    "branch_name", "branch", "Empty: the service creates one.", OPTIONAL_CHOICE, "chosen by the service"
)
PAIRS_HINT: Final = "Optional, one per line. A value is read as JSON if possible, otherwise as text."
