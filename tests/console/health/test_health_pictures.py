"""Pictures of the Health room in every state, at two sizes."""

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records.link import PollOutcome
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.health.conftest import Lived, report
from tests.run_board import Board

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


async def failed(scene: Scene, kind: str, message: str, status: int | None = None) -> None:
    for subject in ("runs", "health"):
        outcome = PollOutcome(subject, scene.clock(), kind, message, status)  # type: ignore[arg-type]
        await scene.engine.cache.record_poll(outcome)
    scene.app.screen._reader.ask()
    scene.app._vitals_reader.ask()
    await scene.settle()
    await scene.tick(seconds=1)


@SIZES
async def test_a_past(staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]) -> None:
    """Two hosts, incidents, a silence."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        await scene.sync()

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_flapping(staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]) -> None:
    """A host that comes and goes."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        for number in range(7):
            scene.clock.move(seconds=40)
            status = "unreachable" if number % 2 == 0 else "ok"
            await scene.engine.cache.store_health(report(github="ok", gitlab=status), at=scene.clock())
        await answered(scene)

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_the_link_is_down(
    staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]
) -> None:
    """The hosts are as they were; the link is what is wrong."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        await scene.sync()
        scene.clock.move(minutes=12)
        await failed(scene, "unreachable", "Connection refused by 127.0.0.1:8400")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_the_token_is_refused(
    staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]
) -> None:
    """The link answers; the token is what is wrong."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        await scene.sync()
        scene.clock.move(minutes=3)
        await failed(scene, "not_authorized", "Token expired", 401)

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_nothing_is_known_yet(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """The first answer is still awaited."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_no_host_is_connected(
    staged: Staged, picture: SnapshotAssertion, board: Board, size: tuple[int, int]
) -> None:
    """An installation without hosts."""
    board.health.clear()
    async with staged(size) as scene:
        await scene.press("2")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_hostile_hosts(staged: Staged, picture: SnapshotAssertion, board: Board, size: tuple[int, int]) -> None:
    """Names, statuses, hosts and groups from somebody who means harm."""
    board.health = {
        "[red]x\x1b[2J": {"status": "[/b]\x9b2J" * 9, "host": "h\x1b]0;t\x07" * 30, "group": "\u202eg"},
        "g" * 400: {"status": "界" * 60, "host": "e\u0301" * 90},
    }
    async with staged(size) as scene:
        await scene.press("2")

        assert scene.app.export_screenshot() == picture


async def answered(scene: Scene) -> None:
    """All is answered."""
    for subject in ("runs", "health"):
        await scene.engine.cache.record_poll(PollOutcome(subject, scene.clock()))  # type: ignore[arg-type]
    scene.app.screen._reader.ask()
    scene.app._vitals_reader.ask()
    await scene.settle()
    await scene.tick(seconds=1)
