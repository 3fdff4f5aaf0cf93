"""The Runs room, over the real engine and a service on a real socket."""

from app.console.session.user_preferences import read
from app.engine.events import LinkChanged
from storage.records import LinkState, PollOutcome
from tests.console.conftest import WIDE, Staged
from tests.console.quiet import strips
from tests.lab import Lab
from tests.waiting import until
from widgets.kit.cursor_view import HEADER
from widgets.runs.pane import RunPane


async def test_a_token_refused_here_only_is_said_here_only(staged: Staged) -> None:
    """While another console polls, the rows stay live; a toast says what this one's token lacks."""
    async with staged() as scene:
        failure = PollOutcome("runs", scene.clock(), "not_authorized", "The token has expired.", 401)
        await scene.ring(LinkChanged(LinkState("runs", scene.clock()), own_failure=failure))

        assert [said for said in scene.toasts if "Another console keeps the rows current." in said]
        assert "live" in scene.lines[0]


async def test_rows_are_dimmed_while_the_service_gives_no_answer(staged: Staged) -> None:
    """And bright again with the first answer."""
    async with staged() as scene:
        y = scene.table.region.y + HEADER + 3

        def brightness() -> int:
            (shown,) = [each.style for each in strips(scene.app)[y] if each.style and "acme/" in each.text][:1]
            assert shown.color is not None
            return sum(shown.color.get_truecolor())

        live = brightness()
        await scene.ended(PollOutcome("runs", scene.clock(), "unreachable", "No connection."))
        await scene.tick(seconds=1)
        assert brightness() < live

        await scene.ended(PollOutcome("runs", scene.clock(), None, None))
        await scene.tick(seconds=1)
        assert brightness() == live


async def test_the_mouse_sorts_and_opens(staged: Staged) -> None:
    """A title sorts, a double click opens."""
    async with staged() as scene:
        await scene.pilot.click("RunTable", offset=(20, 0))
        await scene.settle()
        repositories = [row.repository for row in scene.table.rows_on_show]

        assert repositories == sorted(repositories)
        assert "repository ↑" in scene.text

        await scene.pilot.click("RunTable", offset=(20, HEADER + 2), times=2)
        await scene.settle()

        assert "esc back" in scene.text


async def test_at_rest_nothing_on_the_screen_changes(staged: Staged, board: Lab) -> None:
    """Neither seconds nor polls that bring nothing new make it say anything else, or look up what its keys do."""
    board.runs.clear()
    for number in range(20):
        board.put(f"run_{number:02}", "completed", created=-number - 120.0, updated=-number - 90.0)
    async with staged() as scene:
        await scene.tick(seconds=120)
        await scene.sync()
        # The toast about a degraded code host, which has a key of its own, goes by itself.
        await scene.tick(seconds=60)
        await scene.sync()
        before, screen = scene.text, scene.app.screen
        keys_looked_up: list[object] = []
        screen.bindings_updated_signal.subscribe(scene.app, keys_looked_up.append)
        for _ in range(3):
            await scene.tick(seconds=7)
            await scene.sync()
            await scene.tick(seconds=7)

            assert scene.text == before
        assert not keys_looked_up


async def test_history_that_a_poll_completed_is_called_complete(staged: Staged, board: Lab) -> None:
    """Its runs are announced as they are stored, before it is known that none is missing."""
    async with staged(WIDE, synced=False) as scene:
        engine = scene.engine
        page = await engine.client.list_runs(page_size=100)
        await engine.runs.store(page.runs)
        await scene.shows("history not complete yet")

        await engine.cache.extend_coverage(None, scene.clock(), scene.clock())
        await engine.runs.record(None)
        await until(lambda: "complete" not in scene.lines[3])
        assert "[All 60]" in scene.lines[3]


async def test_the_split_is_moved_by_keys_and_remembered(staged: Staged) -> None:
    """More and less room for the run; hidden, it comes back first."""
    async with staged((180, 40)) as scene:
        pane = scene.app.screen.query_one(RunPane)
        usual = pane.region.width
        await scene.press("runs.split_less")
        assert pane.region.width < usual

        await scene.press("runs.split_more", "runs.split_more", "runs.split_less", "runs.split_more")
        assert pane.region.width == 90

        await scene.press("runs.pane", "runs.split_more", "runs.split_more")
        assert pane.region.width == 90
        await until(lambda: read(scene.app.settings).split == "half")
