"""The files that an agent left for its callers, saved on this machine. Their names come from outside."""

import os
from pathlib import Path

from app.engine.text import safe_text
from app.results.checkout import is_inside
from storage.base_error import RunwardenError


class ArtifactError(RunwardenError):
    """An artifact cannot be saved; the text says why."""


def save(folder: Path, name: str, content: bytes) -> Path:
    """Write an artifact into a folder that its name may have others below; nothing there is replaced.

    Raises:
        ArtifactError: Its name leads out of the folder, or the file is there or cannot be written.
    """
    if not (name.isprintable() and is_inside(name)) or "\\" in name or ":" in name:
        raise ArtifactError(f"{safe_text(name)} is no name that a file may have here. Save it on the service's page.")
    path = folder / name
    if any(part.is_symlink() for part in path.parents if part != folder and part.is_relative_to(folder)):
        raise ArtifactError(f"{safe_text(str(path.parent))} is behind a link. Name another folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise ArtifactError(f"{safe_text(str(path))} is there already. Remove it, or name another folder.") from error
    except OSError as error:
        raise ArtifactError(f"{safe_text(str(path))} cannot be written: {os.strerror(error.errno or 0)}.") from error
    return path
