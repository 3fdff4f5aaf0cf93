"""Paths: files that should not be in a repository at all, judged by name, kind and size."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from service.reviewer.checks.subject import Tree, TreeCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.tree import SUBMODULE, SYMLINK, Entry

LEFTOVER: Final = Rule(
    "leftover-file",
    Severity.MAJOR,
    Topic.HYGIENE,
    "A tool left it behind: it is no part of the product and misleads whoever searches the tree.",
    "git rm it, and add the pattern to .gitignore.",
)
PRODUCT: Final = Rule(
    "build-product",
    Severity.MINOR,
    Topic.HYGIENE,
    "Nobody can review a binary, it grows the history for ever, and it ages apart from its source.",
    "Build it in CI and publish it as an artefact, or keep it in Git LFS.",
)
LARGE: Final = Rule(
    "large-file",
    Severity.MINOR,
    Topic.HYGIENE,
    "Every clone carries every version of it, for ever.",
    "Keep it in Git LFS or outside the repository.",
)
DEAD_LINK: Final = Rule(
    "dead-symlink",
    Severity.MINOR,
    Topic.CORRECTNESS,
    "The link leads to nothing in this tree.",
    "Correct its target, or delete it.",
)
OUTSIDE_LINK: Final = Rule(
    "symlink-outside",
    Severity.MAJOR,
    Topic.SECURITY,
    "The link leaves the repository: what follows it reads or writes files of the machine it is on.",
    "Replace it by the file itself, or by a relative link inside the tree.",
)
CASE: Final = Rule(
    "case-collision",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "On macOS and Windows the two are one file: a checkout there loses one of them.",
    "Rename one of them.",
)

_LEFTOVERS: Final = re.compile(
    r"\.(?:orig|rej|swp|swo|bak)\Z|~\Z|(?:^|/)(?:\.DS_Store|Thumbs\.db|desktop\.ini|npm-debug\.log)\Z"
    r"|(?:^|/)(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.idea|\.venv|venv)/"
)
_PRODUCTS: Final = frozenset(
    {".pyc", ".pyo", ".class", ".o", ".a", ".so", ".dylib", ".dll", ".exe", ".jar", ".war", ".whl", ".egg", ".obj"}
    | {".zip", ".tar", ".tgz", ".gz", ".7z", ".rar", ".iso", ".dmg", ".sqlite", ".sqlite3", ".db", ".pkl", ".dump"}
)
_LARGE: Final = 1024 * 1024
_HUGE: Final = 10 * 1024 * 1024
_TEST_PARTS: Final = frozenset({"fixtures", "testdata", "test_data", "tests", "test"})


def _files(tree: Tree) -> Iterator[Finding]:
    for entry in tree.reviewed:
        if entry.mode in {SYMLINK, SUBMODULE}:
            continue
        material = bool(_TEST_PARTS & set(PurePosixPath(entry.path.lower()).parts))
        if _LEFTOVERS.search(entry.path):
            yield Finding(LEFTOVER, entry.path, 0, "Its name is that of a leftover.")
        elif PurePosixPath(entry.path).suffix.lower() in _PRODUCTS and not material:
            yield Finding(PRODUCT, entry.path, 0, f"{_size(entry.size)}.")
        if entry.size > _LARGE:
            severity = Severity.MAJOR if entry.size > _HUGE else None
            yield Finding(LARGE, entry.path, 0, f"{_size(entry.size)}.", severity=severity)


def _size(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MiB" if size >= _LARGE else f"{size / 1024:.1f} KiB"


def _links(tree: Tree) -> Iterator[Finding]:
    """Links are judged by the text git keeps of them; none is ever followed."""
    for entry in tree.reviewed:
        source = tree.read(entry.path) if entry.mode == SYMLINK else None
        if source is None:
            continue
        target = source.data.decode("utf-8", "surrogateescape")
        resolved = resolve(entry.path, target)
        seen = f"It leads to {target[:200]}."
        if resolved is None:
            yield Finding(OUTSIDE_LINK, entry.path, 0, seen, target)
        elif resolved not in tree.entries and resolved not in tree.folders and not _through_link(tree, resolved):
            yield Finding(DEAD_LINK, entry.path, 0, seen, target)


def resolve(path: str, target: str) -> str | None:
    """Where a relative target leads, seen from the folder of a path; None when that is outside of the tree."""
    if target.startswith("/"):
        return None
    parts = list(PurePosixPath(path).parts[:-1])
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _through_link(tree: Tree, path: str) -> bool:
    """Whether a folder on the way is itself a link or a submodule, so that nothing can be said."""
    parents = (str(parent) for parent in PurePosixPath(path).parents)
    return any(parent in tree.entries for parent in parents)


def _cases(tree: Tree) -> Iterator[Finding]:
    same: dict[str, list[str]] = defaultdict(list)
    for path in tree.entries:
        same[path.casefold()].append(path)
    under_review = {entry.path for entry in tree.reviewed}
    for paths in same.values():
        for path in paths if len(paths) > 1 else ():
            if path in under_review:
                other = next(candidate for candidate in paths if candidate != path)
                yield Finding(CASE, path, 0, f"The other one is {other}.")
                break


def folders_of(entries: dict[str, Entry]) -> frozenset[str]:
    """All folders that hold one of the paths; the root is the empty string."""
    folders = {""}
    for path in entries:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


TREE_CHECKS: Final = (
    TreeCheck((LEFTOVER, PRODUCT, LARGE), _files),
    TreeCheck((DEAD_LINK, OUTSIDE_LINK), _links),
    TreeCheck((CASE,), _cases),
)
