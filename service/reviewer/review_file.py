"""The file of a review in the checkout; no link there is followed."""

import os
import secrets
from pathlib import Path
from typing import Final

REVIEWS: Final = "reviews/"
"""The folder of all reviews; they are not reviewed."""
_BYTES: Final = 2 * 1024 * 1024
"""The longest earlier review that is read back."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ReviewFileError(Exception):
    """The review cannot be written; the text names the file and the cure."""


class ReviewFile:
    """The review of one run."""

    def __init__(self, checkout: Path, run_id: str) -> None:
        self.path = f"{REVIEWS}{run_id}.md"
        """In the checkout."""
        self._file = checkout / self.path

    def read(self) -> bytes | None:
        """The last review, or None: it is absent, not a regular file of the checkout, or too long."""
        if self._file.parent.is_symlink() or self._file.is_symlink() or not self._file.is_file():
            return None
        try:
            with os.fdopen(os.open(self._file, _READ), "rb") as file:
                review = file.read(_BYTES + 1)
        except OSError:
            return None
        return review if len(review) <= _BYTES else None

    def write(self, review: str) -> None:
        """Replace the file as a whole; a link at its name is replaced, never followed.

        Raises:
            ReviewFileError: the folder is a link or a file, or the disk refuses.
        """
        folder = self._file.parent
        temporary = folder / f".runwarden-{secrets.token_hex(8)}"
        try:
            if folder.is_symlink():
                raise NotADirectoryError(0, "it is a link")
            folder.mkdir(exist_ok=True)
            with temporary.open("x", encoding="utf-8", newline="\n") as file:
                file.write(review)
            temporary.replace(self._file)
        except OSError as error:
            raise ReviewFileError(
                f"cannot write {self.path}: {error.strerror}; reviews/ must be a real folder, not a link, "
                "and the checkout must be writable"
            ) from error
