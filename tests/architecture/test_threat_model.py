"""docs/run/security.md names the tests that show what it says: each of them is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "run" / "security.md").read_text(encoding="utf-8")


def test_each_test_that_the_threat_model_names_exists() -> None:
    """A test that is renamed or removed is noticed on the page that relies on it."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for source in sources for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)}
    named = set(re.findall(r"\b(test_\w+)", PAGE))

    assert named
    assert sorted(named - there) == []


def test_no_threat_is_without_its_test() -> None:
    """Every row of the tables of threats ends with the name of a test."""
    tables = re.findall(r"^\| they may try .*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    threats = [row for table in tables for row in table.splitlines()]

    assert len(tables) == PAGE.count("| they may try ")
    assert [row for row in threats if "`test_" not in row.split("|")[3]] == []
