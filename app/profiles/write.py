"""Writes the configuration: all or nothing, readable only for its owner, and always valid.

A file that cannot be written, or would not be valid, raises `ConfigError`, and is not touched.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from app.engine.atomic_file import alone, replacing
from app.profiles.load import example_text, parse, read_text, unusable
from app.profiles.settings import ENVIRONMENT_PROFILE, ConfigError, Profile, Settings
from app.profiles.token import TOKEN_KINDS, Token

MAX_NAME: Final = 40


class ChangedError(ConfigError):
    """Another program has changed the file since it was read."""


def name_problem(name: str) -> str | None:
    """Why a text cannot be a profile's name; None if it can."""
    if not name.strip():
        return "It needs a name, such as acme."
    if name == ENVIRONMENT_PROFILE:
        return "This name belongs to RUNWARDEN_BASE_URL: choose another."
    if len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        return f"A name is one line of at most {MAX_NAME} characters, without blanks around it."
    return None


def save(file: Path, before: str | None, after: str) -> Settings:
    """Replace the text of a configuration, and return the settings that it then holds."""
    settings = parse(file, after)
    # Keep a symbolic link, as a configuration in git often is one.
    target = file.resolve()
    with _write_errors(target), alone(target.parent):
        if read_text(target) != before:
            raise ChangedError("this changed since it was read.", fix="Read it again, and change it then.", file=file)
        with replacing(target) as written:
            written.write(after)
    return settings


def add_profile(file: Path, new: Profile) -> None:
    """Append a profile to the configuration, or to the commented example if there is none yet."""
    from tomlkit import dumps  # only where something is written

    before = read_text(file)
    token_keys = [token_key for token_key, kind in TOKEN_KINDS.items() if isinstance(new.token, kind)]
    if not token_keys:
        raise ValueError("A token itself has no place in this file.")
    source = getattr(new.token, new.token.__struct_fields__[0])
    profile: dict[str, object] = {"base_url": new.base_url}
    profile[token_keys[0]] = list(source) if isinstance(source, tuple) else str(source)
    if new.read_only:
        profile["read_only"] = True
    added = dumps({"profiles": {new.name: profile}})
    save(file, before, f"{(example_text() if before is None else before).rstrip()}\n\n{added}".lstrip())


def keep_token(folder: Path, name: str, token: Token) -> Path:
    """Write a token to a new file named after the profile, readable only for its owner."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "profile"
    with _write_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = (folder / f"{slug}{'' if number == 1 else f'-{number}'}.token" for number in count(1))
        private = partial(os.open, mode=0o600)
        while True:
            # "x": another console may take the name at the same time.
            with suppress(FileExistsError), open(path := next(paths), "x", encoding="ascii", opener=private) as file:
                file.write(f"{token.reveal()}\n")
                return path


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unusable(path, "written", error) from error
