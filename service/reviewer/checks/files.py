"""Files and their tree: those that do not belong there, links that lead out of it, missing tests and pages."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from service.reviewer.checks.secrets import excerpt
from service.reviewer.finding import CheckRule, ReviewFinding
from service.reviewer.git import FILE_BYTES, SUBMODULE, SYMLINK, TreeEntry
from service.reviewer.source import PROGRAMS, SourceFile

_LEFTOVERS: Final = re.compile(
    r"\.(?:orig|rej|swp|swo|bak)\Z|~\Z|(?:^|/)(?:\.DS_Store|Thumbs\.db|desktop\.ini|npm-debug\.log)\Z"
    r"|(?:^|/)(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.idea|\.venv|venv)/"
)
_PRODUCTS: Final = frozenset(
    {".pyc", ".pyo", ".class", ".o", ".a", ".so", ".dylib", ".dll", ".exe", ".jar", ".war", ".whl", ".egg", ".obj"}
    | {".zip", ".tar", ".tgz", ".gz", ".7z", ".rar", ".iso", ".dmg", ".sqlite", ".sqlite3", ".db", ".pkl", ".dump"}
)
_MIB: Final = 1024 * 1024
_NEED_NO_TEST: Final = frozenset(
    {"__init__", "__main__", "setup", "conftest", "manage", "settings", "config", "version", "noxfile", "index", "doc"}
)
_FOLDERS_WITHOUT_TESTS: Final = frozenset({"migrations", "examples", "docs", "scripts", "bench", "benchmarks", "tools"})
_TEST_SUFFIXES: Final = PROGRAMS - {".rs", ".java", ".sh", ".c"}
_CODE: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class|function|func|export)\b|=>|\bmodule\.exports\b", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_LINK: Final = re.compile(r"!?\[[^\]\n]{0,300}\]\(\s{0,3}<?([^\s()<>]{1,400})>?(?:\s[^)\n]{0,200})?\)")
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)")
_INLINE_CODE: Final = re.compile(r"`[^`\n]{0,500}`")
_ELSEWHERE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*:|//|#|\{|\$|<|@")


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit, and which of its files are under review."""

    entries: Mapping[str, TreeEntry]
    """All paths of the commit, earlier reviews included."""
    reviewed: Sequence[TreeEntry]
    """The files under review, links and submodules included."""
    sources: Mapping[str, SourceFile]
    """The contents of those files that were read."""
    read: Callable[[str], SourceFile | None]
    """The content of any other file; None when it is too large, missing, or time is up."""


def _misplaced(tree: Tree) -> Iterator[ReviewFinding]:
    for entry in tree.reviewed:
        if entry.mode in {SYMLINK, SUBMODULE}:
            continue
        size = f"{entry.size / _MIB:.1f} MiB." if entry.size >= _MIB else f"{entry.size / 1024:.1f} KiB."
        if _LEFTOVERS.search(entry.path):
            yield ReviewFinding(CheckRule.LEFTOVER_FILE, entry.path, 0, "Its name is that of a leftover.")
        elif PurePosixPath(entry.path).suffix.lower() in _PRODUCTS and not SourceFile(entry.path, b"").is_fixture:
            yield ReviewFinding(CheckRule.BUILD_PRODUCT, entry.path, 0, size)
        if entry.size > _MIB:
            yield ReviewFinding(CheckRule.LARGE_FILE, entry.path, 0, size)


def _links_outside(tree: Tree) -> Iterator[ReviewFinding]:
    """Report links that lead out of the tree, by the target that git stores; no link is followed."""
    for entry in tree.reviewed:
        source = tree.read(entry.path) if entry.mode == SYMLINK else None
        target = source.data.decode("utf-8", "surrogateescape") if source else ""
        if source and (target.startswith("/") or _resolve(entry.path, target) is None):
            yield ReviewFinding(
                CheckRule.SYMLINK_OUTSIDE, entry.path, 0, f"It leads to {excerpt(target, 200)}.", target
            )


def _resolve(path: str, target: str) -> str | None:
    """The path that a relative link in the file at `path` leads to, or None when it is outside of the tree."""
    parts = list(PurePosixPath(path).parts[:-1])
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _untested(tree: Tree) -> Iterator[ReviewFinding]:
    modules = [source for source in tree.sources.values() if _wants_test(source)]
    tests = [
        path for path in tree.entries if PurePosixPath(path).suffix in _TEST_SUFFIXES and SourceFile(path, b"").is_test
    ]
    if modules and not tests:
        seen = f"Files with code under review: {len(modules)}. Test files in the tree: 0."
        yield ReviewFinding(CheckRule.NO_TESTS, ".", 0, seen)
        return
    words: set[str] = set()
    for path in tests if modules else ():
        source = tree.read(path)
        if source is None and tree.entries[path].size <= FILE_BYTES:
            return  # time is up
        words.update(re.split(r"^test_|[_.](?:test|spec)$", PurePosixPath(path).stem.lower()))
        words.update(_WORD.findall(source.lowered) if source else ())
    for module in modules:
        stem = PurePosixPath(module.path).stem
        if stem.lower() not in words:
            yield ReviewFinding(
                CheckRule.MISSING_TEST, module.path, 0, f"None of {len(tests)} test files mentions {stem}."
            )


def _wants_test(source: SourceFile) -> bool:
    if source.suffix not in _TEST_SUFFIXES or source.is_test or PurePosixPath(source.path).stem in _NEED_NO_TEST:
        return False
    return not source.folders & _FOLDERS_WITHOUT_TESTS and not source.is_foreign and bool(_CODE.search(source.text))


def folders_of(entries: Mapping[str, TreeEntry]) -> frozenset[str]:
    """All folders that hold one of the paths; the root is the empty string."""
    folders = {""}
    for path in entries:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def broken_links(source: SourceFile, known: frozenset[str]) -> Iterator[ReviewFinding]:
    """Relative links of a Markdown page without a known target."""
    if source.suffix not in {".md", ".markdown"} or source.is_foreign or source.is_fixture:
        return
    fenced = False
    for number, line in enumerate(source.lines, start=1):
        fenced ^= bool(_FENCE.match(line))
        for link in () if fenced or "](" not in line else _LINK.finditer(_INLINE_CODE.sub("", line)):
            bare = unquote(re.split(r"[?#]", link[1], maxsplit=1)[0])
            resolved = _resolve("" if bare.startswith("/") else source.path, bare)
            # A link out of the tree may lead to another page of the code host.
            if not _ELSEWHERE.match(link[1]) and resolved is not None and resolved not in known:
                yield ReviewFinding(CheckRule.BROKEN_LINK, source.path, number, f"{link[1]} is not in the tree.", line)


CHECKS: Final = (_misplaced, _links_outside, _untested)
