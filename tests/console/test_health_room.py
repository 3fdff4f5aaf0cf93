"""The Health room: hosts, link and token are three things."""

from rich.color import Color

from storage.records.activity import PollOutcome, Subject
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.quiet import strips
from tests.run_board import Board


def card(scene: Scene, name: str) -> str:
    """A card's text."""
    return str(scene.app.screen.query_one(name).render())


async def fail(scene: Scene, kind: str, message: str, status: int | None = None) -> None:
    """Records a failed poll of both subjects, as the sync does."""
    for subject in ("runs", "health"):
        await scene.ended(PollOutcome(subject, scene.clock(), kind, message, status))  # type: ignore[arg-type]
    await scene.tick(seconds=1)


async def test_each_host_has_its_status_since_when_and_where(staged: Staged) -> None:
    """Glyph, word, host and group."""
    async with staged() as scene:
        await scene.press("2")

        assert "✓ ok" in scene.text
        assert "▲ degraded" in scene.text
        assert "gitlab.acme.example" in scene.text


async def test_a_host_that_changes_keeps_its_card_and_gains_a_line(staged: Staged, board: Board) -> None:
    """The trouble is an incident, with how long it has lasted."""
    async with staged() as scene:
        await scene.press("2")
        cards = list(scene.app.screen.query("#hosts Card"))
        scene.clock.move(minutes=7)
        board.health["github"] = {"status": "unreachable"}
        await scene.sync()

        assert list(scene.app.screen.query("#hosts Card")) == cards
        assert "✗ unreachable" in scene.text
        scene.clock.move(minutes=3)
        await scene.sync()
        (incident,) = [line for line in scene.lines if "✗ unreachable" in line and "so far" in line]
        assert "github" in incident
        assert "3m00s so far" in incident
        assert "github ✗ unreachable 3m" in scene.lines[0]


async def test_a_host_that_is_no_longer_connected_is_said_so(staged: Staged, board: Board) -> None:
    """It is not shown as healthy, nor forgotten."""
    async with staged() as scene:
        await scene.press("2")
        del board.health["gitlab"]
        await scene.sync()

        assert "not connected" in scene.text
        assert "gitlab" not in scene.lines[0]


async def test_our_own_broken_link_makes_no_host_bad(staged: Staged) -> None:
    """The link's card is bad; the hosts' are as of then; the token's says nothing new."""
    async with staged() as scene:
        await scene.press("2")
        scene.clock.move(minutes=12)
        await fail(scene, "unreachable", "Connection refused")

        assert "✗ service unreachable" in card(scene, "#link")
        assert "accepted" in card(scene, "#token")
        assert "when last asked" in card(scene, "#token")
        assert scene.text.count("No newer answer") == 2
        assert not any(c.has_class("-bad") for c in scene.app.screen.query("#hosts Card"))


async def test_a_refused_token_is_neither_the_link_nor_a_host(staged: Staged) -> None:
    """401: the service answers, the token is what is wrong, and the card says what to do."""
    async with staged() as scene:
        await scene.press("2")
        await fail(scene, "not_authorized", "Token expired", 401)

        assert "✓ answers" in card(scene, "#link")
        assert "✗ refused (401)" in card(scene, "#token")
        assert "Create an API token" in card(scene, "#token")


async def test_a_token_without_the_scope_says_which_it_needs(staged: Staged) -> None:
    """403 is another thing than 401."""
    async with staged() as scene:
        await scene.press("2")
        await fail(scene, "forbidden", "scope", 403)

        assert "✗ not permitted (403)" in card(scene, "#token")
        assert "Administrator scope" in card(scene, "#token")


async def test_no_connected_host_is_said_with_what_to_do(staged: Staged, board: Board) -> None:
    """An installation without hosts is not an error."""
    board.health.clear()
    async with staged(SMALL) as scene:
        await scene.press("2")

        assert "none connected" in scene.text


async def test_hostile_hosts_are_shown_and_not_obeyed(staged: Staged, board: Board) -> None:
    """A platform's name, status, host and group come from elsewhere."""
    board.health["[red]x\x1b[2J"] = {"status": "[/b]\x9b2J", "host": "h\x1b]0;t\x07", "group": "\u202eg"}
    async with staged() as scene:
        await scene.press("2")

        assert "[red]x␛[2J" in scene.text
        assert not set(scene.text) & {"\x1b", "\x07", "\x9b", "\u202e"}


async def test_hosts_of_old_turn_grey_in_the_header_although_their_words_stay(staged: Staged) -> None:
    """What was true twelve minutes ago is not shown in the colours of now."""
    async with staged() as scene:
        scene.clock.move(minutes=12)
        await ended(scene, "runs")
        before = colour_of(scene, "degraded 12m")
        await ended(scene, "health")

        assert colour_of(scene, "degraded 12m") != before
        assert colour_of(scene, "github ✓") == colour_of(scene, "degraded 12m")


async def test_a_state_takes_the_room_that_there_is(staged: Staged) -> None:
    """Nothing is cut off beside empty cells."""
    async with staged() as scene:
        await scene.press("2")
        await scene.tick(seconds=27)

        assert "◌ 27s old, waiting for an answer" in card(scene, "#link")


async def ended(scene: Scene, subject: Subject) -> None:
    """A poll fails, as the engine would say it."""
    await scene.ended(PollOutcome(subject, scene.clock(), "unreachable", "gone", None))


def colour_of(scene: Scene, words: str) -> Color | None:
    """Of those words in the screen's first line."""
    line = strips(scene.app)[0]
    (style,) = [segment.style for segment in line if words in segment.text]
    return style.color if style is not None else None
