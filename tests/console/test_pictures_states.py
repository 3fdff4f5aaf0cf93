"""Pictures of the screens before any answer and after a good day, and of the states that they share."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from app.engine.events import StorageFailed
from storage.records.activity import PollOutcome
from tests.console.conftest import SMALL, Scene, Staged

ROOMS: Final = ("runs", "health", "organizations", "insights", "automations", "activity", "inbox")
TABS: Final = {room: str(key) for key, room in enumerate(ROOMS, start=1)}
"""Each screen with the key that opens it."""
UNUSABLE: Final = "~/.local/share/runwarden/acme-prod/cache.sqlite3 is not a database. Delete it: it fills again."


async def failing(scene: Scene, kind: str, message: str, status: int | None = None) -> None:
    """Make polls fail from now on."""
    for subject in ("runs", "health"):
        await scene.ended(PollOutcome(subject, scene.clock(), kind, message, status))  # type: ignore[arg-type]
    await scene.tick(seconds=5)


async def unreachable(scene: Scene) -> None:
    scene.clock.move(minutes=12)
    await failing(scene, "unreachable", "Connection refused")


async def unusable(scene: Scene) -> None:
    await scene.ring(StorageFailed(UNUSABLE))


async def in_lab(scene: Scene) -> None:
    for subject in ("runs", "health"):
        await scene.ended(PollOutcome(subject, scene.clock(), in_lab=True))  # type: ignore[arg-type]


async def looked_at(scene: Scene, picture: SnapshotAssertion, *rooms: str) -> None:
    """Opens the screens one after the other and compares their pictures; `run` is the first run in full screen."""
    for room in rooms:
        await scene.press(*(("1", "enter") if room == "run" else (TABS[room],)))
        await scene.tick()

        assert scene.app.export_screenshot() == picture(name=room)
        if room == "run":
            await scene.press("escape")


forbidden = partial(failing, kind="forbidden", message="this needs the scope runs:read or admin", status=403)
STATES: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "hanging": lambda scene: scene.tick(seconds=27),
    "forbidden": forbidden,
    "unusable": unusable,
    "in_lab": in_lab,
}


async def test_pictures_of_a_service_that_stops_answering(staged: Staged, picture: SnapshotAssertion) -> None:
    """Known rows stay, with their age."""
    async with staged(SMALL) as scene:
        await unreachable(scene)
        await looked_at(scene, picture, "runs", "health", "insights", "inbox", "run")


@pytest.mark.parametrize("state", STATES)
async def test_the_header_names_every_state(staged: Staged, picture: SnapshotAssertion, state: str) -> None:
    """The header names each state, and the notice gives the fix.

    `test_pictures_of_a_service_that_stops_answering` covers lasting states in every tab.
    """
    async with staged(SMALL) as scene:
        await STATES[state](scene)

        assert scene.app.export_screenshot() == picture


async def test_pictures_before_the_first_answer(staged: Staged, picture: SnapshotAssertion) -> None:
    """Before the first answer, no screen claims that there is nothing."""
    async with staged(SMALL, synced=False) as scene:
        await looked_at(scene, picture, "runs", "health", "insights")
