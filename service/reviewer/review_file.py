"""The files of a review in the checkout; no link there is followed."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from service.errors import ServiceError

REVIEWS: Final = "reviews/"
"""The folder of all reviews, whose files are not reviewed themselves."""
FINDINGS: Final = ".runwarden/findings.json"
"""The file of findings for the service, which never commits it (docs/agents.md)."""
_BYTES: Final = 2 * 1024 * 1024
"""The longest earlier review that is read back."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ReviewFileError(ServiceError):
    """The review cannot be written; the text names the file and the cure."""


class ReviewFile:
    """A file in a folder of the checkout: the review of one run, or its findings."""

    def __init__(self, checkout: Path, path: str) -> None:
        """`path` is a folder of the checkout and a name, such as `reviews/run-1.md`."""
        self.path = path
        folder, _, self._name = path.partition("/")
        self._folder = checkout / folder

    def read(self) -> bytes | None:
        """The content, or None when the file is absent, not a regular file of the checkout, or too long."""
        try:
            with self._open() as folder, os.fdopen(os.open(self._name, _READ, dir_fd=folder), "rb") as file:
                about = os.fstat(file.fileno())
                return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= _BYTES else None
        except OSError:
            return None

    def write(self, review: str) -> None:
        """Replace the file as a whole, its mode kept; a link at its name is replaced, never followed.

        Raises:
            ReviewFileError: the folder is a link or a file, or the disk refuses.
        """
        try:
            self._folder.mkdir(exist_ok=True)
            with self._open() as folder:
                self._replace(folder, review.encode())
        except OSError as error:
            raise ReviewFileError(
                f"cannot write {self.path}: {error.strerror}; {self._folder.name}/ must be a real folder, not a link, "
                "and the checkout must be writable"
            ) from error

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Hold the folder open, so that a link put in its place later has no effect."""
        folder = os.open(self._folder, _FOLDER)
        try:
            yield folder
        finally:
            os.close(folder)

    def _replace(self, folder: int, review: bytes) -> None:
        temporary = f".runwarden-{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(temporary, _WRITE, 0o644, dir_fd=folder), "wb") as file:
                with suppress(FileNotFoundError):
                    about = os.stat(self._name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        os.fchmod(file.fileno(), about.st_mode & 0o777)
                file.write(review)
            os.replace(temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):  # the draft was renamed to the review
                os.unlink(temporary, dir_fd=folder)
