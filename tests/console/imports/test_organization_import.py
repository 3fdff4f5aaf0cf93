"""The import of organizations from a file, over a real socket and the real ledger."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events

from app.actions.batch import BatchResult, BatchSender
from app.api.requests import WriteRequest
from app.organizations.screen_import import OrganizationImportScreen
from tests.console.conftest import Hasty, Scene, Staged
from tests.lab import ORGANIZATION, Drop, Received, Respond, Server, Step
from widgets.kit.line_table import LineTable

LIST = """Email,offer_code
ada@globex.example,
bea@initech.example,PARTNER
carl@hooli.example,
dora@hooli.example,
"""
WRONG = """email,offer_code
ada@globex.example,
"noone, nowhere"
ADA@globex.example,
carl@hooli.example;PARTNER
"""


def creating(request: Received) -> Step:
    """A service that creates an organization for every request, and has nothing else."""
    if request.path.endswith("/invitations"):
        return Respond(404, {"message": "Not here."})
    if request.method != "POST":
        return Respond(200, {"runs": [], "next_token": None, "code_hosting": {}})
    email = request.json()["email"]
    return Respond(201, ORGANIZATION | {"organization_id": f"org_{email.partition('@')[0]}"})


ADA = creating(Received("POST", "/", {}, b'{"email": "ada@globex.example"}'))


def emails(server: Server) -> Counter[str]:
    """The invited addresses, and how often each was invited."""
    return Counter(each.json()["email"] for each in server.requests if each.method == "POST")


@asynccontextmanager
async def importing(staged: Staged, server: Server, file: Path, *, read_only: bool = False) -> AsyncIterator[Scene]:
    """The import's screen, with the file read."""
    async with staged(synced=False, base_url=server.base_url, read_only=read_only) as scene:
        await scene.press("3", "I")
        scene.app.post_message(events.Paste(str(file)))
        await scene.press("enter")
        yield scene


def states(scene: Scene) -> list[str]:
    """The status text of each row."""
    return [row.state for row in scene.app.screen.query_one(LineTable).items]


@pytest.fixture
def server() -> Iterator[Server]:
    """A service that creates what it is asked for."""
    with Server() as server:
        server.otherwise = creating
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with four organizations that can be created."""
    path = tmp_path / "partners.csv"
    path.write_text(LIST, "utf-8")
    return path


async def test_an_import_sends_fifty_at_a_time(staged: Staged, server: Server, file: Path, hasty: Hasty) -> None:
    """The import then asks again for the rest; escape withdraws the question."""
    file.write_text("\n".join(["email", *(f"admin{n}@globex.example" for n in range(52))]), "utf-8")
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "escape")
        assert len(scene.app.screen_stack) == 2
        await scene.press("ctrl+s")
        await scene.shows("Creates 50 of 52 organizations and invites 50 people.")
        await hasty(scene, "ctrl+s")
        assert emails(server) == {}

        await scene.press("ctrl+s")
        await scene.shows("50 were sent, the most at a time")
        assert sum(emails(server).values()) == 50
        await scene.press("ctrl+s", "ctrl+s")
        await scene.shows("52 created")
        assert sum(emails(server).values()) == 52


async def test_a_refused_row_can_be_fixed(staged: Staged, server: Server, file: Path) -> None:
    """The other rows continue, and the refused one is not sent again until its line changes."""
    server.script(ADA, Respond(400, {"message": "no such offer", "error_code": "invalid_offer_code"}))
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        assert states(scene) == ["created", "rejected", "created", "created"]
        assert "no such offer (HTTP 400, invalid_offer_code)" in scene.text
        assert set(emails(server).values()) == {1}

        assert scene.app.screen.check_action("go", ()) is None
        await scene.press("j", "E", "end", *["backspace"] * 8, "enter")
        await scene.shows("before: no such offer", "Press ^s to create 1 organization.")
        await scene.press("ctrl+s", "ctrl+s")
        assert states(scene)[1] == "created"
        assert server.requests[-1].json() == {"email": "bea@initech.example"}


async def test_nothing_is_sent_until_every_line_is_valid(staged: Staged, server: Server, file: Path) -> None:
    """A line is fixed or left out on the screen, and all are checked again.

    The file itself does not change, as on the command line.
    """
    file.write_text(WRONG, "utf-8")
    async with importing(staged, server, file) as scene:
        assert states(scene) == ["to_create", "invalid", "twice", "invalid"]
        await scene.press("ctrl+s", "ctrl+s")
        await scene.shows("3 lines are wrong: press E to fix it here. Nothing is sent before that.")

        await scene.press("E")
        await scene.shows("Line 3: email,offer_code", '"noone, nowhere"')
        await scene.press("ctrl+u", *"ada@globex.example", "enter")
        await scene.shows("is on line 2 already")
        await scene.press("ctrl+u", *"bea@initech.example,X", "enter")
        await scene.shows("2 lines are wrong")
        await scene.press("E", "ctrl+u", "enter")
        await scene.shows("1 line is wrong")
        await scene.press("end", "enter", "end", *["backspace"] * 8, *",PARTNER", "enter")
        await scene.shows("Press ^s to create 3 organizations.")
        assert emails(server) == {}
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene) == ["created"] * 3
        assert set(emails(server)) == {"ada@globex.example", "bea@initech.example", "carl@hooli.example"}
    assert file.read_text("utf-8") == WRONG


async def test_stop_ends_the_import_after_the_current_row(
    staged: Staged, server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current row finishes, the rest waits for ctrl+s, and escape does not leave until then."""
    async with importing(staged, server, file) as scene:
        screen = scene.app.screen
        assert isinstance(screen, OrganizationImportScreen)
        send = BatchSender.send

        async def press_and_send(self: BatchSender, request: WriteRequest, key: str | None = None) -> BatchResult:
            # Keys that a user may press while the request is under way.
            screen.action_back()
            screen.action_stop()
            return await send(self, request, key)

        monkeypatch.setattr(BatchSender, "send", press_and_send)
        await scene.press("ctrl+s", "ctrl+s")

        assert states(scene) == ["created", "to_create", "to_create", "to_create"]
        assert "Stopped. Press ^s to continue with 3 organizations." in scene.text
        assert scene.app.screen is screen


async def test_an_unknown_outcome_stops_the_import_until_resolved(staged: Staged, server: Server, file: Path) -> None:
    """The import continues with the other rows, never resends that one, and the user links what it created."""
    server.script(ADA, Drop())
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        scene.clock.move(minutes=3)
        await scene.press("ctrl+s", "ctrl+s")
        assert states(scene) == ["created", "unknown", "created", "created"]

        await scene.press("home", "j", "v")
        await scene.shows("Resolve an unknown outcome", "bea@initech.example")
        await scene.press("y", "tab", *"org_found", "ctrl+s")
        await scene.shows("✓ 3 created", "✓ 1 was created", "Nothing is left to create.")
        assert "unknown" not in states(scene)

    assert set(emails(server).values()) == {1}


async def test_one_question_covers_all_rows_that_fail_in_the_same_way(
    staged: Staged, server: Server, file: Path
) -> None:
    """While the service's mail is down, it stops at the first row, then sends all others; another failure stops it."""
    failure = {"message": "the organization exists, but its mail waits", "error_code": "provisioning_failed"}
    server.script(Respond(500, failure), Respond(500, failure), Respond(503, {"message": "no"}))
    async with importing(staged, server, file) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        assert states(scene) == ["unknown", "to_create", "to_create", "to_create"]
        await scene.shows("Line 2's outcome is unknown: v resolves it, ^s sends all the others.")

        await scene.press("ctrl+s", "ctrl+s")
        assert states(scene) == ["unknown", "unknown", "unknown", "to_create"]
        await scene.shows("Line 4's outcome is unknown: v resolves it, ^s continues.")
        await scene.press("ctrl+s", "ctrl+s")
        await scene.shows("Nothing is left to create. Press v to resolve an unknown outcome.")

    assert set(emails(server).values()) == {1}


async def test_a_read_only_import_sends_nothing(staged: Staged, server: Server, file: Path) -> None:
    """Pressing send twice changes nothing."""
    async with importing(staged, server, file, read_only=True) as scene:
        await scene.press("ctrl+s", "ctrl+s")
        assert "Read-only: nothing can be sent from here." in scene.text

    assert emails(server) == {}
