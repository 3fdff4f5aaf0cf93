"""Writes the configuration: all or nothing, readable only for its owner, and always valid."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from app.engine.atomic_file import alone, replacing
from app.profiles.load import parse, read_text
from app.profiles.paths import example_text
from app.profiles.schema import write_schema
from app.profiles.settings import ENVIRONMENT_PROFILE, ConfigError, Profile, Settings
from app.profiles.token import TOKEN_KINDS, Token

LONGEST_NAME: Final = 40


class ChangedError(ConfigError):
    """Another program has changed the file since it was read."""


def name_problem(name: str) -> str | None:
    """Why a text cannot be a profile's name; None: it can."""
    if not name.strip():
        return "It needs a name, such as acme."
    if name == ENVIRONMENT_PROFILE:
        return "This name belongs to RUNWARDEN_BASE_URL: choose another."
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        return f"A name is one line of at most {LONGEST_NAME} characters, without blanks around it."
    return None


def save(file: Path, before: str | None, after: str) -> Settings:
    """Replace the text of a configuration, and return the settings that it then holds.

    Raises:
        ConfigError: The text is not valid, or the file changed or cannot be written; it was not touched.
    """
    settings = parse(file, after)
    # Keep a symbolic link, as a configuration in git often is one.
    target = file.resolve()
    with _write_errors(target), alone(target.parent):
        if read_text(target) != before:
            raise ChangedError("this changed since it was read.", cure="Read it again, and change it then.", file=file)
        with replacing(target) as written:
            written.write(after)
    write_schema(file, after)
    return settings


def add_profile(file: Path, new: Profile) -> None:
    """Append a profile to the configuration, or to the commented example if there is none yet.

    Raises:
        ConfigError: The file cannot be written, or the result would not be valid; nothing was changed.
    """
    before = read_text(file)
    key = new.name if re.fullmatch(r"[A-Za-z0-9_-]+", new.name) else _text(new.name)
    named = [token_key for token_key, kind in TOKEN_KINDS.items() if isinstance(new.token, kind)]
    if not named:
        raise ValueError("A stream's token has no place in a file.")
    given = getattr(new.token, new.token.__struct_fields__[0])
    value = f"[{', '.join(map(_text, given))}]" if isinstance(given, tuple) else _text(str(given))
    read_only = "read_only = true\n" if new.read_only else ""
    profile = f"[profiles.{key}]\nbase_url = {_text(new.base_url)}\n{named[0]} = {value}\n{read_only}"
    save(file, before, f"{(example_text() if before is None else before).rstrip()}\n\n{profile}".lstrip())


def keep_token(folder: Path, name: str, token: Token) -> Path:
    """Write a token to a new file named after the profile, readable only for its owner.

    Raises:
        ConfigError: It cannot be written.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "profile"
    with _write_errors(folder):
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


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, except DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Raise what keeps a file from being written as a `ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"this cannot be written: {error.strerror}.", cure="Correct its permissions, or free some space.", file=path
        ) from error
