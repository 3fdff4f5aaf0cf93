"""Text of any language: leftovers of a merge or a debugging session, data that does not parse, unpinned versions."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.secrets import excerpt
from service.reviewer.finding import CheckRule, ReviewFinding, Severity
from service.reviewer.source import SourceFile

_OPEN: Final = re.compile(r"^<{7}(?: |$)")
_MIDDLE: Final = re.compile(r"={7}$")
_CLOSE: Final = re.compile(r"^>{7}(?: |$)")
_TODO: Final = re.compile(r"(?:#|//|/\*|\*|--|;|<!--|%)\s{0,3}(?:.{0,40}\W)?(TODO|FIXME|XXX|HACK)\b(?!-)")
_ISSUE: Final = re.compile(r"#\d+|https?://|[A-Z]{2,10}-\d+")
_JAVASCRIPT: Final = re.compile(r"^\s*(?:debugger\s*;?\s*$|(?:describe|it|test|context)\.only\()")
_STATEMENTS: Final = dict.fromkeys((".js", ".jsx", ".ts", ".tsx", ".vue", ".mjs"), _JAVASCRIPT) | {
    ".rb": re.compile(r"^\s*(?:binding\.(?:pry|irb)|byebug)\b")
}
_STATEMENT_HINTS: Final = ("debugger", ".only(", "binding.", "byebug")
_BIDI: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_BIDI_CONTROL: Final = re.compile(f"[{_BIDI}]")
_PROSE: Final = frozenset({".md", ".txt", ".rst", ".html", ".po", ".json", ".properties"})
_COMMENTED_JSON: Final = re.compile(r"(?:^|/)(?:\.vscode|\.devcontainer)/|tsconfig[\w.-]*\.json\Z|\.eslintrc|jsconfig")
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%|\$\{")
_REQUIREMENTS: Final = re.compile(r"(?:^|[-_.])requirements(?:[-_.][\w-]+)*\.txt\Z|(?:^|/)requirements/[^/]+\.txt\Z")
_UNPINNED: Final = re.compile(r"^\s*[A-Za-z0-9][\w.\-]*(?:\[[^\]]*\])?\s*(?![^#]*(?:==|@|://))")
_FROM: Final = re.compile(r"^FROM\s+(?:--\S+\s+)?(\S*/[^\s:@$]+(?::latest)?|[^\s:@$]+:latest)(?=\s|$)", re.IGNORECASE)
"""An image without a fixed version. A bare name is left out: it may be an earlier stage of the build."""
_EXCERPT: Final = 120


def _conflicts(source: SourceFile) -> Iterator[ReviewFinding]:
    """Report the opening markers of a file that also has a closing one: a row of `=` alone is a heading."""
    opened = [number for number, _, _ in source.search(_OPEN, "<<<<<<<")]
    closed = [number for number, _, _ in source.search(_CLOSE, ">>>>>>>")]
    if not opened or not closed or closed[-1] < opened[0] or not any(_MIDDLE.match(line) for line in source.lines):
        return
    severity = Severity.NOTE if source.is_fixture else None
    for number in opened:
        line = source.line(number)
        yield ReviewFinding(CheckRule.CONFLICT_MARKER, source.path, number, "A conflict begins here.", line, severity)


def _lines(source: SourceFile) -> Iterator[ReviewFinding]:
    if source.is_foreign:
        return
    for number, line, found in source.search(_TODO, "todo", "fixme", "xxx", "hack"):
        if not _ISSUE.search(line, found.end()):
            yield ReviewFinding(CheckRule.TODO, source.path, number, excerpt(line[found.start(1) :], _EXCERPT), line)
    if statement := _STATEMENTS.get(source.suffix):
        for number, line, found in source.search(statement, *_STATEMENT_HINTS):
            rule = CheckRule.FOCUSED_TEST if ".only(" in found[0] else CheckRule.DEBUGGER
            yield ReviewFinding(rule, source.path, number, excerpt(line, _EXCERPT), line)
    if source.suffix not in _PROSE:
        for number, line, found in source.search(_BIDI_CONTROL, *_BIDI):
            seen = f"U+{ord(found[0]):04X} in column {found.start() + 1}."
            yield ReviewFinding(CheckRule.BIDI_CONTROL, source.path, number, seen, line)


def _data(source: SourceFile) -> Iterator[ReviewFinding]:
    """Report JSON and TOML that do not parse, except templates and files that by custom are JSON with comments."""
    is_json = source.suffix == ".json" and not _COMMENTED_JSON.search(source.path)
    template = "templat" in source.path.lower() and _TEMPLATE.search(source.text)
    if source.is_foreign or template or not source.text.strip() or not (is_json or source.suffix == ".toml"):
        return
    severity = Severity.NOTE if source.is_fixture else None
    try:
        if is_json:
            json.loads(source.text, parse_int=str)
        else:
            tomllib.loads(source.text)
    except json.JSONDecodeError as error:
        seen = f"{error.msg}, column {error.colno}."
        yield ReviewFinding(CheckRule.DATA_SYNTAX, source.path, error.lineno, seen, source.line(error.lineno), severity)
    except ValueError as error:
        yield ReviewFinding(CheckRule.DATA_SYNTAX, source.path, 0, f"{excerpt(error, _EXCERPT)}.", "", severity)
    except RecursionError:
        return  # nested too deeply for the parser; the syntax may be correct


def _versions(source: SourceFile) -> Iterator[ReviewFinding]:
    if _REQUIREMENTS.search(source.path):
        for number, line, _ in source.search(_UNPINNED):
            yield ReviewFinding(CheckRule.UNPINNED, source.path, number, excerpt(line, _EXCERPT), line)
    if source.name in {"Dockerfile", "Containerfile"}:
        for number, line, found in source.search(_FROM, "from"):
            yield ReviewFinding(CheckRule.UNPINNED, source.path, number, excerpt(found[1], _EXCERPT), line)


CHECKS: Final = (_conflicts, _lines, _data, _versions)
