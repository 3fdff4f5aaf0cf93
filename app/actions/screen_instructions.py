"""Instructions from outside the form: the user's editor, or the configuration's templates."""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from textual.app import App, SuspendNotSupported

from storage.base_error import RunwardenError

NAMES: Final = ("repository", "branch", "previous_instructions")
"""The known placeholders."""
PLACEHOLDERS: Final = re.compile(r"\{(" + "|".join(NAMES) + r")\}")


class EditorError(RunwardenError):
    """The editor could not be used and the text is unchanged. The message has the fix."""


def filled_in(template: str, known: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Fill in a template's placeholders; return the text and the placeholders without a value.

    Other braces are text.
    """
    missing = tuple(dict.fromkeys(name for name in PLACEHOLDERS.findall(template) if not known.get(name)))
    return PLACEHOLDERS.sub(lambda found: known.get(found[1]) or found[0], template), missing


def editor_command(env: Mapping[str, str]) -> list[str]:
    """Return the command in $VISUAL or $EDITOR, or vi.

    Raises:
        EditorError: The variable cannot be read as a command.
    """
    command = env.get("VISUAL") or env.get("EDITOR") or "vi"
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise EditorError(f"$EDITOR cannot be read as a command: {error}. Set it to a program's name.") from error
    return argv or ["vi"]


def from_editor(app: App[Any], text: str) -> tuple[str, str]:
    """Lend the terminal to the user's editor; return the text as edited, and why it could not be, or nothing."""
    try:
        with app.suspend():
            return edit(text, os.environ), ""
    except SuspendNotSupported:
        return text, "No editor can be opened in this terminal: type here."
    except EditorError as error:
        return text, str(error)


def edit(text: str, env: Mapping[str, str]) -> str:
    """Return the text as edited; blocks, and needs the terminal to itself.

    Raises:
        EditorError: The editor did not start, failed, or saved something other than text.
    """
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
