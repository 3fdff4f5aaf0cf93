"""Shape: functions and files that nobody can hold in mind, and functions that exist twice."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.mistakes import nesting
from service.reviewer.checks.subject import FileCheck, Tree, TreeCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.python import Body, length_of
from service.reviewer.source import Source

LONG_FUNCTION: Final = Rule(
    "long-function",
    Severity.MINOR,
    Topic.DESIGN,
    "Nobody sees the beginning and the end at once, and tests can reach its middle only through its whole.",
    "Give its steps names: one function each.",
)
LONG_FILE: Final = Rule(
    "long-file",
    Severity.MINOR,
    Topic.DESIGN,
    "A file of that length has more than one subject.",
    "Split it by subject.",
)
DEEP: Final = Rule(
    "deep-nesting",
    Severity.MINOR,
    Topic.DESIGN,
    "At each level the reader has to remember one more condition.",
    "Return early, or move the inner block into a function.",
)
PARAMETERS: Final = Rule(
    "many-parameters",
    Severity.NOTE,
    Topic.DESIGN,
    "Callers mix up the order of so many.",
    "Group those that travel together, and make the rest keyword-only.",
)
TWINS: Final = Rule(
    "duplicate-function",
    Severity.MINOR,
    Topic.DESIGN,
    "The next correction will reach one of the two.",
    "Keep one and call it from both places.",
)

_FUNCTION_LINES: Final = 80
_FILE_LINES: Final = 1_000
_DEPTH: Final = 5
_PARAMETERS: Final = 8
_LANGUAGES: Final = frozenset(
    {".py", ".js", ".jsx", ".ts", ".tsx", ".go", ".rb", ".rs", ".java", ".kt", ".c", ".cc", ".cpp", ".h", ".cs", ".php"}
    | {".sh", ".swift", ".scala", ".vue"}
)


def _functions(source: Source) -> Iterator[Finding]:
    if source.module is None:
        return
    for function in source.module.functions():
        line = source.line(function.lineno)
        lines = length_of(function)
        if lines > _FUNCTION_LINES:
            seen = f"{function.name} has {lines} lines; {_FUNCTION_LINES} are the limit."
            yield Finding(LONG_FUNCTION, source.path, function.lineno, seen, line)
        depth = nesting(function)
        if depth > _DEPTH:
            seen = f"{function.name} nests {depth} blocks; {_DEPTH} are the limit."
            yield Finding(DEEP, source.path, function.lineno, seen, line)
        positional = len(function.args.posonlyargs) + len(function.args.args)
        if positional > _PARAMETERS and not source.test:
            seen = f"{function.name} takes {positional} positional parameters."
            yield Finding(PARAMETERS, source.path, function.lineno, seen, line)


def _files(source: Source) -> Iterator[Finding]:
    if source.suffix in _LANGUAGES and not source.foreign and len(source.lines) > _FILE_LINES:
        yield Finding(LONG_FILE, source.path, 0, f"{len(source.lines)} lines; {_FILE_LINES} are the limit.")


def _twins(tree: Tree) -> Iterator[Finding]:
    """Tests may repeat themselves."""
    places: dict[str, list[tuple[Source, Body]]] = defaultdict(list)
    for source in tree.sources.values():
        for body in () if source.test or source.foreign else source.bodies:
            places[body.digest].append((source, body))
    for same in places.values():
        first_source, first = same[0]
        for source, body in same[1:]:
            seen = f"{body.name} does the same as {first.name} in {first_source.path}, line {first.line}."
            yield Finding(TWINS, source.path, body.line, seen, source.line(body.line))


TEXT_CHECKS: Final = (FileCheck((LONG_FILE,), _files),)
CODE_CHECKS: Final = (FileCheck((LONG_FUNCTION, DEEP, PARAMETERS), _functions),)
TREE_CHECKS: Final = (TreeCheck((TWINS,), _twins),)
