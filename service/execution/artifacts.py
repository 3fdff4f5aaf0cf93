"""The files that an agent leaves for its callers, kept from the checkout after it has ended: they may be anything."""

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from service import trees
from service.execution.checkout import list_names
from service.findings import collect
from service.secrets import Secrets
from service.settings import ArtifactLimits
from service.store.turn_files import PATCHES
from service.text import plural

_MAX_NAME: Final = 255
Put = Callable[[str, bytes], None]
"""Stores an artifact by its name."""


def keep(
    tree: Path, limits: ArtifactLimits, used: dict[str, int], others: int, secrets: Secrets, put: Put
) -> Iterator[str]:
    """Pass each artifact to `put`; yield log lines about kept and omitted files.

    `used` has the sizes of the turn's artifacts by name; the others of its organization have `others` bytes.

    Raises:
        OSError: There is no folder of artifacts, or something else has its name.
    """
    number, left_out = 0, defaultdict[str, list[str]](list)
    with collect.folder_of(tree, collect.ARTIFACTS) as above:
        root = collect.ARTIFACTS.rpartition("/")[2]
        trees.unlock(root, within=above)
        for path, folder, entries in trees.walk(root, within=above):
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    trees.unlock(entry.name, within=folder)
                    continue
                name, content = f"{path}{entry.name}", b""
                trees.unlock_file(entry, folder)
                try:
                    reason = refusal(name, entry.stat(follow_symlinks=False), limits, used, others)
                    content = b"" if reason else trees.read(entry.name, limits.file_bytes, within=folder)
                except OSError:
                    reason = "they cannot be read"
                if secret := secrets.named_in((content,)):
                    reason = f"they hold the value of {secret}"
                if reason is not None:
                    left_out[reason].append(name)
                    continue
                put(name, content)
                used[name] = len(content)
                number += 1
    if number:
        yield f"kept {plural(number, 'artifact')}"
    for reason, names in left_out.items():
        yield f"left out: {plural(len(names), 'artifact')}, because {reason}: {list_names(names)}"


def refusal(name: str, status: os.stat_result, limits: ArtifactLimits, used: dict[str, int], others: int) -> str | None:
    """Return why a file is left out, worded to follow "because"; None if it is kept."""
    together = status.st_size + sum(used.values()) - used.get(name, 0)
    checks = {
        "links are not followed": stat.S_ISLNK(status.st_mode),
        "they are no regular files": not stat.S_ISREG(status.st_mode),
        "a hard link may be to a file elsewhere: copy it": status.st_nlink > 1,
        f"their names have control characters, or more than {_MAX_NAME}": not name.isprintable()
        or len(name) > _MAX_NAME,
        f"the service uses these names itself: {', '.join(PATCHES)}": name in PATCHES,
    }
    sizes = {"files": len({*used, name}), "file_bytes": status.st_size, "turn_bytes": together}
    for key, size in (sizes | {"organization_bytes": together + others}).items():
        limit = getattr(limits, key)
        checks[f"they pass the limit execution.artifacts.{key} = {limit}"] = size > limit
    return next((reason for reason, is_so in checks.items() if is_so), None)
