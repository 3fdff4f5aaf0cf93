"""Leftovers: what an unfinished merge or a debugging session leaves in the lines of a file."""

import re
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

CONFLICT: Final = Rule(
    "conflict-marker",
    Severity.BLOCKER,
    Topic.CORRECTNESS,
    "The merge was committed before it was resolved: both versions and the markers are in the file.",
    "Decide for one version, delete the markers, and run the tests again.",
)
TODO: Final = Rule(
    "todo",
    Severity.NOTE,
    Topic.HYGIENE,
    "A remark in the code has no owner and no date.",
    "Do it now, or open an issue and name its number here.",
)
DEBUGGER: Final = Rule(
    "debugger",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "Nobody attends a debugger in production, so the process stops here.",
    "Remove the statement.",
)
ONLY: Final = Rule(
    "focused-test",
    Severity.MAJOR,
    Topic.TESTS,
    "All other tests of the file are silently left out.",
    "Remove `.only`, and let the linter refuse it.",
)
BIDI: Final = Rule(
    "bidi-control",
    Severity.MAJOR,
    Topic.SECURITY,
    "Invisible characters change the order in which the line is shown, so it does not say what it does.",
    "Delete them, or write them as escapes.",
)

_OPEN: Final = re.compile(r"<{7}(?: |$)")
_MIDDLE: Final = re.compile(r"={7}$")
_CLOSE: Final = re.compile(r">{7}(?: |$)")
_TODO: Final = re.compile(r"(?:#|//|/\*|\*|--|;|<!--|%)\s{0,3}(?:.{0,40}\W)?(TODO|FIXME|XXX|HACK)\b(?!-)")
_ISSUE: Final = re.compile(r"#\d+|https?://|[A-Z]{2,10}-\d+")
_DEBUGGERS: Final = {
    **dict.fromkeys((".js", ".jsx", ".ts", ".tsx", ".vue", ".mjs"), re.compile(r"^\s*debugger\s*;?\s*$")),
    ".rb": re.compile(r"^\s*(?:binding\.(?:pry|irb)|byebug)\b"),
}
_ONLY: Final = re.compile(r"^\s*(?:describe|it|test|context)\.only\(")
_ONLY_SUFFIXES: Final = frozenset({".js", ".jsx", ".ts", ".tsx", ".mjs"})
_BIDI: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_EXCERPT: Final = 120


def _conflicts(source: Source) -> Iterator[Finding]:
    """A marker counts when the file has an opening and a closing one: a row of `=` alone is a heading."""
    if "<<<<<<<" not in source.text or ">>>>>>>" not in source.text:
        return
    opened = [number for number, line in enumerate(source.lines, start=1) if _OPEN.match(line)]
    closed = [number for number, line in enumerate(source.lines, start=1) if _CLOSE.match(line)]
    middle = any(_MIDDLE.match(line) for line in source.lines)
    if not opened or not closed or not middle or closed[-1] < opened[0]:
        return
    for number in opened:
        severity = Severity.NOTE if source.fixture else None
        yield Finding(CONFLICT, source.path, number, "A conflict begins here.", source.line(number), severity)


def _todos(source: Source) -> Iterator[Finding]:
    if source.foreign:
        return
    for number in source.lines_with("todo", "fixme", "xxx", "hack"):
        line = source.line(number)
        found = _TODO.search(line)
        if found and not _ISSUE.search(line, found.end()):
            yield Finding(TODO, source.path, number, line[found.start(1) :].strip()[:_EXCERPT], line)


def _debuggers(source: Source) -> Iterator[Finding]:
    pattern = _DEBUGGERS.get(source.suffix)
    if pattern is not None and not source.foreign:
        for number, line in enumerate(source.lines, start=1):
            if pattern.match(line):
                yield Finding(DEBUGGER, source.path, number, line.strip(), line)
    if source.suffix in _ONLY_SUFFIXES and ".only(" in source.text:
        for number, line in enumerate(source.lines, start=1):
            if _ONLY.match(line):
                yield Finding(ONLY, source.path, number, line.strip()[:_EXCERPT], line)


def _bidi(source: Source) -> Iterator[Finding]:
    if source.text.isascii() or source.suffix in {".md", ".txt", ".rst", ".html", ".po", ".json", ".properties"}:
        return
    for number, line in enumerate(source.lines, start=1):
        found = _BIDI.search(line)
        if found:
            seen = f"U+{ord(found[0]):04X} in column {found.start() + 1}."
            yield Finding(BIDI, source.path, number, seen, line)


CHECKS: Final = (
    FileCheck((CONFLICT,), _conflicts),
    FileCheck((TODO,), _todos),
    FileCheck((DEBUGGER, ONLY), _debuggers),
    FileCheck((BIDI,), _bidi),
)
