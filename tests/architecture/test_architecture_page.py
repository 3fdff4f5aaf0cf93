"""docs/architecture.md is the map of the code: nothing of `app` is missing from it, and nothing in it is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PARTS = sorted(
    f"app/{path.name}"
    for path in (ROOT / "app").iterdir()
    if (path.suffix == ".py" and path.name != "__init__.py") or (path / "__init__.py").is_file()
)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_program_has_its_line(part: str) -> None:
    """Every package and module directly below `app` is named in the table, with its path."""
    table = [line for line in MAP.splitlines() if line.startswith("| `")]

    assert any(f"`{part}`" in line for line in table)


def test_each_path_on_the_page_exists() -> None:
    """A package that was renamed is renamed on its map as well."""
    named = re.findall(r"`((?:app|widgets|storage|service|tests)/[\w/.]+)`", MAP)

    assert [path for path in named if not (ROOT / path).exists()] == []
