"""The service's errors: one root, and what becomes of those that an endpoint does not foresee."""

import httpx
import pytest
from fastapi import FastAPI

from service.api import errors
from service.execution.git import GitCommandError


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
