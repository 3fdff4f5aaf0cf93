"""Fixes: only those that provably change nothing but layout."""

import ast
import json
import re
import tomllib
from typing import Any, Final

from service.reviewer.checks.layout import BLANKS, MIXED, NO_NEWLINE, is_mixed
from service.reviewer.source import Source

FIXABLE: Final = frozenset({BLANKS.id, MIXED.id, NO_NEWLINE.id})

_BREAK: Final = re.compile(rb"(?<=[^ \t\n])  \Z")
_PROSE: Final = frozenset({".md", ".markdown", ".txt", ".rst", ".css", ".ini", ".cfg"})
_MARKDOWN: Final = frozenset({".md", ".markdown"})


def fixed(source: Source, rules: frozenset[str]) -> bytes | None:
    """The content without the faults of the given rules; None when nothing can be changed without a doubt.

    Python, JSON and TOML are parsed before and after and must mean the same; prose is changed as it is; other languages
    only get their last newline, because blanks and line ends can be content there.
    """
    data = source.data
    if BLANKS.id in rules:
        data = _provable(source, data, _without_blanks(source, data))
    if MIXED.id in rules and is_mixed(data):
        data = _provable(source, data, data.replace(b"\r\n", b"\n"))
    if NO_NEWLINE.id in rules and data and not data.endswith(b"\n"):
        data += b"\r\n" if b"\r\n" in data else b"\n"
    return data if data != source.data else None


def _without_blanks(source: Source, data: bytes) -> bytes:
    """Line by line; in Markdown the two blanks that break a line stay, in Python the lines of long strings do."""
    kept = _string_lines(source)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        bare = line.removesuffix(b"\r")
        is_break = source.suffix in _MARKDOWN and bool(_BREAK.search(bare))
        if number not in kept and not is_break:
            lines[number - 1] = bare.rstrip(b" \t") + line[len(bare) :]
    return b"\n".join(lines)


def _string_lines(source: Source) -> set[int]:
    """The lines, all but the last, of string literals that run over more than one."""
    lines: set[int] = set()
    if source.module is None:
        return lines
    for node in (*source.module.each(ast.Constant), *source.module.each(ast.JoinedStr)):
        lines.update(range(node.lineno, node.end_lineno or node.lineno))
    return lines


def _provable(source: Source, before: bytes, after: bytes) -> bytes:
    """The new content when it means the same as the old one, else the old one."""
    if source.suffix in _PROSE:
        return after
    old, new = _meaning(source.suffix, before), _meaning(source.suffix, after)
    return after if old is not None and old == new else before


def _meaning(suffix: str, data: bytes) -> Any:
    """What a file says, whatever its layout; None when that is not known."""
    try:
        if suffix in {".py", ".pyi"}:
            return ast.dump(ast.parse(data))
        if suffix == ".json":
            return json.dumps(json.loads(data, parse_float=str))
        if suffix == ".toml":
            return repr(tomllib.loads(data.decode("utf-8")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None
