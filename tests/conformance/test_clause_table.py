"""docs/decisions.md leads from every clause of the specification to tests that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent.parent
DECISIONS = TESTS.parent / "docs" / "decisions.md"
SECTIONS = (
    *("2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "3", "4", "4.1", "4.2", "4.3", "4.4", "4.5"),
    *("4.6", "5", "6", "7.1", "7.2", "8", "9"),
)
ROW = re.compile(r"\| (?P<clause>[2-9][.0-9]*-[a-z0-9-]+) \| (?P<says>[^|]+) \| (?P<tests>[^|]+) \|")


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    """Clause to the tests that its row names."""
    rows = [found for line in DECISIONS.read_text("utf-8").splitlines() if (found := ROW.fullmatch(line))]
    assert len({row["clause"] for row in rows}) == len(rows), "a clause has one row"
    return {row["clause"]: re.findall(r"`([^`]+)`", row["tests"]) for row in rows}


def clauses(node: Any) -> Iterator[str]:
    """Yield the clauses that the transcribed specification names, wherever they stand."""
    if isinstance(node, dict):
        yield from node.get("x-clauses", [])
        for key, value in node.items():
            if key != "x-clauses":
                yield from clauses(value)
    elif isinstance(node, list):
        for value in node:
            yield from clauses(value)


def test_every_clause_is_in_the_table_and_no_other(specification: dict[str, Any], table: dict[str, list[str]]) -> None:
    """The transcription and the table were written apart, and name the same clauses, each once."""
    named = list(clauses(specification))

    assert len(named) == len(set(named)), "a clause stands in one place"
    assert set(table) == set(named)


def test_every_section_has_clauses(table: dict[str, list[str]]) -> None:
    """No section was skipped."""
    assert {clause.partition("-")[0] for clause in table} >= set(SECTIONS)


def test_every_named_test_exists(table: dict[str, list[str]]) -> None:
    """Each row names at least one test, and each name is a test function of that file."""
    missing = []
    for clause, tests in table.items():
        assert tests, f"{clause} has no test"
        missing += [f"{clause}: {name}" for name in tests if not exists(name)]

    assert missing == []


def exists(name: str) -> bool:
    place, _, function = name.partition("::")
    file = TESTS / (place if "/" in place else f"service/{place}")
    if not file.is_file() or not function.startswith("test_"):
        return False
    tree = ast.parse(file.read_text("utf-8"))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function for node in tree.body)
