"""Syntax: what no interpreter or parser will read."""

import json
import re
import sys
import tomllib
import xml.parsers.expat
from collections.abc import Callable, Iterator
from typing import Any, Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.python import PythonModule, Unreadable
from service.reviewer.source import Source

PYTHON: Final = Rule(
    "python-syntax",
    Severity.BLOCKER,
    Topic.CORRECTNESS,
    "The module cannot be imported at all.",
    "Correct the line, and let `python -m compileall` run before a commit.",
)
WARNING: Final = Rule(
    "python-syntax-warning",
    Severity.MINOR,
    Topic.CORRECTNESS,
    "The compiler accepts the line but says that it hardly means what was intended; some become errors later.",
    "Write what is meant; for a backslash, a raw string.",
)
DATA: Final = Rule(
    "data-syntax",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "Whatever reads this file fails.",
    "Correct the place named; the parser's own words are quoted.",
)
REPEATED: Final = Rule(
    "repeated-key",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "A key stands twice in one object; the last wins, and the first is lost without a word.",
    "Keep one of them.",
)

_NEWER: Final = re.compile(r"^\s*(?:type\s+\w+(?:\[|\s*=)|(?:async\s+)?def\s+\w+\[|class\s+\w+\[)")
_TWO: Final = re.compile(r"Missing parentheses in call to 'print'|multiple exception types must be parenthesized")
_COMMENTED_JSON: Final = re.compile(r"(?:^|/)(?:\.vscode|\.devcontainer)/|tsconfig[\w.-]*\.json\Z|\.eslintrc|jsconfig")
_XML: Final = frozenset({".xml", ".svg", ".xsd", ".xsl", ".xslt", ".csproj", ".plist", ".resx"})
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%|\$\{")
_MESSAGE: Final = 200
_XML_DEPTH: Final = 2_000


class _RepeatedKeyError(Exception):
    """A JSON object names a key twice."""


class _TooDeepError(Exception):
    """The document is nested deeper than anything written by hand."""


def _python(source: Source) -> Iterator[Finding]:
    module = source.python
    if isinstance(module, PythonModule):
        if not source.foreign:
            for line, said in module.warnings:
                yield Finding(WARNING, source.path, line, f"{said[:_MESSAGE]}.", source.line(line))
    elif isinstance(module, Unreadable) and module.wrong and not _TEMPLATE.search(source.line(module.line)):
        text = source.line(module.line)
        message, severity = _judged(module, text)
        severity = Severity.NOTE if source.fixture else severity
        yield Finding(PYTHON, source.path, module.line, message, text, severity)


def _judged(module: Unreadable, line: str) -> tuple[str, Severity | None]:
    """Another Python's syntax is no error of the author's: say so, and weigh it less."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _NEWER.match(line) or module.reason.startswith("f-string"):
        return f"Python {mine} does not parse it ({module.reason[:_MESSAGE]}); a newer one may.", Severity.NOTE
    if _TWO.search(module.reason):
        return f"This is Python 2: {module.reason[:_MESSAGE]}", Severity.MAJOR
    return f"{module.reason[:_MESSAGE]} (parsed as Python {mine}).", None


def _data(source: Source) -> Iterator[Finding]:
    parse = _parser(source)
    if parse is None or not source.text.strip():
        return
    severity = Severity.NOTE if source.fixture else None
    try:
        parse(source.text)
    except _RepeatedKeyError as error:
        yield Finding(REPEATED, source.path, 0, f"The key is {str(error)[:_MESSAGE]}.", str(error), severity)
    except json.JSONDecodeError as error:
        seen = f"{error.msg}, column {error.colno}."
        yield Finding(DATA, source.path, error.lineno, seen, source.line(error.lineno), severity)
    except xml.parsers.expat.ExpatError as error:
        yield Finding(DATA, source.path, error.lineno, f"{error}.", source.line(error.lineno), severity)
    except ValueError as error:
        yield Finding(DATA, source.path, 0, f"{str(error)[:_MESSAGE]}.", "", severity)
    except (RecursionError, _TooDeepError):
        return  # too deep to judge, which says nothing about its syntax


def _parser(source: Source) -> Callable[[str], Any] | None:
    """The parser for a file, None when it has none or is a template of another language."""
    if source.foreign or (_TEMPLATE.search(source.text) and "templat" in source.path.lower()):
        return None
    if source.suffix == ".json" and not _COMMENTED_JSON.search(source.path):
        return _parse_json
    if source.suffix == ".toml":
        return tomllib.loads
    # A document type can define entities that grow without bound: such files are left alone.
    if source.suffix in _XML and "<!DOCTYPE" not in source.text and "<!ENTITY" not in source.text:
        return _parse_xml
    return None


def _parse_json(text: str) -> None:
    def pairs(items: list[tuple[str, Any]]) -> None:
        keys = set()
        for key, _ in items:
            if key in keys:
                raise _RepeatedKeyError(key)
            keys.add(key)

    json.loads(text, object_pairs_hook=pairs, parse_int=str)


def _parse_xml(text: str) -> None:
    parser = xml.parsers.expat.ParserCreate()
    depth = 0

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _XML_DEPTH:
            raise _TooDeepError

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.Parse(text, True)  # noqa: FBT003 — expat's own signature, positional only


TEXT_CHECKS: Final = (FileCheck((DATA, REPEATED), _data),)
CODE_CHECKS: Final = (FileCheck((PYTHON, WARNING), _python),)
