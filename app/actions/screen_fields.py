"""Form fields: how each is shown, read, written back, and filled by an editor."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from textual.app import App, SuspendNotSupported

from app.actions.refusals import FieldProblem
from app.api.requests import Json
from app.engine.text import json_or_text
from storage import RunwardenError
from widgets.forms.field import ChoiceField, LineField, ParagraphField
from widgets.forms.inputs import MAX_LINE, printable


def editable_text(text: str) -> str:
    """Return the text if a one-line input can show it exactly; otherwise an empty text."""
    is_shown = printable(text) == text and "\n" not in text and "\t" not in text and len(text) <= MAX_LINE
    return text if is_shown else ""


def read_pairs(key: str, text: str) -> tuple[dict[str, Json], tuple[FieldProblem, ...]]:
    """Read lines of `key=value` as the request's object; with a problem, it is empty."""
    values: dict[str, Json] = {}
    for line in filter(str.strip, text.split("\n")):
        name, equals, value = map(str.strip, line.partition("="))
        if not equals or not name:
            return {}, (FieldProblem(key, f"Write {(name or value)!r} as key=value, or delete it."),)
        if name in values:
            return {}, (FieldProblem(key, f"{name} is given twice; keep one."),)
        values[name] = json_or_text(value)
    return values, ()


def format_value(value: Json) -> str:
    """Return a value as a user would type it in a `key=value` line."""
    # Text that would be read or shown as another value is quoted.
    is_plain = isinstance(value, str) and json_or_text(value.strip()) == value == editable_text(value)
    return str(value) if is_plain else json.dumps(value)


def format_pairs(values: Mapping[str, Json]) -> str:
    return "\n".join(f"{key}={format_value(value)}" for key, value in values.items())


class Field(Struct, frozen=True):
    """One field of a form and of its request."""

    key: str
    """The request's attribute."""
    label: str
    hint: str = ""
    control: type[LineField | ParagraphField] = LineField
    placeholder: str = ""


BRANCH: Final = Field("branch_name", "branch", "Empty: the service creates one.", ChoiceField, "chosen by the service")
PAIRS_HINT: Final = "Optional, one per line. A value is read as JSON if possible, otherwise as text."


class EditorError(RunwardenError):
    """The editor could not be used and the text is unchanged. The message has the fix."""


def editor_command(env: Mapping[str, str]) -> list[str]:
    """The command in $VISUAL or $EDITOR, or vi; raises `EditorError` if it is not a command."""
    try:
        argv = shlex.split(env.get("VISUAL") or env.get("EDITOR") or "vi")
    except ValueError as error:
        raise EditorError(f"$EDITOR cannot be read as a command: {error}. Set it to a program's name.") from error
    return argv or ["vi"]


def from_editor(app: App[Any], text: str) -> tuple[str, str]:
    """Lend the terminal to the user's editor; return the edited text, and the error if there was one."""
    try:
        with app.suspend():
            return edit(text, os.environ), ""
    except SuspendNotSupported:
        return text, "No editor can be opened in this terminal: type here."
    except EditorError as error:
        return text, str(error)


def edit(text: str, env: Mapping[str, str]) -> str:
    """The edited text; blocks, and needs the terminal to itself. Raises `EditorError`."""
    argv = editor_command(env)
    with tempfile.TemporaryDirectory(prefix="runwarden-") as folder:
        file = Path(folder) / "instructions.md"
        file.write_text(text, "utf-8")
        file.chmod(0o600)
        try:
            # The environment is the user's own; our token was removed from it at start.
            code = subprocess.run([*argv, os.fspath(file)], check=False).returncode
        except OSError as error:
            raise EditorError(f"{argv[0]} did not start: {error.strerror}. Set $EDITOR to an editor.") from error
        if code != 0:
            raise EditorError(f"{argv[0]} exited with code {code}; your text is unchanged.")
        try:
            return file.read_text("utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EditorError(f"The text from {argv[0]} is not UTF-8; your text is unchanged.") from error
