"""Risks in Python: statements that run what they should not, or hide that something failed."""

import ast
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.python import name_of
from service.reviewer.source import Source

EVAL: Final = Rule(
    "eval",
    Severity.MAJOR,
    Topic.SECURITY,
    "Text becomes code: whoever influences it runs what they like.",
    "Parse it (`ast.literal_eval`, `json.loads`) or look it up in a table of functions.",
)
SHELL: Final = Rule(
    "shell-true",
    Severity.MAJOR,
    Topic.SECURITY,
    "A shell reads the command, so a `;` or `$(…)` in a value becomes a command of its own.",
    "Pass a list of arguments and no shell.",
)
UNVERIFIED: Final = Rule(
    "tls-unverified",
    Severity.MAJOR,
    Topic.SECURITY,
    "Without checking the certificate, anybody on the way can read and change the traffic.",
    "Leave verification on; for a private authority pass its certificate.",
)
UNSAFE_LOAD: Final = Rule(
    "unsafe-load",
    Severity.MAJOR,
    Topic.SECURITY,
    "This loader builds any object the file asks for, which includes running commands.",
    "Use `yaml.safe_load`, or JSON instead of pickle for data from outside.",
)
MKTEMP: Final = Rule(
    "mktemp",
    Severity.MINOR,
    Topic.SECURITY,
    "Between choosing the name and opening the file somebody else can put a link there.",
    "Use `tempfile.mkstemp` or `NamedTemporaryFile`.",
)
BARE: Final = Rule(
    "bare-except",
    Severity.MINOR,
    Topic.CORRECTNESS,
    "It catches KeyboardInterrupt and SystemExit, too, so the program cannot be stopped here.",
    "Name the exceptions that are expected.",
)
SWALLOWED: Final = Rule(
    "swallowed-exception",
    Severity.MINOR,
    Topic.CORRECTNESS,
    "Any failure, a mistyped name included, vanishes without a trace.",
    "Catch the exception that is expected, and say in a comment or a log why it may pass.",
)
BREAKPOINT: Final = Rule(
    "breakpoint",
    Severity.MAJOR,
    Topic.CORRECTNESS,
    "Nobody attends a debugger in production, so the process stops here.",
    "Remove the statement.",
)
PRINT: Final = Rule(
    "print-left",
    Severity.NOTE,
    Topic.HYGIENE,
    "In a library a print cannot be turned off, and mixes with the output of whoever uses it.",
    "Use logging, or remove it.",
)

_EVALS: Final = frozenset({"eval", "exec", "builtins.eval", "builtins.exec"})
_PROCESSES: Final = frozenset({"run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"})
_SHELLS: Final = frozenset({"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"})
_CLIENTS: Final = ("requests.", "httpx.", "session.", "client.", "aiohttp.")
_SAFE_LOADERS: Final = frozenset({"SafeLoader", "CSafeLoader", "yaml.SafeLoader", "yaml.CSafeLoader", "BaseLoader"})
_DEBUGGERS: Final = ("breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem")
_NAMED_RULES: Final[dict[str, tuple[Rule, Severity | None]]] = {
    **dict.fromkeys(_DEBUGGERS, (BREAKPOINT, None)),
    # Pickles of one's own are common and harmless; whether they come from outside cannot be seen here.
    **dict.fromkeys(("pickle.load", "pickle.loads", "marshal.loads", "dill.loads"), (UNSAFE_LOAD, Severity.NOTE)),
    "yaml.unsafe_load": (UNSAFE_LOAD, None),
    "ssl._create_unverified_context": (UNVERIFIED, None),
    "tempfile.mktemp": (MKTEMP, None),
}
_BROAD: Final = frozenset({"Exception", "BaseException"})
_SCRIPT_FOLDERS: Final = frozenset(
    {"scripts", "bin", "tools", "examples", "bench", "benchmarks", "cli", "docs", "commands", "migrations"}
)
_SCRIPT_NAMES: Final = frozenset(
    {"__main__.py", "setup.py", "manage.py", "cli.py", "noxfile.py", "tasks.py", "main.py"}
)


def _calls(source: Source) -> Iterator[Finding]:
    module = source.module
    if module is None:
        return
    script = _is_script(source)
    for call in module.each(ast.Call):
        name = name_of(call.func)
        rule, severity = _call_rule(name, call) if name else (None, None)
        if rule is None and name == "print" and not script and not call.keywords:
            rule = PRINT
        if rule is None or (source.test and rule not in {BREAKPOINT, SHELL}):
            continue
        line = source.line(call.lineno)
        yield Finding(rule, source.path, call.lineno, f"{name}(…)", line, severity)


def _call_rule(name: str, call: ast.Call) -> tuple[Rule | None, Severity | None]:
    """The rule a call breaks, and its severity when it is not the usual one."""
    if name in _NAMED_RULES:
        return _NAMED_RULES[name]
    if name in _EVALS and call.args and not isinstance(call.args[0], ast.Constant):
        return EVAL, None
    if _shell(name, call):
        # A fixed text cannot be steered from outside.
        fixed = bool(call.args) and isinstance(call.args[0], ast.Constant)
        return SHELL, Severity.MINOR if fixed else None
    if name.lower().startswith(_CLIENTS) and _says(call, "verify", value=False):
        return UNVERIFIED, None
    if name == "yaml.load" and not _loads_safely(call):
        return UNSAFE_LOAD, None
    return None, None


def _shell(name: str, call: ast.Call) -> bool:
    return name in _SHELLS or (name.rpartition(".")[2] in _PROCESSES and _says(call, "shell", value=True))


def _says(call: ast.Call, argument: str, *, value: bool) -> bool:
    found = [keyword.value for keyword in call.keywords if keyword.arg == argument]
    return any(isinstance(given, ast.Constant) and given.value is value for given in found)


def _loads_safely(call: ast.Call) -> bool:
    loaders = [keyword.value for keyword in call.keywords if keyword.arg == "Loader"] + list(call.args[1:2])
    return any(name_of(loader) in _SAFE_LOADERS for loader in loaders)


def _is_script(source: Source) -> bool:
    """Whether printing is what the file is for."""
    named = source.name in _SCRIPT_NAMES or bool(source.folders & _SCRIPT_FOLDERS) or source.test
    return named or source.text.startswith("#!") or "__main__" in source.text or "/" not in source.path


def _handlers(source: Source) -> Iterator[Finding]:
    module = source.module
    if module is None:
        return
    for handler in module.each(ast.ExceptHandler):
        rule = _handler_rule(handler)
        if rule is not None:
            line = source.line(handler.lineno)
            # The lines of a handler look alike everywhere: its first statement tells them apart.
            inside = source.line(handler.body[0].lineno)
            yield Finding(rule, source.path, handler.lineno, line.strip(), f"{line} {inside}")


def _handler_rule(handler: ast.ExceptHandler) -> Rule | None:
    if handler.type is None:
        raises = any(isinstance(node, ast.Raise) for part in handler.body for node in ast.walk(part))
        return None if raises else BARE
    broad = name_of(handler.type) in _BROAD
    return SWALLOWED if broad and all(_does_nothing(part) for part in handler.body) else None


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Continue)


CHECKS: Final = (
    FileCheck((EVAL, SHELL, UNVERIFIED, UNSAFE_LOAD, MKTEMP, BREAKPOINT, PRINT), _calls),
    FileCheck((BARE, SWALLOWED), _handlers),
)
