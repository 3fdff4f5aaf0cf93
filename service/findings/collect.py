"""The findings of a turn, read from the checkout after the agent has ended: it may have written anything there."""

import contextlib
import errno
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

from service import trees
from service.findings import (
    MAX_FINDINGS,
    SEVERITIES,
    Finding,
    FindingsError,
    IdentifiedFinding,
    check_findings,
    drafts,
    read_json,
    sarif_drafts,
)
from service.text import plural

FOLDER: Final = ".runwarden"
FILES: Final = (f"{FOLDER}/findings.json", f"{FOLDER}/findings.sarif")
"""The files that an agent may write; nothing in their folder is part of a commit."""
ARTIFACTS: Final = f"{FOLDER}/artifacts"
_MAX_FILE_BYTES: Final = {FILES[0]: 1 << 20, FILES[1]: 4 << 20}
_LINK: Final = "a link is not followed"
_MAX_SOURCE: Final = 4 << 20
_MAX_READ: Final = 10_000
"""How many findings of a file are looked at. A SARIF file of the allowed size may hold far more."""
_CONTEXT_LINES: Final = 5
_MAX_KEPT: Final = 256 << 10
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def collect(
    tree: Path, root: str, mask: Callable[[str], str], remarks: list[str]
) -> tuple[IdentifiedFinding, ...] | None:
    """Return the agent's findings, which cannot fail the turn; None: it wrote none, or none that can be used.

    `root`: the path under which the agent saw the checkout. Problems with its files are added to the remarks.
    """
    findings: list[Finding] = []
    usable = 0
    with contextlib.suppress(OSError):
        mode = (tree / FOLDER).lstat().st_mode
        if not stat.S_ISDIR(mode):
            kind = "it is a file, not a folder" if stat.S_ISREG(mode) else "it is not a folder"
            kind = _LINK if stat.S_ISLNK(mode) else kind
            remarks.append(f"{FOLDER} is not read: {kind}")
            return None
    for path in FILES:
        try:
            data = read(tree, path, _MAX_FILE_BYTES[path])
            written = read_json(data)
            entries = iter(drafts(written) if path == FILES[0] else sarif_drafts(written, root))
            findings += check_findings((_mask_draft(entry, mask) for entry in islice(entries, _MAX_READ)), remarks)
            if next(entries, None) is not None:
                remarks.append(f"{path} is read up to finding {_MAX_READ:,}")
            usable += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            remarks.append(f"{path} is not read: {_LINK if error.errno == errno.ELOOP else error.strerror}")
        except FindingsError as error:
            remarks.append(f"{path} is not used: {error}")
    if not usable:
        return None
    different = list(dict.fromkeys(findings))
    heaviest = sorted(different, key=lambda finding: SEVERITIES.index(finding.severity))[:MAX_FINDINGS]
    known = list(identify(different if len(different) <= MAX_FINDINGS else heaviest, tree))
    sizes = accumulate(len(finding.model_dump_json()) for finding in known)
    fitting = tuple(finding for finding, size in zip(known, sizes, strict=True) if size <= _MAX_KEPT)
    if left_out := len(different) - len(fitting):
        remarks.append(f"{plural(left_out, 'finding')} left out: at most {MAX_FINDINGS} and {_MAX_KEPT} bytes are kept")
    return fitting


def clear(tree: Path) -> None:
    """Remove findings, a question and artifacts that the repository itself holds: they are not this agent's."""
    for path in (*FILES, f"{FOLDER}/question.json", ARTIFACTS):
        with contextlib.suppress(OSError), folder_of(tree, path) as folder:
            trees.remove(path.rpartition("/")[2], within=folder)


def identify(findings: Iterable[Finding], tree: Path) -> Iterator[IdentifiedFinding]:
    """Give each finding its id, a digest of its rule, its path and the words of its lines.

    Their order distinguishes findings that are equal in these. A line number beyond the end of the file is dropped.
    """
    # Only one file is held at a time, since a hostile agent may name more than fits into memory.
    path, lines = "", list[str]()
    seen: Counter[tuple[str, str, str]] = Counter()
    for finding in findings:
        if finding.path != path:
            path, text = finding.path, ""
            with contextlib.suppress(OSError, ValueError):
                text = read(tree, path, _MAX_SOURCE).decode("utf-8", "replace")
            lines = text.removesuffix("\n").split("\n") if text else []
        line, end = finding.line, finding.end_line
        if line is not None and line > len(lines):
            line = end = None
        # The words alone: they stay the same when the lines are moved or indented.
        place = [] if line is None else lines[line - 1 : min(end or line, line + _CONTEXT_LINES - 1)]
        context = " ".join(" ".join(place).split())
        key = (finding.rule or ("" if context else finding.title), path, context)
        seen[key] += 1
        digest = hashlib.sha256("\0".join((*key, str(seen[key]))).encode("utf-8", "replace")).hexdigest()
        span = {"line": line, "end_line": None if end is None else min(end, len(lines))}
        yield IdentifiedFinding.model_validate(finding.model_dump() | span | {"id": digest[:16]})


def _mask_draft(draft: Any, mask: Callable[[str], str]) -> Any:
    """Mask the secrets in a draft's texts. JSON can hold a lone surrogate, which is not valid text."""
    if not isinstance(draft, dict):
        return draft
    texts = {key: value for key, value in draft.items() if isinstance(value, str)}
    return draft | {key: mask(text.encode("utf-8", "replace").decode()) for key, text in texts.items()}


@contextlib.contextmanager
def folder_of(tree: Path, path: str) -> Iterator[int]:
    """Open the folder of a path without following a link on the way."""
    folder = os.open(tree, _DIRECTORY)
    try:
        for part in path.split("/")[:-1]:
            below = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def read(tree: Path, path: str, max_bytes: int) -> bytes:
    """Return a regular file of the checkout, by its path there, as `trees.read` does."""
    with folder_of(tree, path) as folder:
        return trees.read(path.rpartition("/")[2], max_bytes, within=folder)
