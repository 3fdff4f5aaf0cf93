"""The service's errors: one root, and what becomes of those that an endpoint does not foresee."""

import re
from pathlib import Path
from typing import Final

import httpx
import pytest
from fastapi import FastAPI

import service.errors
from service.api import errors
from service.execution.git import GitCommandError

SOURCES: Final = Path(service.errors.__file__).parent
OTHER_BASE: Final = {"ServiceError", "InterruptedTurnError", "SupersededError"}


def test_every_error_of_the_service_stands_in_the_tree_below_one_root() -> None:
    """So that each place where errors become visible need only know the root."""
    declared = re.compile(r"^class ([A-Z]\w*Error)\((\w+)\):", re.MULTILINE)
    found = dict(pair for file in SOURCES.rglob("*.py") for pair in declared.findall(file.read_text("utf-8")))
    tree = service.errors.__doc__ or ""

    assert {name for name, base in found.items() if base == "Exception"} == OTHER_BASE
    assert {base for base in found.values() if not base.endswith("Error")} == {"Exception"}
    assert [name for name in found if name not in tree] == []


async def test_an_error_that_no_endpoint_foresees_is_a_500_and_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller learns nothing of the machine, the operator what the error says; a traceback is of faults alone."""
    app = FastAPI()
    errors.install(app, [])

    @app.get("/foreseen-by-none")
    async def fail() -> None:
        raise GitCommandError("git fetch failed: the disk is full")

    @app.get("/fault")
    async def divide() -> float:
        return 1 / 0

    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.get("/foreseen-by-none")
        with pytest.raises(ZeroDivisionError):
            await client.get("/fault")

    assert (answer.status_code, answer.json()["error_code"]) == (500, "internal_error")
    said = [one for one in caplog.records if "the disk is full" in one.getMessage()]
    assert [(one.name, one.exc_info) for one in said] == [("service.api.errors", None)]
