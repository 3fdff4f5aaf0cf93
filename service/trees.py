"""Walks and removes folders that an agent filled, by descriptor, however deep, long-named or locked they are.

`within` is the descriptor of a folder in which the given path is a name.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE: Final = 1 << 20
_Root = tuple[Path | str, int | None]
"""A folder, and the descriptor of the folder in which that is a name."""
MAX_PATH: Final = os.pathconf("/", "PC_PATH_MAX") - 1
"""How many bytes of a path git can open, counted from the checkout."""


def walk(root: Path | str, *, within: int | None = None) -> Iterator[tuple[str, int, list["os.DirEntry[str]"]]]:
    """Yield each folder's path, descriptor and entries, `root` first; folders that the caller removes are not entered.

    Two descriptors are open at a time. A path begins at `root`, which is the empty path, and ends with a slash. If it
    is longer than `MAX_PATH` it is cut, to a text that is still longer. A folder that cannot be read, or is moved
    during the walk, is left out.

    Raises:
        OSError: `root` cannot be read.
    """
    here = os.open(root, _FOLDER, dir_fd=within)
    trail = [_Level("", "", _identity(here))]
    try:
        while trail:
            entries = _entries(here)
            yield trail[-1].path, here, entries
            trail[-1].waiting.extend(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            below = None
            # The next folder is entered, if there is one; otherwise the trail is empty.
            while trail and below is None:
                if not trail[-1].waiting:
                    trail.pop()
                    here = _climb(here, (root, within), trail)
                elif (below := _open(name := trail[-1].waiting.pop(), here)) is not None:
                    os.close(here)
                    here, above = below, trail[-1].path
                    path = above if len(os.fsencode(above)) > MAX_PATH else f"{above}{name}/"
                    trail.append(_Level(name, path, _identity(here)))
    finally:
        os.close(here)


def unlock(root: Path | str, *, within: int | None = None) -> bool:
    """Give a folder's owner all rights back; return whether the folder can be read. A link is not followed."""
    with contextlib.suppress(OSError):
        mode = os.stat(root, dir_fd=within, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(root, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=within)
        return os.access(root, os.R_OK | os.X_OK, dir_fd=within)
    return False


def read(file: Path | str, max_bytes: int, *, within: int | None = None) -> bytes:
    """Return a regular file that an agent may have made: links are not followed, and pipes do not block.

    Raises:
        OSError: It is not there, is something else, or is larger than `most` bytes.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, dir_fd=within), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = opened.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes")
    return data


def contents(root: Path, names: Iterable[str]) -> Iterator[bytes]:
    """Yield the names of files in a folder with their contents, or the target of a link, piece by piece."""
    # From its descriptor, as git does: a name that git can open may be too long behind the folder's own path.
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            yield name.encode("utf-8", "surrogateescape") + b"\n"
            with contextlib.suppress(OSError):
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    yield from iter(lambda: file.read(_PIECE), b"")
            with contextlib.suppress(OSError):
                yield os.readlink(os.fsencode(name), dir_fd=folder)
    finally:
        os.close(folder)


def unlock_file(entry: "os.DirEntry[str]", folder: int) -> None:
    """Give the owner of a file in an open folder the right to read it."""
    with contextlib.suppress(OSError):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISREG(mode) and not mode & stat.S_IRUSR:
            os.chmod(entry.name, stat.S_IMODE(mode) | stat.S_IRUSR, dir_fd=folder)


@dataclass(frozen=True, slots=True)
class _Level:
    """A folder on the path from the root to the walk's present folder."""

    name: str
    path: str
    """The path from the root, with a final slash; cut once it is longer than `MAX_PATH`."""
    identity: tuple[int, int]
    waiting: list[str] = field(default_factory=list)


def _climb(here: int, root: _Root, trail: list[_Level]) -> int:
    """Open the last folder of the trail; cut the trail above a folder that was moved away."""
    above = _open("..", here) if trail else None
    while trail and (above is None or _identity(above) != trail[-1].identity):
        if above is not None:
            os.close(above)
        above = _descend(root, trail)
        if above is None:
            trail.pop()
    if above is None:
        return here
    os.close(here)
    return above


def _descend(root: _Root, trail: list[_Level]) -> int | None:
    """Open the last folder of the trail, from the root; None: it is not there any longer."""
    here = _open(*root)
    for level in trail[1:]:
        if here is None:
            return None
        below = _open(level.name, here)
        os.close(here)
        here = below
    if here is not None and _identity(here) != trail[-1].identity:
        os.close(here)
        return None
    return here


def _open(name: Path | str, within: int | None) -> int | None:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except OSError:
        return None


def remove(root: Path | str, *, within: int | None = None) -> bool:
    """Delete a file, a link, or a folder with all that is in it; return whether it is gone.

    Nothing may be writing to it. Locked folders are opened, and folders are moved up to `root` before they are emptied,
    so that depth costs neither stack nor descriptors.
    """
    try:
        if stat.S_ISDIR(os.stat(root, dir_fd=within, follow_symlinks=False).st_mode):
            os.chmod(root, stat.S_IRWXU, dir_fd=within)
            top = os.open(root, _FOLDER, dir_fd=within)
            try:
                waiting = list(_empty(top, top))
                while waiting:
                    name = waiting.pop()
                    with contextlib.suppress(OSError):
                        folder = os.open(name, _FOLDER, dir_fd=top)
                        try:
                            waiting += _empty(folder, top)
                        finally:
                            os.close(folder)
                        os.rmdir(name, dir_fd=top)
            finally:
                os.close(top)
            os.rmdir(root, dir_fd=within)
        else:
            os.unlink(root, dir_fd=within)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(folder: int, top: int) -> Iterator[str]:
    """Delete a folder's files, move its folders up to `top`, and yield their names there."""
    for entry in _entries(folder):
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            os.chmod(entry.name, stat.S_IRWXU, dir_fd=folder)
            name = entry.name if folder == top else secrets.token_hex(16)
            os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
            yield name


def _entries(folder: int) -> list["os.DirEntry[str]"]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino
