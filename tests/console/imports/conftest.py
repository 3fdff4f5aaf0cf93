"""A list to import, and a service that creates what is in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.imports.steps import LIST, creating
from tests.fault_server import FaultServer


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A service that creates what it is asked for."""
    with FaultServer() as server:
        server.otherwise = creating
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four that can be created, one that is no address, one that is there twice."""
    path = tmp_path / "partners.csv"
    path.write_text(LIST, "utf-8")
    return path
