"""The Inbox tab, over the real cache, ledger and state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from app.automations.inbox import Inbox
from app.config import STATE_FILE, data_folder
from app.config.load import parse
from app.console.inbox.sheets import snoozes
from app.console.runs.run_screen import RunScreen
from app.events import StateChangedElsewhere
from storage.foreign_writes import ForeignWrites
from storage.records import PollOutcome
from storage.records.decision import Occurrence, Verdict
from storage.state import State
from tests.automations.conftest import rule
from tests.console.conftest import MESSAGE, SMALL, WIDE, Disk, Scene, Staged
from tests.console.scenes import engine_on, settings_for
from tests.run_board import Board
from widgets.frame.header_bar import HeaderBar
from widgets.inbox import InboxTable

RULES: Final = parse(
    Path("/etc/config.toml"), rule(approval="true") + "\n" + rule(name='"nightly review"', on='{ every = "6h" }')
).automations
HOSTILE: Final = "fix/\x1b]52;c;eA==\x07[/nope]\u202egnp.exe"
FAILED_ABOUT: Final = 22.0
"""Minutes before now that the newest run of the scene failed."""


@pytest.fixture(autouse=True)
def same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions get the same ids in every picture."""
    monkeypatch.setattr("storage.ledger.entries.secrets.randbits", lambda bits: 7)


def state_of(scene: Scene) -> State:
    return scene.engine.usable_state()


@asynccontextmanager
async def inbox(
    staged: Staged, size: tuple[int, int] = WIDE, *, automated: bool = True, **options: bool
) -> AsyncIterator[Scene]:
    """The tab, with something of each kind."""
    async with staged(size, changed={"automations": RULES} if automated else {}, **options) as scene:
        await unknown_outcome(scene)
        if automated:
            for each in RULES:
                await state_of(scene).begin_rule(each.name, "as it is", scene.clock())
            await state_of(scene).pause("nightly review", "5 failures in a row, the last one: no such agent")
            occurrence = Occurrence("run_1:failed", scene.clock() - timedelta(minutes=3))
            await state_of(scene).decide("r", occurrence, lambda _: Verdict("waiting"))
        await scene.ring(StateChangedElsewhere())
        await scene.press("7")
        yield scene


async def unknown_outcome(scene: Scene) -> None:
    ledger = scene.engine.ledger
    given = {"kind": "run.start", "subject": "acme/api", "key": "k", "path": "/runs", "body_json": "{}"}
    action = await ledger.prepare(action_id=None, actor="console:ann", **given)
    await ledger.sending(action.action_id)
    await ledger.unknown(action.action_id, None)  # type: ignore[arg-type]


def keys(scene: Scene) -> list[str]:
    """What the list holds, from top to bottom."""
    return [item.key for item in scene.app.session.inbox.items or ()]


def here(scene: Scene) -> str:
    item = scene.app.screen.query_one(InboxTable).item
    return "" if item is None else item.key


async def fail(scene: Scene, board: Board, run_id: str, **changed: object) -> None:
    """Another run fails, now."""
    scene.clock.move(minutes=1)
    minutes = 600.0 + (scene.clock() - datetime.fromisoformat("2026-05-01T22:00:00+00:00")).total_seconds() / 60
    board.put(run_id, "failed", created=minutes - 0.5, updated=minutes, **changed)
    await scene.sync()


async def test_what_waits_is_counted_everywhere_and_looking_changes_nothing(staged: Staged) -> None:
    """By severity, then age; the tab and the header count it, before it is entered and after."""
    async with inbox(staged) as scene:
        found = keys(scene)

        assert found[0] == "host:gitlab"
        assert {"failed:acme/web", "approval:1", "paused:nightly review", "bot"} < set(found)
        assert [item.rank for item in scene.app.session.inbox.items or ()] == sorted(
            item.rank for item in scene.app.session.inbox.items or ()
        )
        for key in "127":
            await scene.press(key)
            assert f"⚑ {len(found)} inbox" in scene.lines[0]
            assert f"7 Inbox {len(found)}" in scene.lines[1]
        await scene.press(*"jjjjj", "d", "d", "r")
        assert keys(scene) == found


async def test_done_stays_away_until_something_new_and_says_that_it_is_back(staged: Staged, board: Board) -> None:
    """Of what came back only the new is counted."""
    async with inbox(staged, automated=False) as scene:
        before = keys(scene)
        await scene.press("j", "e")
        assert keys(scene) == [key for key in before if key != before[1]]
        assert "u takes it back" in scene.toasts[-1]

        repository = before[1].split(":")[1]
        owner, repo = repository.split("/")
        await fail(scene, board, "run_new", repository={"platform": "github", "data": {"owner": owner, "repo": repo}})
        scene.app.screen.query_one(InboxTable).seek(before[1])
        await scene.settle()

        assert here(scene) == before[1]
        assert f"↻ A run failed in {repository}" in scene.text
        assert "again, after it was dealt with" in " ".join(scene.text.split())


@pytest.mark.parametrize("way", [("e",), ("m",), ("h", "2"), ("h", "down", "enter")], ids=" ".join)
async def test_several_are_put_away_and_taken_back(staged: Staged, way: tuple[str, ...]) -> None:
    """What is marked goes at once and comes back at once; u goes on to what was done before that."""
    async with inbox(staged) as scene:
        before = keys(scene)
        await scene.press("e", "x", "space", *way)
        assert keys(scene) == before[3:]
        await scene.press("u")
        assert keys(scene) == before[1:]
        await scene.press("u")
        assert keys(scene) == before
        await scene.press("u")
        assert scene.toasts[-1] == "There is nothing to take back."


async def test_a_snooze_ends_by_the_clock_or_by_news(staged: Staged, board: Board) -> None:
    """Within a minute of its end; sooner where the same fails again, with all that was put off."""
    async with inbox(staged, automated=False) as scene:
        (key,) = [key for key in keys(scene) if key.startswith("failed:acme/web")]
        await scene.press("X", "h", "1")
        assert keys(scene) == []
        await scene.tick(minutes=30)
        assert keys(scene) == []
        data = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}
        await fail(scene, board, "run_new", repository=data)
        item = next(item for item in scene.app.session.inbox.items or () if item.key == key)
        assert (item.count, item.back) == (2, "again, sooner than it was put off to")
        await scene.tick(minutes=28.5)
        assert "host:gitlab" not in keys(scene)
        await scene.tick(minutes=1)
        assert (scene.app.session.inbox.items or ())[0].back == "put off until now"


async def test_no_key_acts_on_what_only_came_under_the_cursor(staged: Staged) -> None:
    """Another console took the item away: the first key says so, and the next one is meant."""
    async with inbox(staged) as scene:
        before = keys(scene)
        settings = scene.engine.settings
        async with engine_on(settings, scene.clock) as other:
            theirs = Inbox.of(other)
            await theirs.done((await theirs.items())[:1])
        await scene.ring(StateChangedElsewhere())
        assert here(scene) == before[1]

        await scene.press("e")
        assert keys(scene) == before[1:]
        assert scene.toasts[-1].startswith("Gone: ")
        await scene.press("e")
        assert keys(scene) == before[2:]


async def test_two_consoles_have_one_inbox(staged: Staged) -> None:
    """What one does, the other notices by the state's file; a lease that is renewed is no news."""
    async with inbox(staged) as scene:
        before, bell = keys(scene), ForeignWrites(state_of(scene))
        async with engine_on(scene.engine.settings, scene.clock) as other:
            assert not await bell.noticed()
            await other.polling.lease.acquire("poller", "them", 15.0)
            assert not await bell.noticed()
            theirs = Inbox.of(other)
            await theirs.mute((await theirs.items())[:2])
        assert await bell.noticed()
        await scene.ring(StateChangedElsewhere())

        assert keys(scene) == before[2:]
        await scene.press("u")
        assert keys(scene) == before


@pytest.mark.parametrize(("kind", "mode"), [("host", "health"), ("action", "activity"), ("approval", "automations")])
async def test_enter_leads_to_what_it_is_about(staged: Staged, kind: str, mode: str) -> None:
    """A host to Health, a write to Activity, a rule to Automations; where nothing else is to be seen."""
    async with inbox(staged) as scene:
        key = next(key for key in keys(scene) if key.startswith(kind))
        scene.app.screen.query_one(InboxTable).seek(key)
        await scene.press("enter")

        assert scene.app.current_mode == mode


async def test_enter_opens_the_run_or_asks_which(staged: Staged, board: Board) -> None:
    """One run is opened at once; of several the newest stands first."""
    async with inbox(staged, automated=False) as scene:
        scene.app.screen.query_one(InboxTable).seek("failed:acme/web")
        await scene.press("enter")
        assert isinstance(scene.app.screen, RunScreen)
        await scene.press("escape")

        data = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}
        await fail(scene, board, "run_new", repository=data)
        scene.app.screen.query_one(InboxTable).seek("failed:acme/web")
        await scene.press("enter", "1")
        assert isinstance(scene.app.screen, RunScreen)
        assert scene.app.screen.focused_run_id == "run_new"


async def test_the_header_leads_to_it(staged: Staged) -> None:
    """By a click on its number."""
    async with inbox(staged) as scene:
        await scene.press("1")
        x = scene.lines[0].index("⚑")
        await scene.pilot.click(HeaderBar, offset=(x, 0))
        await scene.settle()

        assert scene.app.current_mode == "inbox"


async def test_a_cause_is_one_item(staged: Staged, board: Board) -> None:
    """What the service says of a failure tells causes apart, whatever numbers are in it."""
    async with inbox(staged, automated=False) as scene:
        data = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}
        for number, reason in enumerate(("Out of memory (3 GiB)", "Out of memory (4 GiB)", "No such branch")):
            await fail(scene, board, f"run_new{number}", repository=data, failure_reason=reason)
        titles = {item.key: item.title for item in scene.app.session.inbox.items or ()}

        assert titles["failed:acme/web:out-of-memory-gib"] == "2 runs failed in acme/web: Out of memory (4 GiB)"
        assert titles["failed:acme/web:no-such-branch"] == "A run failed in acme/web: No such branch"


async def test_a_read_only_profile_has_an_inbox(staged: Staged) -> None:
    """It writes to nothing but our own state."""
    async with inbox(staged, read_only=True) as scene:
        before = keys(scene)
        await scene.press("e")

        assert keys(scene) == before[1:]


def test_snoozes_are_by_the_local_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tomorrow and Monday are mornings here; on a Monday the next one is meant."""
    for now, tomorrow, monday in (
        ("2026-05-01T22:00:00+00:00", "2026-05-02T08:00:00+00:00", "2026-05-04T08:00:00+00:00"),
        ("2026-05-04T06:00:00+00:00", "2026-05-05T08:00:00+00:00", "2026-05-11T08:00:00+00:00"),
    ):
        untils = [until.isoformat() for _, until in snoozes(datetime.fromisoformat(now))]

        assert untils[1:] == [tomorrow, monday]


SIZES = pytest.mark.parametrize("size", [SMALL, (120, 32), WIDE], ids=["80x24", "120x32", "140x40"])


@SIZES
async def test_picture_of_a_full_one(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """With two marked."""
    async with inbox(staged, size) as scene:
        await scene.press("j", "x", "x")
        assert scene.app.export_screenshot() == picture


@SIZES
async def test_picture_of_an_empty_one(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """After everything was dealt with."""
    async with inbox(staged, size) as scene:
        await scene.press("X", "e")
        assert keys(scene) == []
        assert scene.app.export_screenshot() == picture


@SIZES
async def test_picture_of_a_hostile_name(
    staged: Staged, picture: SnapshotAssertion, board: Board, size: tuple[int, int]
) -> None:
    """What a terminal would obey keeps to its own cells."""
    async with inbox(staged, size, automated=False) as scene:
        data = {"platform": "github", "data": {"owner": "acme\x1b[2J", "repo": "re\u200bpo[b]"}}
        why = "\x1b[31mdied[/red]" * 20
        await fail(scene, board, "run_new", branch_name=HOSTILE, repository=data, failure_reason=why)
        scene.app.screen.query_one(InboxTable).seek(next(key for key in keys(scene) if "\x1b" in key))
        await scene.settle()
        assert scene.app.export_screenshot() == picture


@SIZES
async def test_picture_of_a_broken_state(
    staged: Staged, picture: SnapshotAssertion, board: Board, tmp_path: Path, size: tuple[int, int]
) -> None:
    """What waits is shown; that nothing can be put away is said, and no key does."""
    settings = settings_for(board.base_url, tmp_path)
    folder = data_folder(settings, settings.profile())
    folder.mkdir(mode=0o700, parents=True)
    (folder / STATE_FILE).write_bytes(b"not a database" * 100)
    async with staged(size) as scene:
        await scene.press("7", "e")
        assert keys(scene)
        assert scene.toasts[-1] == "Nothing can be put away: see below."
        assert scene.app.export_screenshot() == picture


async def test_a_disk_that_fails_is_said(staged: Staged, disk: Disk) -> None:
    """By the banner of every room, as for cache and ledger."""
    async with inbox(staged) as scene:
        for key in "emu":
            disk.fails = True
            await scene.press(key)
            assert MESSAGE in scene.text
            disk.fails = False
            await scene.ended(PollOutcome("runs", scene.clock()))
