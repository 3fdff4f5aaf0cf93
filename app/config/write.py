"""Writes the configuration: all or nothing, readable by its owner alone, and always valid."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from app.atomic_file import replacing
from app.config.load import parse
from app.config.paths import example_text
from app.config.settings import ENVIRONMENT_PROFILE, ConfigError, Profile
from app.config.token import CommandToken, EnvToken, FileToken, KeyringToken, Token, TokenSource

LONGEST_NAME: Final = 40
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def name_problem(name: str) -> str | None:
    """Why a text cannot be a profile's name; None: it can."""
    if not name.strip():
        return "It needs a name, such as acme."
    if name == ENVIRONMENT_PROFILE:
        return "This name belongs to RUNWARDEN_BASE_URL: choose another."
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        return f"A name is one line of at most {LONGEST_NAME} characters, without blanks around it."
    return None


def add_profile(file: Path, new: Profile) -> None:
    """Append a profile to the configuration, or to the commented example if there is none yet.

    Raises:
        ConfigError: The file cannot be written, or the result would not be valid; nothing was changed.
    """
    # Keep a symbolic link, as a configuration in git often is one.
    target = file.resolve()
    with write_errors(target):
        before = target.read_text(encoding="utf-8") if target.exists() else example_text()
        after = f"{before.rstrip()}\n\n{_profile(new)}".lstrip()
        parse(target, after)  # refuse to write a file that could not be read back
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(target) as written:
            written.write(after)


def keep_token(folder: Path, name: str, token: Token) -> Path:
    """Write a token to a new file named after the profile, readable by its owner alone.

    Raises:
        ConfigError: It cannot be written.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "profile"
    with write_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while True:
            path = folder / f"{slug}{'' if number == 1 else f'-{number}'}.token"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                number += 1
                continue
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{token.reveal()}\n")
            return path


def _profile(new: Profile) -> str:
    key = new.name if _BARE_KEY.fullmatch(new.name) else _text(new.name)
    lines = [f"[profiles.{key}]", f"base_url = {_text(new.base_url)}", _token_line(new.token)]
    if new.read_only:
        lines.append("read_only = true")
    return "\n".join(lines) + "\n"


def _token_line(source: TokenSource) -> str:
    match source:
        case EnvToken(variable):
            return f"token_env = {_text(variable)}"
        case FileToken(path):
            return f"token_file = {_text(str(path))}"
        case CommandToken(argv):
            return f"token_command = [{', '.join(map(_text, argv))}]"
        case KeyringToken(name):
            return f"token_keyring = {_text(name)}"
        case _:
            raise ValueError("A stream's token has no place in a file.")


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, except DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise what keeps a file from being written as a `ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"this cannot be written: {error.strerror}.", cure="Correct its permissions, or free some space.", file=path
        ) from error
    except UnicodeError as error:
        raise ConfigError("this is not text in UTF-8.", cure="Save it as UTF-8.", file=path) from error
