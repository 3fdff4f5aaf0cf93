"""Runs reach the cache in one place."""

import ast
from pathlib import Path

APP = Path(__file__).parents[2] / "app"


def callers(method: str) -> list[tuple[str, str]]:
    """Module and function of each call of a method of this name in the program."""
    return [
        (path.relative_to(APP.parent).as_posix(), function.name)
        for path in sorted(APP.rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method
    ]


def test_whatever_stores_runs_goes_through_one_reader() -> None:
    """The cache's `store_runs` has one caller, so that no change of a run is stored without the doorbell ringing."""
    assert callers("store_runs") == [("app/sync/reader.py", "store")]
