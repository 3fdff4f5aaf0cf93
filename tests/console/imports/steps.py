"""How a list of organizations is imported on the screen."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual import events

from tests.console.conftest import WIDE, Scene, Staged
from tests.fault_server import FaultServer, Received, Respond, Step
from widgets.organizations.imports import ImportTable

LIST = """Email,offer_code
ada@globex.example,
bea@initech.example,PARTNER
noone,
ADA@globex.example,
carl@hooli.example,
dora@hooli.example,
"""


def creating(request: Received) -> Step:
    """An organization for whoever asks; nothing else is there."""
    if request.method != "POST":
        return Respond(200, {"runs": [], "next_token": None, "code_hosting": {}})
    email = json.loads(request.body)["email"]
    return Respond(
        201,
        {
            "organization_id": f"org_{email.partition('@')[0]}",
            "organization_name": email,
            "organization_slug": "x",
            "parent_organization_id": "org_0",
        },
    )


def emails(server: FaultServer) -> Counter[str]:
    """Who was invited, and how often."""
    return Counter(str(json.loads(each.body)["email"]) for each in server.requests if each.method == "POST")


@asynccontextmanager
async def importing(
    staged: Staged, server: FaultServer, file: Path | None, size: tuple[int, int] = WIDE
) -> AsyncIterator[Scene]:
    """The screen, with the file read."""
    async with staged(size, synced=False, base_url=server.base_url) as scene:
        await scene.press("3", "i")
        if file is not None:
            await type_path(scene, file)
        yield scene


async def type_path(scene: Scene, file: Path) -> None:
    """Pastes the file's name and enters it."""
    scene.app.post_message(events.Paste(str(file)))
    await scene.press("enter")


def states(scene: Scene) -> list[str]:
    """What each row says of itself."""
    return [row.state for row in scene.app.screen.query_one(ImportTable)._items]
