"""Pictures of an import: asked whether to send, stopped in the middle, without a file."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged
from tests.console.imports.steps import creating, importing
from tests.fault_server import Drop, FaultServer, Received

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


@pytest.fixture
def fixed_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> Path:
    """A file whose name is the same in every picture."""
    monkeypatch.chdir(tmp_path)
    return Path(file.name)


async def test_picture_of_the_rows(
    staged: Staged, server: FaultServer, fixed_place: Path, picture: SnapshotAssertion
) -> None:
    """Asked whether to send."""
    async with importing(staged, server, fixed_place, SMALL) as scene:
        await scene.press("ctrl+s")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_picture_of_an_import_that_stopped(
    staged: Staged, server: FaultServer, fixed_place: Path, picture: SnapshotAssertion, size: tuple[int, int]
) -> None:
    """One created, one unknown, the rest waiting."""
    server.script(creating(Received("POST", "/", {}, b'{"email": "ada@globex.example"}')), Drop())
    async with importing(staged, server, fixed_place, size) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        scene.clock.move(minutes=3)
        await scene.tick(seconds=1)

        assert scene.app.export_screenshot() == picture


async def test_picture_of_no_file(staged: Staged, server: FaultServer, picture: SnapshotAssertion) -> None:
    """Before one is named."""
    async with importing(staged, server, None, SMALL) as scene:
        assert scene.app.export_screenshot() == picture
