"""A file that somebody names in a field: whatever is typed there, the answer is a path or a sentence."""

from collections.abc import Sequence
from pathlib import Path


def typed_path(text: str) -> Path:
    """The path that was typed; `~` is the home folder, where there is such a home."""
    path = Path(text.strip())
    try:
        return path.expanduser()
    except RuntimeError:
        # Nobody has the name behind the tilde: then it is a folder's, and that there is none is said like of any other.
        return path


def export_problem(path: Path, formats: Sequence[str]) -> str | None:
    """What keeps a file of this name from being written; None: nothing that is known before it is tried.

    Args:
        path: As it was typed.
        formats: The endings that say what can be written, two or more.
    """
    if path.suffix.lower() not in formats:
        return f"End the name in {', '.join(formats[:-1])} or {formats[-1]}: it says what is written."
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file."
        if not path.parent.is_dir():
            return f"There is no folder {path.parent}."
    except OSError as error:
        return f"There can be no such file: {error.strerror or error}. Name another."
    return None
