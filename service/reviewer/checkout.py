"""The checkout on disk: read and written one folder at a time, so that no link can lead out of it."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from service.reviewer.tree import bytes_of

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CheckoutError(Exception):
    """A file of the checkout cannot be used; the text names it and the cure."""


class Checkout:
    """A folder that holds a branch."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file, or None: it is absent, a link, something else, or longer than the limit."""
        try:
            with self._folder(path) as (folder, name):
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    about = os.fstat(file.fileno())
                    usable = stat.S_ISREG(about.st_mode) and about.st_size <= limit
                    return file.read(limit) if usable else None
        except OSError:
            return None

    def write(self, path: str, content: bytes, *, make_folder: bool = False) -> None:
        """Replace a file as a whole, its mode kept; whatever stood at its name is never written through.

        Raises:
            CheckoutError: a folder on the way is a link or no folder, or the disk refuses.
        """
        try:
            with self._folder(path, make=make_folder) as (folder, name):
                temporary = b".runwarden-" + secrets.token_hex(8).encode()
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, _mode(folder, name), dir_fd=folder), "wb") as file:
                    file.write(content)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise CheckoutError(
                f"cannot write {path}: {error.strerror}; the folders above it must be real folders, "
                "no links, and the checkout must be writable"
            ) from error

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[tuple[int, bytes]]:
        """The open folder of a path, and the path's last part."""
        *parts, name = bytes_of(path).split(b"/")
        if not name or {b"", b".", b"..", b".git"} & {part.lower() for part in (*parts, name)}:
            raise CheckoutError(f"{path} is no path of the checkout")
        current = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                if make:
                    _make(part, current)
                inner = os.open(part, _FOLDER, dir_fd=current)
                os.close(current)
                current = inner
            yield current, name
        finally:
            os.close(current)


def _make(name: bytes, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return  # whether it is a real folder is found out when it is opened


def _mode(folder: int, name: bytes) -> int:
    """The permissions of the file that is replaced, or the usual ones."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    return stat.S_IMODE(about.st_mode) if stat.S_ISREG(about.st_mode) else 0o644
