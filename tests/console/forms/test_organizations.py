from datetime import timedelta
from typing import Any

import pytest

from app.api.requests import CreateOrganization
from app.engine import Engine
from tests.console.forms.steps import opened, painted
from tests.fault_server import Drop, Respond, Step


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


def lines_with(text: str, *words: str) -> list[str]:
    """The lines that hold all the words."""
    return [line for line in text.splitlines() if all(word in line for word in words)]


async def test_every_attempt_is_a_line_with_its_state_in_glyph_and_word(console: Any, attempts: None) -> None:
    """Created with what is left of the invitation, rejected, and unknown with its address blocked."""
    async with opened(console, "", "3", size=(100, 30)):
        text = painted(console)

    assert lines_with(text, "✓ created", "old@globex.example", "Globex", "expired")
    assert lines_with(text, "✓ created", "bea@initech.example", "Initech", "2d00h left")
    assert lines_with(text, "✗ rejected", "noone@nowhere.example")
    assert lines_with(text, "? unknown", "carl@hooli.example", "address blocked")
    assert "✓ 3 created" in text
    assert "1 attempt has no known outcome" in text
