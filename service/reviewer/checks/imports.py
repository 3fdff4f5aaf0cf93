"""Imports of a Python module that nothing in it uses."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.python import PythonModule
from service.reviewer.source import Source

UNUSED: Final = Rule(
    "unused-import",
    Severity.MINOR,
    Topic.HYGIENE,
    "It costs start-up time and tells readers of a dependency that is none.",
    "Delete it; if others import it from here, name it in __all__ or write `import x as x`.",
)

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_TEXT: Final = 300
"""A longer string is no annotation."""
_SKIPPED: Final = frozenset({"__init__.py", "conftest.py"})


def _look(source: Source) -> Iterator[Finding]:
    module = source.module
    if module is None or source.name in _SKIPPED or source.suffix == ".pyi":
        return
    used = _used(module)
    tried = {id(node) for block in module.each(ast.Try) for node in block.body}
    statements: list[ast.Import | ast.ImportFrom] = [*module.each(ast.Import), *module.each(ast.ImportFrom)]
    for statement in statements:
        line = source.line(statement.lineno)
        if id(statement) in tried or "noqa" in line or _is_future(statement):
            continue
        for alias in statement.names:
            bound = alias.asname or alias.name.split(".")[0]
            if alias.name != "*" and bound not in used and alias.asname != alias.name:
                at = alias.lineno
                yield Finding(UNUSED, source.path, at, f"{bound} is imported and never used.", f"{bound} {line}")


def _is_future(statement: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _used(module: PythonModule) -> set[str]:
    """Every name that is read, and, to be on the safe side, every word of a short string: it may be an annotation."""
    used = {node.id for node in module.each(ast.Name)}
    used.update(node.arg for node in module.each(ast.arg))  # a test asks for an imported fixture by name
    for node in module.each(ast.Constant):
        if isinstance(node.value, str) and len(node.value) < _TEXT:
            used.update(_WORD.findall(node.value))
    return used


CHECKS: Final = (FileCheck((UNUSED,), _look),)
