from datetime import timedelta
from typing import Any

import pytest
from textual.geometry import Size

from app.api.requests import CreateOrganization
from app.engine import Engine
from tests.console.forms.steps import painted, settle, words, write
from tests.fault_server import Drop, Respond, Step
from widgets.organizations.attempts import OrganizationTable


def created(number: int, name: str) -> Step:
    """The service's answer to a creation."""
    return Respond(
        201,
        {
            "organization_id": f"org_{number}",
            "organization_name": name,
            "organization_slug": f"slug-{number}",
            "parent_organization_id": "org_parent",
        },
    )


@pytest.fixture
async def attempts(engine: Engine, post: Any, clock: Any) -> None:
    """One of each kind, the oldest 40 days ago."""
    history: tuple[tuple[float, str, Step], ...] = (
        (40, "old@globex.example", created(1, "Globex")),
        (28, "bea@initech.example", created(2, "Initech")),
        (2, "noone@nowhere.example", Respond(400, {"message": "Not an address.", "error_code": "invalid_email"})),
        (1, "eve@hooli.example", created(3, "[/b]\x1b[2J\u202eEvil")),
        (0.5, "carl@hooli.example", Drop()),
    )
    now = clock.now
    for days, email, step in history:
        clock.now = now - timedelta(days=days)
        post.next(step)
        await engine.actions.submit(CreateOrganization(email))
    clock.now = now


async def enter_room(pilot: Any) -> None:
    """Goes to the room."""
    await settle(pilot)
    await pilot.press("3")
    await settle(pilot)


def lines_with(text: str, *words: str) -> list[str]:
    """The lines that hold all the words."""
    return [line for line in text.splitlines() if all(word in line for word in words)]


async def test_every_attempt_is_a_line_with_its_state_in_glyph_and_word(console: Any, attempts: None) -> None:
    """Created with what is left of the invitation, rejected, and unknown with its address blocked."""
    async with console.run_test(size=(100, 30)) as pilot:
        await enter_room(pilot)
        text = painted(console)

    assert lines_with(text, "✓ created", "old@globex.example", "Globex", "expired")
    assert lines_with(text, "✓ created", "bea@initech.example", "Initech", "2d00h left")
    assert lines_with(text, "✗ rejected", "noone@nowhere.example")
    assert lines_with(text, "? unknown", "carl@hooli.example", "address blocked")
    assert "✓ 3 created" in text
    assert "1 attempt has no known outcome" in text


async def test_what_a_service_calls_its_organizations_cannot_harm_the_screen(console: Any, attempts: None) -> None:
    """Control characters, markup and bidi marks are shown, not obeyed."""
    async with console.run_test(size=(140, 40)) as pilot:
        await enter_room(pilot)
        await pilot.press("j", "enter")
        await settle(pilot)
        text = painted(console)

    assert "[/b]" in text
    assert not {"\x1b", "\u202e"} & set(text)


async def test_the_countdown_goes_on_without_reading_again(console: Any, attempts: None, clock: Any) -> None:
    """Only the line whose text changed is painted again."""
    async with console.run_test(size=(100, 30)) as pilot:
        await enter_room(pilot)
        table = console.screen.query_one(OrganizationTable)
        await settle(pilot)
        painted_again: list[int] = []
        table.repaint_row = painted_again.append
        console.screen.tick(clock())
        nothing = list(painted_again)
        clock.move(timedelta(hours=1))
        console.screen.tick(clock())

    assert nothing == []
    # `12h ago`, `29d00h left` and `2d00h left` read differently an hour later; the rejected and the expired do not.
    assert set(painted_again) == {0, 1, 3}


async def test_the_cursor_stays_on_its_attempt_when_new_ones_arrive(
    console: Any, attempts: None, engine: Engine, post: Any
) -> None:
    """The line moves down; the facts beside it stay the same."""
    async with console.run_test(size=(140, 40)) as pilot:
        await enter_room(pilot)
        await pilot.press("j", "j")
        await settle(pilot)
        post.next(created(9, "Newcomer"))
        await engine.actions.submit(CreateOrganization("new@comer.example"))
        await settle(pilot)
        table = console.screen.query_one(OrganizationTable)
        text = painted(console)

        assert table.item is not None
        assert table.item.email == "noone@nowhere.example"

    assert lines_with(text, "Newcomer")
    assert "invalid_email" in text


async def test_an_empty_ledger_teaches_what_the_room_is_for(console: Any) -> None:
    """And names the key to begin with."""
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        text = words(console)

    assert "No organization was created from here yet" in text
    assert "n creates the first one" in text


async def test_from_an_empty_room_to_an_organization_by_keyboard(console: Any, post: Any) -> None:
    """The form closes onto its new line."""
    post.next(created(1, "Globex"))
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        await pilot.press("n")
        await settle(pilot)
        await write(pilot, "ada@globex.example")
        await pilot.press("ctrl+s", "ctrl+s")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        text = painted(console)

    assert lines_with(text, "✓ created", "ada@globex.example", "Globex", "30d00h left")


async def test_an_unknown_attempt_is_resolved_here(console: Any, attempts: None) -> None:
    """Linked to the organization that was found, it counts its invitation from the day it was sent."""
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        await pilot.press("v")
        await settle(pilot)
        await pilot.press("1", "tab")
        await write(pilot, "org_found")
        await pilot.press("ctrl+s")
        await settle(pilot)
        text = painted(console)

    assert lines_with(text, "✓ created", "carl@hooli.example", "org_found", "29d12h left")
    assert "no known outcome" not in text


async def test_only_an_unknown_attempt_can_be_resolved(console: Any, attempts: None) -> None:
    """On any other line the key is shown as having nothing to act on."""
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        on_unknown = console.screen.check_action("resolve", ())
        await pilot.press("j")
        await settle(pilot)

        assert on_unknown is True
        assert console.screen.check_action("resolve", ()) is None


async def test_the_facts_can_fill_the_room_and_give_it_back(console: Any, attempts: None) -> None:
    """Enter and escape."""
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        await pilot.press("enter")
        await settle(pilot)
        alone = painted(console)
        await pilot.press("escape")
        await settle(pilot)

        assert lines_with(painted(console), "old@globex.example")

    assert "old@globex.example" not in alone
    assert lines_with(alone, "email", "carl@hooli.example")


async def test_many_attempts_scroll_by_the_page(console: Any, engine: Engine, post: Any) -> None:
    """The cursor is always on show, and only what is on show is drawn."""
    for number in range(60):
        post.next(created(number, f"Company {number}"))
        await engine.actions.submit(CreateOrganization(f"admin{number}@company.example"))
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        table = console.screen.query_one(OrganizationTable)
        for key in ("pagedown", "pagedown", "G"):
            await pilot.press(key)
            await settle(pilot)
        last = painted(console)
        await pilot.press("g")
        await settle(pilot)
        first = painted(console)

        assert table.virtual_size == Size(0, 61)

    assert lines_with(last, "admin0@company.example")
    assert lines_with(first, "admin59@company.example")


async def test_a_click_goes_to_a_line_and_a_second_one_opens_it(console: Any, attempts: None) -> None:
    """By mouse as by keyboard."""
    async with console.run_test(size=(80, 24)) as pilot:
        await enter_room(pilot)
        table = console.screen.query_one(OrganizationTable)
        await pilot.click(OrganizationTable, offset=(20, 3))
        await settle(pilot)
        email = table.item.email if table.item else ""
        await pilot.double_click(OrganizationTable, offset=(20, 3))
        await settle(pilot)

        assert not table.display

    assert email == "noone@nowhere.example"
