"""Pictures of every room in the states that it shares with the others, at two sizes."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from app.config import Command
from app.events import LinkChanged
from storage.records.link import PollOutcome
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.run_board import Board

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])
TABS: Final = {
    "runs": (),
    "run": ("enter",),
    "health": ("2",),
    "organizations": ("3",),
    "insights": ("4",),
    "activity": ("6",),
}
"""Each with the keys that lead there."""
FROM_THE_START: Final = [room for room in TABS if room != "run"]
UNUSABLE: Final = "~/.local/share/runwarden/acme-prod/cache.sqlite3 is not a database. Delete it: it fills again."
HOSTILE: Final = (
    "\x1b]52;c;eA==\x07[/nope]\u202egnp.exe",
    "表示幅の広い文字列" * 9,
    "👩‍👩‍👧‍👦🏳️‍🌈/" * 8,
    "x" * 4_000,
    "",
    "\r\nsecond line\n\tfourth",
)


async def ended(scene: Scene, outcome: PollOutcome) -> None:
    """A poll ends, as the engine would say it."""
    state = await scene.engine.cache.record_poll(outcome)
    scene.app._ring(LinkChanged(state))
    await scene.settle()


async def failing(scene: Scene, kind: str, message: str, status: int | None = None) -> None:
    """Polls fail from now on."""
    for subject in ("runs", "health"):
        await ended(scene, PollOutcome(subject, scene.clock(), kind, message, status))  # type: ignore[arg-type]
    await scene.tick(seconds=5)


async def unreachable(scene: Scene) -> None:
    scene.clock.move(minutes=12)
    await failing(scene, "unreachable", "Connection refused")


async def refused(scene: Scene) -> None:
    await failing(scene, "not_authorized", "The token has expired", 401)


async def forbidden(scene: Scene) -> None:
    await failing(scene, "forbidden", "The token lacks a scope", 403)


async def limited(scene: Scene) -> None:
    await failing(scene, "rate_limited", "slow down", 429)


async def unusable(scene: Scene) -> None:
    scene.app.storage_failed(UNUSABLE)
    await scene.settle()


async def hanging(scene: Scene) -> None:
    await scene.tick(seconds=27)


async def in_lab(scene: Scene) -> None:
    for subject in ("runs", "health"):
        await ended(scene, PollOutcome(subject, scene.clock(), in_lab=True))  # type: ignore[arg-type]


async def untouched(scene: Scene) -> None:
    await scene.settle()


State = Callable[[Scene], Awaitable[None]]


@SIZES
@pytest.mark.parametrize(
    "state", [unreachable, refused, forbidden, limited, unusable, hanging, in_lab], ids=lambda state: state.__name__
)
@pytest.mark.parametrize("room", TABS)
async def test_after_a_good_day(
    staged: Staged, picture: SnapshotAssertion, room: str, state: State, size: tuple[int, int]
) -> None:
    """What was seen stays, with its age."""
    async with staged(size) as scene:
        await scene.press(*TABS[room])
        await state(scene)

        assert scene.app.export_screenshot() == picture


@SIZES
@pytest.mark.parametrize("state", [untouched, refused, unreachable, unusable], ids=lambda state: state.__name__)
@pytest.mark.parametrize("room", FROM_THE_START)
async def test_before_any_answer(
    staged: Staged, picture: SnapshotAssertion, room: str, state: State, size: tuple[int, int]
) -> None:
    """Nothing is known, and nobody pretends that there is nothing."""
    async with staged(size, synced=False) as scene:
        await scene.press(*TABS[room])
        await state(scene)

        assert scene.app.export_screenshot() == picture


@SIZES
@pytest.mark.parametrize("room", FROM_THE_START)
async def test_a_service_without_anything(
    staged: Staged, picture: SnapshotAssertion, board: Board, room: str, size: tuple[int, int]
) -> None:
    """What would be here, and how it comes about."""
    board.runs.clear()
    board.health = {}
    async with staged(size) as scene:
        await scene.press(*TABS[room])

        assert scene.app.export_screenshot() == picture


@SIZES
@pytest.mark.parametrize("room", FROM_THE_START)
async def test_read_only_without_anything(
    staged: Staged, picture: SnapshotAssertion, board: Board, room: str, size: tuple[int, int]
) -> None:
    """No key is offered that would be refused."""
    board.runs.clear()
    board.health = {}
    async with staged(size, read_only=True) as scene:
        await scene.press(*TABS[room])

        assert scene.app.export_screenshot() == picture


@SIZES
@pytest.mark.parametrize("room", ["runs", "run", "organizations"])
async def test_read_only(staged: Staged, picture: SnapshotAssertion, room: str, size: tuple[int, int]) -> None:
    """Where a key would write: it is dimmed, and the banner says why."""
    async with staged(size, read_only=True) as scene:
        await scene.press(*TABS[room])

        assert scene.app.export_screenshot() == picture


@SIZES
@pytest.mark.parametrize("room", ["runs", "run", "insights"])
async def test_hostile_names(
    staged: Staged, picture: SnapshotAssertion, board: Board, room: str, size: tuple[int, int]
) -> None:
    """What a terminal would obey, hide or choke on keeps to its own cells."""
    for number, run in enumerate(board.runs.values()):
        run["branch_name"] = HOSTILE[number % len(HOSTILE)]
        if number % 2:
            owner = HOSTILE[(number + 1) % len(HOSTILE)]
            run["repository"] = {"platform": "github", "data": {"owner": owner, "repo": "re\u200bpo[b]"}}
        if number % 5 == 1:
            run["status"] = "on \x1b[31mholiday"
    async with staged(size) as scene:
        await scene.press(*TABS[room])

        assert scene.app.export_screenshot() == picture


@pytest.mark.parametrize("room", TABS)
async def test_the_smallest_terminal(staged: Staged, picture: SnapshotAssertion, room: str) -> None:
    """Sixty columns and twenty lines: every tab is there, and no frame is broken."""
    async with staged((60, 20)) as scene:
        await scene.press(*TABS[room])

        assert scene.app.export_screenshot() == picture


@pytest.mark.parametrize("size", [WIDE], ids=["140x40"])
async def test_every_key(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """The sheet of keys with room for all of them."""
    async with staged(size) as scene:
        await scene.press("question_mark")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_the_palette(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """What can be done now, by name."""
    async with staged(size) as scene:
        await scene.press("colon")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_patterns_are_marked(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """What a pattern says of a name is marked in that column, as words are in all of them."""
    async with staged(size) as scene:
        await scene.press("slash", *"repo", "colon", *"acme", "slash", "asterisk", "space", *"branch", "colon")
        await scene.press("asterisk", *"-", *"retry", "enter")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_an_own_command_asks_first(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """Filled in as it would be run, with both answers as keys to press or to click."""
    argv = ("sh", "-c", "git fetch origin {branch} && git log --oneline origin/{branch}", "{repository}", "{run_id}")
    async with staged(size) as scene:
        scene.app.settings = replace(scene.app.settings, commands=(Command("Fetch its branch", argv, confirm=True),))
        await scene.app.action_own_command(0)
        await scene.pilot.pause()
        while len(scene.app.screen_stack) == 1:
            await scene.pilot.pause()
        await scene.pilot.pause()

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_many_are_continued_at_once(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """How many, where, and who is left out; the instructions wait to be typed."""
    async with staged(size) as scene:
        await scene.press("j", "j", "space", "space", "space", "J", "J", "c", *"Try once more, please.")

        assert scene.app.export_screenshot() == picture
