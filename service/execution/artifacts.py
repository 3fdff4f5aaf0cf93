"""The files that an agent leaves for its callers, found in the checkout after it has ended: they may be anything."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from service.execution import trees
from service.findings import collect
from service.settings import ArtifactLimits
from service.store.turn_files import PATCHES

_LONGEST_NAME: Final = 255
UNREADABLE: Final = "they cannot be read"


def found(tree: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield the name below the folder of artifacts of all in it that is no folder; None: it cannot be read.

    Raises:
        OSError: There is no such folder, or something else has its name.
    """
    with collect.folder_of(tree, collect.ARTIFACTS) as above:
        name = collect.ARTIFACTS.rpartition("/")[2]
        trees.unlock(name, within=above)
        for path, folder, entries in trees.walk(name, within=above):
            for entry in sorted(entries, key=lambda one: one.name):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    status = None
                if status is None or not stat.S_ISDIR(status.st_mode):
                    trees.unlock_file(entry, folder)
                    yield f"{path}{entry.name}", status
                elif not trees.unlock(entry.name, within=folder):
                    yield f"{path}{entry.name}", None


def refusal(
    name: str, status: os.stat_result | None, limits: ArtifactLimits, held: Mapping[str, int], free_bytes: int
) -> str | None:
    """Return why a file is left out, after "because"; None: it may be kept.

    `held` has the sizes of the turn's artifacts by name, and `free_bytes` is what the organization has for them.
    """
    if status is None:
        return UNREADABLE
    together = status.st_size + sum(held.values()) - held.get(name, 0)
    checks = {
        "links are not followed": stat.S_ISLNK(status.st_mode),
        "they are no regular files": not stat.S_ISREG(status.st_mode),
        "a hard link may be to a file elsewhere: copy it": status.st_nlink > 1,
        f"their names have control characters, or more than {_LONGEST_NAME}": (
            not name.isprintable() or "\\" in name or len(name) > _LONGEST_NAME
        ),
        f"the service uses these names itself: {', '.join(PATCHES)}": name in PATCHES,
        f"a turn has at most {limits.files} (execution.artifacts.files)": len({*held, name}) > limits.files,
        f"they have more than {limits.file_bytes} bytes (execution.artifacts.file_bytes)": (
            status.st_size > limits.file_bytes
        ),
        f"those of a turn have at most {limits.turn_bytes} bytes (execution.artifacts.turn_bytes)": (
            together > limits.turn_bytes
        ),
        f"those of an organization have at most {limits.organization_bytes} bytes "
        "(execution.artifacts.organization_bytes)": together > free_bytes,
    }
    return next((why for why, is_so in checks.items() if is_so), None)
