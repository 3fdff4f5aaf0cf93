"""Python: unparsable code, code that runs more than it should, hidden failures, and unused imports."""

import ast
import re
import sys
from collections.abc import Iterator
from typing import Final

from service.reviewer.finding import CheckRule, ReviewFinding, Severity
from service.reviewer.source import SourceFile, Unreadable

_NEWER: Final = re.compile(r"^\s*(?:type\s+\w+(?:\[|\s*=)|(?:async\s+)?def\s+\w+\[|class\s+\w+\[)")
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%|\$\{")
_MESSAGE: Final = 200
_MINE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_EVALS: Final = frozenset({"eval", "exec", "builtins.eval", "builtins.exec"})
_PROCESSES: Final = frozenset({"run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"})
_SHELLS: Final = frozenset({"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"})
_CLIENTS: Final = ("requests.", "httpx.", "session.", "client.", "aiohttp.")
_SAFE_LOADERS: Final = frozenset({"SafeLoader", "CSafeLoader", "yaml.SafeLoader", "yaml.CSafeLoader", "BaseLoader"})
_DEBUGGERS: Final = ("breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem")
_NAMED_CALLS: Final[dict[str, tuple[CheckRule, Severity | None]]] = {
    **dict.fromkeys(_DEBUGGERS, (CheckRule.DEBUGGER, None)),
    # A program's own pickles are common and harmless; whether they come from outside cannot be seen here.
    **dict.fromkeys(
        ("pickle.load", "pickle.loads", "marshal.loads", "dill.loads"), (CheckRule.UNSAFE_LOAD, Severity.NOTE)
    ),
    "yaml.unsafe_load": (CheckRule.UNSAFE_LOAD, None),
    "ssl._create_unverified_context": (CheckRule.TLS_UNVERIFIED, None),
}
_MUTABLE_CALLS: Final = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque"})
_MUTABLE_NODES: Final = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_ANNOTATION: Final = 300
"""A string longer than this is not taken for an annotation."""


def _syntax(source: SourceFile) -> Iterator[ReviewFinding]:
    """Report a module that does not parse; less severely if it may be written for a newer Python."""
    module = source.python
    line = source.line(module.line) if isinstance(module, Unreadable) else ""
    if not isinstance(module, Unreadable) or module.reason is None or _TEMPLATE.search(line):
        return
    severity = Severity.NOTE if source.is_fixture else None
    message = f"{module.reason[:_MESSAGE]} (parsed as Python {_MINE})."
    if _NEWER.match(line) or module.reason.startswith("f-string"):
        message, severity = f"{message} A newer Python may parse it.", Severity.NOTE
    yield ReviewFinding(CheckRule.PYTHON_SYNTAX, source.path, module.line, message, line, severity)


def _calls(source: SourceFile) -> Iterator[ReviewFinding]:
    for call in source.nodes(ast.Call):
        name = _name_of(call.func)
        rule, severity = _call_rule(name, call) if name else (None, None)
        if rule and (not source.is_test or rule in {CheckRule.DEBUGGER, CheckRule.SHELL_TRUE}):
            yield ReviewFinding(rule, source.path, call.lineno, f"{name}(…)", source.line(call.lineno), severity)


def _name_of(node: ast.AST) -> str:
    """The dotted name that the expression is, such as `subprocess.run`; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _call_rule(name: str, call: ast.Call) -> tuple[CheckRule | None, Severity | None]:
    """The rule a call breaks, and its severity when it is not the usual one."""
    if name in _NAMED_CALLS:
        return _NAMED_CALLS[name]
    # A constant argument cannot be influenced from outside.
    fixed = bool(call.args) and isinstance(call.args[0], ast.Constant)
    if name in _EVALS and call.args and not fixed:
        return CheckRule.EVAL, None
    if name in _SHELLS or (name.rpartition(".")[2] in _PROCESSES and _passes(call, "shell", value=True)):
        return CheckRule.SHELL_TRUE, Severity.MINOR if fixed else None
    if name.lower().startswith(_CLIENTS) and _passes(call, "verify", value=False):
        return CheckRule.TLS_UNVERIFIED, None
    if name == "yaml.load":
        loaders = [keyword.value for keyword in call.keywords if keyword.arg == "Loader"] + list(call.args[1:2])
        return (None if any(_name_of(loader) in _SAFE_LOADERS for loader in loaders) else CheckRule.UNSAFE_LOAD), None
    return None, None


def _passes(call: ast.Call, argument: str, *, value: bool) -> bool:
    passed = [keyword.value for keyword in call.keywords if keyword.arg == argument]
    return any(isinstance(node, ast.Constant) and node.value is value for node in passed)


def _handlers(source: SourceFile) -> Iterator[ReviewFinding]:
    for handler in source.nodes(ast.ExceptHandler):
        broad = handler.type is None or _name_of(handler.type) in {"Exception", "BaseException"}
        if broad and all(isinstance(part, ast.Pass | ast.Continue) for part in handler.body):
            line = source.line(handler.lineno)
            yield ReviewFinding(CheckRule.SWALLOWED_EXCEPTION, source.path, handler.lineno, line.strip(), line)


def _defaults(source: SourceFile) -> Iterator[ReviewFinding]:
    for arguments in source.nodes(ast.arguments):
        for default in (*arguments.defaults, *arguments.kw_defaults):
            made = isinstance(default, ast.Call) and _name_of(default.func).rpartition(".")[2] in _MUTABLE_CALLS
            if default is not None and (made or isinstance(default, _MUTABLE_NODES)):
                line = source.line(default.lineno)
                yield ReviewFinding(CheckRule.MUTABLE_DEFAULT, source.path, default.lineno, line.strip(), line)


def _imports(source: SourceFile) -> Iterator[ReviewFinding]:
    if source.name in {"__init__.py", "conftest.py"} or source.suffix == ".pyi":
        return
    used = _used(source)
    tried = {id(node) for block in source.nodes(ast.Try) for node in block.body}
    statements: list[ast.Import | ast.ImportFrom] = [*source.nodes(ast.Import), *source.nodes(ast.ImportFrom)]
    for statement in statements:
        line = source.line(statement.lineno)
        kept = id(statement) in tried or "noqa" in line or "__future__" in line
        for alias in () if kept else statement.names:
            bound = alias.asname or alias.name.split(".")[0]
            if alias.name != "*" and bound not in used and alias.asname != alias.name:
                seen = f"{bound} is imported and never used."
                yield ReviewFinding(CheckRule.UNUSED_IMPORT, source.path, alias.lineno, seen, f"{bound} {line}")


def _used(source: SourceFile) -> set[str]:
    """Every name that is read, and every word of a short string, because it may be an annotation."""
    used = {node.id for node in source.nodes(ast.Name)}
    used.update(node.arg for node in source.nodes(ast.arg))  # a test asks for an imported fixture by name
    for node in source.nodes(ast.Constant):
        if isinstance(node.value, str) and len(node.value) < _ANNOTATION:
            used.update(_WORD.findall(node.value))
    return used


CHECKS: Final = (_syntax, _calls, _handlers, _defaults, _imports)
