"""Tests that are missing: modules under review that no test names."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from service.reviewer.checks.subject import Tree, TreeCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

MISSING: Final = Rule(
    "missing-test",
    Severity.MINOR,
    Topic.TESTS,
    "No test names the module, so nobody notices when it stops doing what it does.",
    "Add a test that imports it and states what it promises.",
)
NONE: Final = Rule(
    "no-tests",
    Severity.MAJOR,
    Topic.TESTS,
    "The repository has code and not one test: every change is a guess.",
    "Begin with one test of the code this branch touches.",
)

_LANGUAGES: Final = frozenset({".py", ".js", ".jsx", ".ts", ".tsx", ".go", ".rb"})
_UNTESTED: Final = frozenset(
    {"__init__", "__main__", "setup", "conftest", "manage", "settings", "config", "version", "noxfile", "index", "doc"}
)
_UNTESTED_FOLDERS: Final = frozenset({"migrations", "examples", "docs", "scripts", "bench", "benchmarks", "tools"})
_CODE: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class|function|func|export)\b|=>|\bmodule\.exports\b", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_MOST: Final = 1_000
"""Test files read."""
_NAMED: Final = 6
"""Files named of one folder."""


def _look(tree: Tree) -> Iterator[Finding]:
    modules = [source for source in tree.sources.values() if _wants_test(source)]
    if not modules:
        return
    tests = [path for path in tree.entries if _is_test(path)]
    if not tests:
        seen = f"Files with code under review: {len(modules)}. Test files in the tree: 0."
        yield Finding(NONE, ".", 0, seen)
        return
    named = _words(tree, tests)
    if named is None:
        return
    missing = [source.path for source in modules if PurePosixPath(source.path).stem.lower() not in named]
    yield from _by_folder(missing, len(tests)) if tree.whole else _by_file(missing, len(tests))


def _by_file(missing: list[str], tests: int) -> Iterator[Finding]:
    """What a branch brings is named file by file."""
    for path in missing:
        yield Finding(MISSING, path, 0, f"None of {tests} test files mentions {PurePosixPath(path).stem}.")


def _by_folder(missing: list[str], tests: int) -> Iterator[Finding]:
    """Of a whole tree a line for each folder is enough."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in missing:
        folders[str(PurePosixPath(path).parent)].append(PurePosixPath(path).name)
    for folder, names in folders.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        seen = f"None of {tests} test files mentions {', '.join(names[:_NAMED])}{more}."
        yield Finding(MISSING, folder, 0, seen)


def _wants_test(source: Source) -> bool:
    stem = PurePosixPath(source.path).stem
    if source.suffix not in _LANGUAGES or source.test or source.foreign or stem in _UNTESTED:
        return False
    return not source.folders & _UNTESTED_FOLDERS and bool(_CODE.search(source.text))


def _is_test(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in _LANGUAGES and Source(path, b"").test


def _words(tree: Tree, tests: list[str]) -> set[str] | None:
    """Every word of the tests and of their names, in lower case, None when not all could be read."""
    words: set[str] = set()
    if len(tests) > _MOST:
        return None
    for path in tests:
        stem = PurePosixPath(path).stem.lower()
        words.update((stem, re.sub(r"^test_|[_.](?:test|spec)$", "", stem)))
        source = tree.read(path)
        if source is None:
            return None
        words.update(_WORD.findall(source.text.lower()))
    return words


TREE_CHECKS: Final = (TreeCheck((MISSING, NONE), _look),)
