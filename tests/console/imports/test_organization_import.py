"""The import of organizations from a file, over a real socket and the real ledger."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.actions.imports import Import
from app.console.organizations.import_screen import OrganizationImportScreen
from tests.console.conftest import WIDE, Scene, Staged
from tests.console.imports.steps import creating, emails, importing, states, type_path
from tests.console.scenes import SceneClock, app_on, engine_on, settings_for
from tests.fault_server import Drop, FaultServer, Hang, Received, Respond


async def test_everything_is_seen_before_anything_is_sent(staged: Staged, server: FaultServer, file: Path) -> None:
    """What can be created, what cannot, and what is there twice."""
    async with importing(staged, server, file) as scene:
        text = scene.text

    assert "○ 4 to create" in text
    assert "✗ 1 invalid" in text
    assert "= 1 twice" in text
    assert "Give one email address" in text
    assert "ADA@globex.example is on line 2 already." in text
    assert emails(server) == {}


async def test_it_asks_once_more_and_then_creates_each_once(staged: Staged, server: FaultServer, file: Path) -> None:
    """By keyboard alone, from the room and back to it."""
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s")
        asked = scene.text
        nothing_yet = emails(server)
        await scene.press("ctrl+s")
        done = scene.text
        await scene.press("escape")

        assert "✓ created" in scene.text
        assert not isinstance(scene.app.screen, OrganizationImportScreen)

    assert "^s again creates 4 organizations and invites 4 people" in asked
    assert nothing_yet == {}
    assert "✓ 4 created" in done
    assert "org_carl" in done
    assert "Nothing is left to create." in done
    assert set(emails(server).values()) == {1}
    assert len(emails(server)) == 4


async def test_escape_takes_the_question_back(staged: Staged, server: FaultServer, file: Path) -> None:
    """Nothing is sent, and the next ctrl+s asks again."""
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "escape", "ctrl+s")

        assert "^s again" in scene.text
        assert emails(server) == {}


async def test_no_more_are_sent_than_may_be(staged: Staged, server: FaultServer, file: Path) -> None:
    """Then it asks again, for the rest."""
    async with importing(staged, server, file) as scene:
        most = scene.app.screen.query_one("#field-most Input")
        most.value = "3"  # type: ignore[attr-defined]
        await scene.settle()
        await scene.press("ctrl+s")
        asked = scene.text
        await scene.press("ctrl+s")
        first = scene.text
        sent = sum(emails(server).values())
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene).count("created") == 4

    assert "creates 3 of 4 organizations" in asked
    assert "3 were sent, as many as may be at once" in first
    assert sent == 3


async def test_what_is_typed_after_the_question_takes_it_back(staged: Staged, server: FaultServer, file: Path) -> None:
    """What was asked is not what would be sent."""
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s")
        scene.app.screen.query_one("#field-most Input").value = "3"  # type: ignore[attr-defined]
        await scene.settle()

        assert "^s again" not in scene.text
        await scene.press("ctrl+s")
        assert "creates 3 of 4" in scene.text


async def test_a_cap_that_is_no_number_is_refused(staged: Staged, server: FaultServer, file: Path) -> None:
    """Before anything is asked."""
    async with importing(staged, server, file) as scene:
        scene.app.screen.query_one("#field-most Input").value = "many"  # type: ignore[attr-defined]
        await scene.settle()
        await scene.press("ctrl+s", "ctrl+s")

        assert "A whole number, from 1." in scene.text
        assert emails(server) == {}


async def test_a_rate_limit_stops_it_and_ctrl_s_goes_on(staged: Staged, server: FaultServer, file: Path) -> None:
    """One request meets the limit, not one for each row."""
    limited = Respond(429, {"message": "slow down"})
    server.script(creating(Received("POST", "/", {}, b'{"email": "ada@globex.example"}')), limited)
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        stopped = scene.text
        count = sum(emails(server).values())
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene).count("created") == 4

    assert "rate limit is spent (429)" in stopped
    assert count == 2
    assert emails(server) == {
        "ada@globex.example": 1,
        "bea@initech.example": 2,
        "carl@hooli.example": 1,
        "dora@hooli.example": 1,
    }


async def test_an_unknown_outcome_stops_it_and_is_never_sent_again_by_itself(
    staged: Staged, server: FaultServer, file: Path
) -> None:
    """It goes on with the others, and with this one only on a person's word."""
    server.script(Drop())
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        stopped = scene.text
        await scene.press("ctrl+s", "ctrl+s")
        others = states(scene)
        await scene.press("home", "v", "2", "ctrl+s")
        resolved = states(scene)
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene)[0] == "created"

    assert "Line 2's outcome is unknown: v resolves it" in stopped
    assert others == ["unknown", "created", "invalid", "twice", "created", "created"]
    assert resolved[0] == "to_create"
    assert emails(server)["ada@globex.example"] == 2


async def test_a_row_refused_for_its_own_sake_stops_nothing(staged: Staged, server: FaultServer, file: Path) -> None:
    """It is told, and not tried again before the file is read again."""
    server.script(Respond(400, {"message": "no such offer", "error_code": "invalid_offer_code"}))
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        text = scene.text

        assert states(scene) == ["rejected", "created", "invalid", "twice", "created", "created"]
        assert scene.app.screen.check_action("go", ()) is None
        await scene.press("f", "enter")
        assert states(scene)[0] == "to_create"
        assert "before: no such offer" in scene.text

    assert "no such offer (HTTP 400, invalid_offer_code)" in text


async def test_stop_ends_it_after_the_row_on_its_way(
    staged: Staged, server: FaultServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That row is settled; the rest waits for ctrl+s; escape does not leave meanwhile."""
    async with importing(staged, server, file) as scene:
        screen = scene.app.screen
        assert isinstance(screen, OrganizationImportScreen)
        take = Import.take

        async def take_and_press(self: Import, row: object) -> object:
            # What a person presses while the request is on its way.
            screen.action_back()
            screen.action_stop()
            return await take(self, row)  # type: ignore[arg-type]

        monkeypatch.setattr(Import, "take", take_and_press)
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene) == ["created", "to_create", "invalid", "twice", "to_create", "to_create"]
        assert "Stopped. ^s goes on with 3 organizations." in scene.text
        assert scene.app.screen is screen


async def test_a_crash_in_the_middle_is_taken_up_where_it_stood(
    staged: Staged, server: FaultServer, file: Path
) -> None:
    """What was created is passed over, what was on its way is unknown, the file is remembered."""
    server.script(creating(Received("POST", "/", {}, b'{"email": "ada@globex.example"}')), Hang())
    async with importing(staged, server, file) as scene:
        await scene.pilot.press("ctrl+s", "ctrl+s")
        await asyncio.to_thread(server.wait_for, 2)
    async with importing(staged, server, None) as scene:
        text = scene.text

        assert states(scene) == ["already_created", "unknown", "invalid", "twice", "to_create", "to_create"]

    assert str(file)[:40] in text
    assert set(emails(server).values()) == {1}


async def test_what_is_done_is_not_taken_up_again(staged: Staged, server: FaultServer, file: Path) -> None:
    """The next import begins with an empty field."""
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        await scene.press("escape")
        await scene.press("i")

        assert "Name a CSV file above" in scene.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"ada@globex.example\n", "has to name the columns"),
        (b"email\n", "holds no row"),
        (b"email\n\xff\n", "is not UTF-8"),
        (None, "cannot be read"),
    ],
)
async def test_a_file_that_cannot_be_used_says_why(
    staged: Staged, server: FaultServer, tmp_path: Path, content: bytes | None, said: str
) -> None:
    """Below the field."""
    path = tmp_path / "p.csv"
    if content is not None:
        path.write_bytes(content)
    async with importing(staged, server, path, (200, 40)) as scene:
        assert said in scene.text
        assert scene.app.screen.check_action("go", ()) is None


async def test_read_only_shows_and_sends_nothing(server: FaultServer, file: Path, tmp_path: Path) -> None:
    """Not even when asked twice."""
    settings, clock = settings_for(server.base_url, tmp_path), SceneClock()
    settings = replace(settings, profiles=(replace(settings.profile(), read_only=True),))
    async with engine_on(settings, clock) as engine:
        app = app_on(settings, clock, engine)
        async with app.run_test(size=WIDE) as pilot:
            scene = Scene(pilot, engine, clock)
            await scene.settle()
            await scene.press("3", "i")
            await type_path(scene, file)
            await scene.press("ctrl+s", "ctrl+s")

            assert "Read-only: nothing can be sent from here." in scene.text

    assert emails(server) == {}


async def test_hostile_rows_are_shown_not_obeyed(staged: Staged, server: FaultServer, tmp_path: Path) -> None:
    """Whoever wrote the file."""
    path = tmp_path / "evil.csv"
    path.write_text("email,offer_code\n\x1b[2J[/b]\u202e@x.example,\x9b31m\n" + "a" * 5000 + "@x.example,\n", "utf-8")
    async with importing(staged, server, path) as scene:
        assert "[/b]" in scene.text
        assert not {"\x1b", "\u202e", "\x9b"} & set(scene.text)


async def test_a_click_on_the_hint_sends_as_the_key_does(staged: Staged, server: FaultServer, file: Path) -> None:
    """By mouse: the hints below are buttons."""
    async with importing(staged, server, file) as scene:
        line = scene.lines[-1]
        for _ in range(2):
            await scene.pilot.click("KeyBar", offset=(line.index("create them"), 0))
            await scene.settle()

        assert states(scene).count("created") == 4
