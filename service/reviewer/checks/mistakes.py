"""Mistakes in Python that parse, run, and do something else than they say."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.python import Function, name_of
from service.reviewer.source import Source

MUTABLE: Final = Rule(
    "mutable-default",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "The default is made once: what one call adds, the next call finds.",
    "Default to None and make the list, dict or set inside.",
)
REDEFINED: Final = Rule(
    "redefinition",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "The second definition replaces the first, which is never used; of two tests only one runs.",
    "Rename one of them, or delete the one that is not wanted.",
)
UNREACHABLE: Final = Rule(
    "unreachable",
    Severity.MINOR,
    Topic.CORRECTNESS,
    "The statement before it leaves the block, so this one never runs.",
    "Delete it, or move it up.",
)
NOT_IMPLEMENTED: Final = Rule(
    "raise-notimplemented",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "NotImplemented is a value for comparisons; raising it ends in a TypeError.",
    "Raise NotImplementedError.",
)
REPEATED_KEY: Final = Rule(
    "repeated-dict-key",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "The key stands twice in one dict; the last wins, and the first is lost without a word.",
    "Keep one of them.",
)

_MUTABLE_CALLS: Final = frozenset(
    {"list", "dict", "set", "bytearray", "defaultdict", "collections.defaultdict", "deque"}
)
_MUTABLE_NODES: Final = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_LEAVING: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _defaults(source: Source) -> Iterator[Finding]:
    if source.module is None:
        return
    for function in source.module.functions():
        for default in (*function.args.defaults, *function.args.kw_defaults):
            if default is not None and _is_mutable(default):
                line = source.line(default.lineno)
                yield Finding(MUTABLE, source.path, default.lineno, f"A default of {function.name}.", line)


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _MUTABLE_CALLS
    return isinstance(node, _MUTABLE_NODES)


def _redefinitions(source: Source) -> Iterator[Finding]:
    """Two plain definitions of one name, straight in the same body, and no use of the name between them."""
    if source.module is None or source.suffix == ".pyi":
        return
    used = {(node.id, node.lineno) for node in source.module.each(ast.Name) if isinstance(node.ctx, ast.Load)}
    scopes: list[ast.Module | ast.ClassDef] = [source.module.tree, *source.module.each(ast.ClassDef)]
    for scope in scopes:
        seen: dict[str, int] = {}
        for node in scope.body:
            if not isinstance(node, _DEFINITIONS) or node.decorator_list or node.name == "_":
                continue
            before = seen.get(node.name)
            between = before is not None and any(name == node.name and before < at < node.lineno for name, at in used)
            if before is not None and not between:
                seen_text = f"{node.name} replaces the one of line {before}."
                yield Finding(REDEFINED, source.path, node.lineno, seen_text, source.line(node.lineno))
            seen[node.name] = node.lineno


def _unreachable(source: Source) -> Iterator[Finding]:
    if source.module is None:
        return
    blocks = (
        block
        for kind, nodes in source.module.nodes.items()
        if issubclass(kind, ast.stmt | ast.Module | ast.ExceptHandler)
        for node in nodes
        for block in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None))
        if isinstance(block, list)
    )
    for block in blocks:
        for before, after in pairwise(block):
            if isinstance(before, _LEAVING) and not _makes_generator(after):
                seen = f"After the {type(before).__name__.lower()} of line {before.lineno}."
                yield Finding(UNREACHABLE, source.path, after.lineno, seen, source.line(after.lineno))
                break


def _makes_generator(statement: ast.stmt) -> bool:
    """`return` and then `yield` is how an empty generator is written."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(statement))


def _raises(source: Source) -> Iterator[Finding]:
    if source.module is None:
        return
    for node in source.module.each(ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if raised is not None and name_of(raised) == "NotImplemented":
            line = source.line(node.lineno)
            yield Finding(NOT_IMPLEMENTED, source.path, node.lineno, line.strip(), line)


def _keys(source: Source) -> Iterator[Finding]:
    if source.module is None:
        return
    for node in source.module.each(ast.Dict):
        seen: set[tuple[type, object]] = set()
        for key in node.keys:
            if not isinstance(key, ast.Constant):
                continue
            identity = (type(key.value), key.value)
            if identity in seen:
                line = source.line(key.lineno)
                yield Finding(REPEATED_KEY, source.path, key.lineno, f"The key {str(key.value)[:60]}.", line)
            seen.add(identity)


def nesting(function: Function) -> int:
    """The deepest block of a function, its own body counting 0; `elif` goes no deeper."""
    deepest = 0
    stack: list[tuple[ast.AST, int]] = [(node, 0) for node in function.body]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            continue
        inner = depth + 1 if isinstance(node, _BLOCKS) else depth
        deepest = max(deepest, inner)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                follows = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
                stack.append((child, depth if follows else inner))
    return deepest


_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)

CHECKS: Final = (
    FileCheck((MUTABLE,), _defaults),
    FileCheck((REDEFINED,), _redefinitions),
    FileCheck((UNREACHABLE,), _unreachable),
    FileCheck((NOT_IMPLEMENTED,), _raises),
    FileCheck((REPEATED_KEY,), _keys),
)
