"""The Inbox tab, over the real cache, ledger and state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.api.requests import StartRun
from app.engine.events import RunsChanged, StateChangedElsewhere
from app.inbox.inbox import Inbox
from app.profiles.load import parse
from app.runs.screen_run import RunScreen
from storage.errors import DatabaseDamagedError
from storage.records import Repository, RunChanges
from storage.records.decision import Occurrence, Verdict
from storage.records.inbox import InboxItem, Mark
from storage.records.results import FailureFacts, OpenQuestion
from storage.state import DAMAGE_FIX, State
from tests.automations.conftest import rule
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import engine_on, enter
from tests.lab import Lab
from widgets.kit.line_table import LineTable

RULES = parse(
    Path("/etc/config.toml"), rule(approval="true") + "\n" + rule(name='"nightly review"', on='{ every = "6h" }')
).automations


def state_of(scene: Scene) -> State:
    return scene.engine.usable_state()


@asynccontextmanager
async def inbox(
    staged: Staged, size: tuple[int, int] = WIDE, *, automated: bool = True, **options: bool
) -> AsyncIterator[Scene]:
    """The tab with an item of each kind."""
    async with staged(size, changed={"automations": RULES} if automated else {}, **options) as scene:
        await enter(scene.engine.ledger, StartRun("Fix it.", Repository.parse("acme/api")), "unknown")
        if automated:
            for each in RULES:
                await state_of(scene).begin_rule(each.name, "as it is", scene.clock())
            await state_of(scene).pause("nightly review", "5 failures in a row, the last one: no such agent")
            occurrence = Occurrence("run_1:failed", scene.clock() - timedelta(minutes=3))
            await state_of(scene).decide("r", occurrence, lambda _: Verdict("waiting"))
        await scene.ring(StateChangedElsewhere())
        await scene.press("7")
        yield scene


def items(scene: Scene) -> tuple[InboxItem, ...]:
    return tuple(scene.app.session.inbox.items or ())


def keys(scene: Scene) -> list[str]:
    """The keys of the list's rows, from top to bottom."""
    return [item.key for item in items(scene)]


def of_kind(scene: Scene, kind: str) -> InboxItem:
    (item,) = [item for item in items(scene) if item.kind == kind]
    return item


def seek(scene: Scene, key: str) -> None:
    scene.app.screen.query_one(LineTable).seek(key)


def here(scene: Scene) -> str:
    item = scene.app.screen.query_one(LineTable).item
    return "" if item is None else item.key


WEB = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}


async def fail(scene: Scene, board: Lab, run_id: str, **changed: object) -> None:
    """Lets another run fail in acme/web now, without other news."""
    scene.clock.move(seconds=10)
    minutes = 600.0 + (scene.clock() - datetime.fromisoformat("2026-05-01T22:00:00+00:00")).total_seconds() / 60
    board.put(run_id, "failed", created=minutes - 0.5, updated=minutes, repository=WEB, **changed)
    await scene.engine.runs.refresh()
    await scene.settle()
    await scene.tick(seconds=3)


async def test_items_are_counted_and_open_their_subject(staged: Staged) -> None:
    """Items are sorted by severity, then age, and the tab counts them before and after it is opened.

    From an item, a host opens Health, a write Activity, and a rule's approvals, marked, Automations.
    """
    async with inbox(staged) as scene:
        occurrence = Occurrence("run_2:failed", scene.clock() - timedelta(minutes=2))
        await state_of(scene).decide("r", occurrence, lambda _: Verdict("waiting"))
        await scene.ring(StateChangedElsewhere())
        assert of_kind(scene, "approval").title == "2 requests of r wait for approval"
        found = keys(scene)

        assert found[0].startswith("host:gitlab:")
        assert {"failed:acme/web", "approval:r", "paused:nightly review", "bot"} < set(found)
        ranks = [item.rank for item in items(scene)]
        assert ranks == sorted(ranks)
        for key in "127":
            await scene.press(key)
            assert f"7 Inbox {len(found)}" in scene.lines[1]
        for kind, mode in (("host", "health"), ("action", "activity"), ("approval", "automations")):
            key = next(key for key in found if key.startswith(kind))
            await scene.press("7")
            seek(scene, key)
            await scene.press("enter")
            assert scene.app.current_mode == mode
            if mode == "activity":
                held = scene.app.screen.query_one(LineTable).item
                assert held is not None
                assert held.key == key.partition(":")[2]
        await scene.shows("Waiting for approval: 2, 2 marked", "approve 2")
        await scene.press("ctrl+s")
        assert {each.outcome for each in await state_of(scene).journal("r", limit=9)} == {"approved"}


async def test_an_item_opens_its_runs_and_returns_with_new_failures(staged: Staged, board: Lab) -> None:
    """An item with several runs asks which one, newest first. After it is done, only new failures count."""
    board.turns["run_new"] = {"turns": [{"number": 1, "instructions": "Fix it."}]}
    async with inbox(staged, automated=False) as scene:
        await fail(scene, board, "run_new")
        seek(scene, "failed:acme/web")
        await scene.shows("T retry failed")
        await scene.press("T")
        await scene.shows("Retry failed runs")
        await scene.press("escape", "escape", "enter", "1")
        assert isinstance(scene.app.screen, RunScreen)
        assert scene.app.screen.focused_run_id == "run_new"

        await scene.press("escape", "e")
        assert "failed:acme/web" not in keys(scene)
        assert "Press u to undo" in scene.toasts[-1]
        await fail(scene, board, "run_newer")
        seek(scene, "failed:acme/web")
        await scene.settle()
        assert here(scene) == "failed:acme/web"
        assert "↻ A run failed in acme/web" in scene.text
        assert "again after it was done" in " ".join(scene.text.split())


async def test_a_snooze_ends_by_time_or_a_new_failure(staged: Staged, board: Lab) -> None:
    """An item returns within a minute after its snooze expires.

    If it fails again, it returns at once, with everything that was put off.
    """
    async with inbox(staged, automated=False) as scene:
        (key,) = [key for key in keys(scene) if key.startswith("failed:acme/web")]
        await scene.press("asterisk", "h", "1")
        await scene.tick(minutes=30)
        assert keys(scene) == []
        await fail(scene, board, "run_new")
        item = next(item for item in items(scene) if item.key == key)
        assert (item.count, item.back) == (2, "back before its snooze ended")
        await scene.tick(minutes=29.3)
        assert not any(key.startswith("host:gitlab") for key in keys(scene))
        await scene.tick(minutes=1)
        assert items(scene)[0].back == "snoozed until now"


async def test_of_two_snoozes_the_later_end_counts(staged: Staged) -> None:
    """An event of a group that was snoozed, and then alone for longer, is back before its snooze ended."""
    async with inbox(staged, automated=False) as scene:
        pairs = [(item, entry) for item in items(scene) for entry in item.entries]
        item, entry = next(pair for pair in pairs if pair[1].group not in {"", pair[1].key})
        now = scene.clock()
        before = entry.at - timedelta(seconds=1)
        marks = {
            key: Mark(snoozed_until=now + timedelta(hours=hours), seen_until=before)
            for key, hours in ((entry.key, 1), (entry.group, -1))
        }

        await scene.engine.usable_state().mark(marks, now)
        await scene.ring()
        assert next(other for other in items(scene) if other.key == item.key).back == "back before its snooze ended"


async def test_two_consoles_share_one_inbox(staged: Staged) -> None:
    """One console notices the other's marks through the state's file; a renewed lease is not news.

    Marked items go and return together, and `u` then undoes the step before. A key never acts on an item that the other
    console has just moved under the cursor: the first press says so, the next one acts.
    """
    async with inbox(staged) as scene:
        before, state = keys(scene), state_of(scene)
        for way in ("m", "h 2"):
            await scene.press("home", "e", "space", "space", *way.split())
            assert keys(scene) == before[3:], way
            await scene.press("u")
            assert keys(scene) == before[1:], way
            await scene.press("u")
            assert keys(scene) == before, way
            assert scene.app.screen.check_action("undo", ()) is False
        async with engine_on(scene.engine.settings, scene.clock) as other:
            version = await state.data_version()
            await other.usable_state().acquire_lease("poller", "them", 15.0)
            assert await state.data_version() == version
            theirs = Inbox.of(other)
            await theirs.mute((await theirs.items())[:2])
            assert await state.data_version() != version
            await scene.ring(StateChangedElsewhere())

            assert keys(scene) == before[2:]
            await scene.press("u")
            assert keys(scene) == before

            await scene.press("home")
            await theirs.mark_done((await theirs.items())[:1])
        await scene.ring(StateChangedElsewhere())
        assert here(scene) == before[1]

        await scene.press("e")
        assert keys(scene) == before[1:]
        assert scene.toasts[-1].startswith("No longer open: ")
        await scene.press("e")
        assert keys(scene) == before[2:]


async def test_failures_are_grouped_by_cause(staged: Staged, board: Lab) -> None:
    """The reason of a failure, whatever numbers are in it, distinguishes causes; later failures are new."""
    async with inbox(staged, automated=False) as scene:
        await fail(scene, board, "run_old", failure_reason="No such branch")
        await state_of(scene).mark({"failed:acme/web": Mark(done_until=scene.clock())}, scene.clock())
        await scene.ring(StateChangedElsewhere())
        assert not any(key.startswith("failed:acme/web") for key in keys(scene))

        for number, reason in enumerate(("Out of memory (3 GiB)", "Out of memory (4 GiB)", "No such branch")):
            await fail(scene, board, f"run_new{number}", failure_reason=reason)
        titles = {item.key: item.title for item in items(scene)}
        assert titles["failed:acme/web:out-of-memory-gib"] == "2 runs failed in acme/web: Out of memory (4 GiB)"
        assert titles["failed:acme/web:no-such-branch"] == "A run failed in acme/web: No such branch"

        box, before = Inbox.of(scene.engine), (await state_of(scene).marks())["failed:acme/web"]
        ours = [item for item in await box.items() if item.key.startswith("failed:acme/web")]
        await box.mark_done(ours[:1])
        assert (await state_of(scene).marks())["failed:acme/web"] == before
        await box.mark_done(ours[1:])
        # The repository has no other item, so its notifications are acknowledged as well.
        assert (await state_of(scene).marks())["failed:acme/web"] != before


async def test_nothing_can_be_marked_without_a_state(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items are shown; the banner says that nothing can be marked, and the keys do nothing."""

    def fail(*_: object, **__: object) -> None:
        path = Path("~/.local/share/runwarden/acme-prod/state.sqlite3")
        raise DatabaseDamagedError(f"{path} is not a database. {DAMAGE_FIX}", path=path)

    monkeypatch.setattr(State, "open", fail)
    async with staged(SMALL) as scene:
        await scene.press("7", "e")
        assert keys(scene)
        assert scene.toasts[-1] == "Items cannot be changed: see Health (2)."
        await scene.press("2")
        assert "is not a database" in " ".join(scene.text.split())


async def asking(scene: Scene, board: Lab, run_id: str, *choices: str) -> None:
    """Lets a run fail with a question, and moves the cursor to it."""
    await fail(scene, board, run_id)
    asked = OpenQuestion(run_id, "Which database?\nSay it.", choices)
    await scene.engine.cache.store_failure_facts(FailureFacts((asked,)), 0)
    await scene.ring(RunsChanged(RunChanges(updated=(run_id,))))
    await scene.tick(seconds=3)
    seek(scene, f"question:{run_id}")
    await scene.settle()


def continued(board: Lab) -> list[tuple[str, str]]:
    bodies = [one.json() for one in board.requests if one.method == "POST"]
    return [(body["run_id"], body["instructions"]) for body in bodies]


async def test_a_question_is_answered_by_key_or_form(staged: Staged, board: Lab) -> None:
    """A question is an item to decide, not a failure.

    The answer is previewed, continues the run, and removes the item.
    """
    async with inbox(staged, automated=False) as scene:
        await asking(scene, board, "run_asks", "SQLite", "PostgreSQL")
        item = of_kind(scene, "question")
        assert (item.key, item.severity) == ("question:run_asks", "decide")
        others = [entry for each in items(scene) if each != item for entry in each.entries]
        assert all(entry.run_id != "run_asks" for entry in others)
        await scene.press("enter")
        await scene.shows("Which database?", "1 SQLite", "2 PostgreSQL", "3 type another answer")
        await scene.press("2", "enter")
        await scene.shows('"instructions": "PostgreSQL"')
        assert continued(board) == []
        await scene.press("ctrl+s", "escape")

        assert continued(board) == [("run_asks", "PostgreSQL")]
        assert "Answered: the run continues." in scene.toasts
        await scene.tick(seconds=3)
        assert "question:run_asks" not in keys(scene)

        await asking(scene, board, "run_asks_freely")
        await scene.press("c")
        await scene.shows("Continue a run", "Which database?", "answer")
        await scene.press(*"Any", "ctrl+s", "ctrl+s")
        assert continued(board)[1:] == [("run_asks_freely", "Any")]
