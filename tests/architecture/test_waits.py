"""Tests wait with the functions of tests/waiting.py, which have a deadline; a loop that sleeps could hang."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PACED = {
    "waiting.py": "it is what the others use",
    "lab.py": "a server that answers slowly, because a test asked for it",
}
"""Files that may sleep in a loop, with the reason."""


def sleeps(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in {"sleep", "pause"}


def polling_loops(source: str) -> Iterator[int]:
    """Yield the line of each finite `while` loop that sleeps; an endless one runs in the background."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While):
            inside = [inner for each in node.body for inner in ast.walk(each)]
            is_endless = isinstance(node.test, ast.Constant) and not any(
                isinstance(inner, ast.Break | ast.Return) for inner in inside
            )
            if not is_endless and any(map(sleeps, inside)):
                yield node.lineno


def test_tests_wait_only_through_the_waiting_kit() -> None:
    """Tests use `eventually` or `until`, which have a deadline and name what they waited for."""
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        if file.relative_to(TESTS).as_posix() not in PACED
        if "while " in (source := file.read_text("utf-8"))
        for line in polling_loops(source)
    ]

    assert found == [], "use eventually() or until() of tests/waiting.py"
