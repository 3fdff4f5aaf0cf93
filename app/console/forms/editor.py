"""The person's own editor, for text that outgrows a form."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path


class EditorError(Exception):
    """The editor could not be used; the text is as it was. The message names the cure."""


def editor_command(env: Mapping[str, str]) -> list[str]:
    """What $VISUAL or $EDITOR says, or vi.

    Raises:
        EditorError: The variable cannot be read as a command.
    """
    command = env.get("VISUAL") or env.get("EDITOR") or "vi"
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise EditorError(f"$EDITOR cannot be read as a command: {error}. Set it to a program's name.") from error
    return argv or ["vi"]


def edit(text: str, env: Mapping[str, str]) -> str:
    """The text after the person edited it; blocks, and needs the terminal to itself.

    Raises:
        EditorError: The editor did not start, failed, or left something that is no text.
    """
    argv = editor_command(env)
    with tempfile.TemporaryDirectory(prefix="runwarden-") as folder:
        file = Path(folder) / "instructions.md"
        file.write_text(text, "utf-8")
        file.chmod(0o600)
        try:
            # The environment passed on is the person's own; our token was taken out of it at start.
            code = subprocess.run([*argv, os.fspath(file)], check=False).returncode
        except OSError as error:
            raise EditorError(f"{argv[0]} did not start: {error.strerror}. Set $EDITOR to an editor.") from error
        if code != 0:
            raise EditorError(f"{argv[0]} ended with code {code}; the text is as it was.")
        try:
            return file.read_text("utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EditorError(f"What {argv[0]} left cannot be read as UTF-8 text; the text is as it was.") from error
