"""A public class's name means one thing in the program."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_class_name_has_two_meanings() -> None:
    """A reader who searches for a class finds one."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in (path for package in ("app", "widgets", "storage") for path in (ROOT / package).rglob("*.py")):
        if "samples" not in path.parts:
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(path.relative_to(ROOT)))

    assert len(homes) > 500
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
