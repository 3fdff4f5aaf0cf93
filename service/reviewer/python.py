"""Python files, parsed but never imported: the tree, its nodes by kind, and what the compiler says."""

import ast
import hashlib
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class PythonModule:
    """A module that parses."""

    tree: ast.Module
    nodes: dict[type[ast.AST], list[ast.AST]]
    """Walked once: the walk costs more than most checks."""
    warnings: tuple[tuple[int, str], ...]
    """Line and text of what the compiler warned about."""

    def each(self, *kinds: type[Node]) -> Iterator[Node]:
        """The nodes of the given kinds, in the order of the walk."""
        for kind in kinds:
            yield from self.nodes.get(kind, ())  # type: ignore[misc] # the table is keyed by the kind itself

    def functions(self) -> Iterator[Function]:
        """All functions and methods."""
        yield from self.each(ast.FunctionDef)
        yield from self.each(ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A module that this Python cannot parse."""

    line: int
    """0 when unknown."""
    reason: str
    wrong: bool
    """False: too large or too deep for the parser, which says nothing about the code."""


def parse_python(data: bytes) -> PythonModule | Unreadable:
    """Parse and compile, without running anything."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tree = ast.parse(data)
            compile(tree, "<module>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return Unreadable(error.lineno or 0, error.msg or "invalid syntax", wrong=True)
        except ValueError as error:
            return Unreadable(0, str(error), wrong=True)
        except (RecursionError, MemoryError):
            return Unreadable(0, "nested too deeply for the parser", wrong=False)
    said = {(warning.lineno, str(warning.message)) for warning in caught if warning.category is SyntaxWarning}
    said |= {(warning.lineno, str(warning.message)) for warning in caught if warning.category is DeprecationWarning}
    return PythonModule(tree, _by_kind(tree), tuple(sorted(said)))


def _by_kind(tree: ast.Module) -> dict[type[ast.AST], list[ast.AST]]:
    """All nodes but the contexts of names; twice as fast as ast.walk, which matters for thousands of files."""
    nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        nodes[type(node)].append(node)
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                stack.extend(item for item in value if isinstance(item, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                stack.append(value)
    return dict(nodes)


@dataclass(frozen=True, slots=True)
class Body:
    """What a function does, in a form that can be compared."""

    name: str
    line: int
    digest: str
    """Of parameters and statements, without the function's name, its docstring and all layout."""


def bodies_of(module: PythonModule, least: int) -> tuple[Body, ...]:
    """The bodies of the functions that have at least so many lines."""
    return tuple(
        Body(function.name, function.lineno, digest)
        for function in module.functions()
        if length_of(function) >= least and (digest := _digest(function))
    )


def _digest(function: Function) -> str:
    """Empty when the function is nested too deeply to be written out."""
    statements = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    try:
        text = "\n".join(ast.dump(part) for part in (function.args, *statements))
    except RecursionError:
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def name_of(node: ast.AST) -> str:
    """The dotted name an expression spells, such as `subprocess.run`, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def length_of(function: Function) -> int:
    """Lines from `def` to the end, docstring not counted."""
    end = function.end_lineno or function.lineno
    lines = end - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
