"""A public class's name means one thing in the console, and one in the service."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("packages", [("app", "widgets", "storage"), ("service",)], ids=["console", "service"])
def test_no_class_name_has_two_meanings(packages: tuple[str, ...]) -> None:
    """A reader who searches for a class finds one."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        if "samples" not in path.parts:
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(path.relative_to(ROOT)))

    assert len(homes) > 200
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
