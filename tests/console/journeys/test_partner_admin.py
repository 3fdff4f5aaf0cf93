"""The partner admin's morning: eight customers, none created twice, and no attempt lost track of."""

from pathlib import Path

import pytest

from tests.console.journeys.conftest import BY_MOUSE, Walked
from tests.console.journeys.steps import Service

EIGHT = [f"c{number}@globex.example" for number in range(8)]
LOST = EIGHT[2]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of eight in the folder where the console was started."""
    monkeypatch.chdir(tmp_path)
    Path("partners.csv").write_text("\n".join(["email", *EIGHT]) + "\n", "utf-8")
    return "partners.csv"


@BY_MOUSE
async def test_eight_are_created_once_each_though_an_answer_is_lost(
    walked: Walked, service: Service, listed: str
) -> None:
    """It stops at the unknown one, goes on with the others, and never sends that one again: a person finds it."""
    service.loses = {LOST}
    async with walked() as hand:
        # The tab is hidden until there is an organization; the palette leads there.
        await hand.do("colon", ": palette")
        await hand.type("go to organizations")
        await hand.scene.press("enter")
        await hand.do("I", "I import")
        await hand.fill("file", listed)
        await hand.do("enter", "enter read the file")
        await hand.see("○ 8 to create")
        await hand.do("ctrl+s", "create them")
        await hand.see("^s again: create 8 organizations and invite 8 people")
        assert not service.invited

        await hand.do("ctrl+s", "create them")
        await hand.see("Line 4's outcome is unknown", "✓ 2 created", "? 1 unknown", "○ 5 to create")
        await hand.do("ctrl+s", "create them")
        await hand.do("ctrl+s", "create them")
        await hand.see("✓ 7 created", "? 1 unknown")

        await hand.point(LOST)
        await hand.do("v", "v resolve")
        await hand.see("Resolve an unknown outcome", LOST)
        await hand.do("y", "It took effect")
        await hand.fill("evidence", "org_found")
        await hand.do("ctrl+s", "Resolve it ^s")
        await hand.see("✓ 7 created", "Nothing is left to create.")
        assert "unknown" not in hand.scene.text

        await hand.do("escape", "esc back")
        await hand.point(LOST)
        await hand.see("✓ 8 created", "org_found")
        assert service.invited == dict.fromkeys(EIGHT, 1)
