"""The Organizations tab shows the state of each invitation, if the service reports it."""

import pytest

from app.api.requests import CreateOrganization
from tests.console.conftest import Scene, Staged
from tests.lab import ORGANIZATION, Received, Respond, Server, Step
from widgets.kit.line_table import LineTable

TOLD = {
    "invitation_id": "inv_2",
    "organization_id": ORGANIZATION["organization_id"],
    "email": "Ada@globex.example",
    "state": "sent",
    "sent_at": "2026-05-01T21:00:00Z",
    "expires_at": "2026-05-31T21:00:00Z",
    "accepted_at": None,
    "failure": None,
    "mail": "outbox",
}


class Partner:
    """A service that creates organizations, and reports their invitations if it is `told`."""

    told: dict[str, object] | None = None
    made: dict[str, str] = ORGANIZATION

    def answer(self, request: Received) -> Step:
        if request.method == "POST":
            is_resent = request.path.endswith("/resend")
            return Respond(201, {**(self.told or {}), "invitation_id": "inv_3"} if is_resent else self.made)
        if request.path.endswith("/invitations") and self.told is not None:
            return Respond(200, {"invitations": [self.told, {**TOLD, "invitation_id": "inv_1", "state": "withdrawn"}]})
        if request.path.endswith("/runs"):
            return Respond(200, {"runs": [], "next_token": None})
        return Respond(404, {"message": "Not here."})


@pytest.fixture
def partner(server: Server) -> Partner:
    partner = Partner()
    server.otherwise = partner.answer
    return partner


async def invited(scene: Scene) -> None:
    """Creates an organization from the console, and opens the tab."""
    await scene.engine.actions.submit(CreateOrganization("ada@globex.example"))
    await scene.press("3")


INVITATIONS: tuple[tuple[dict[str, object], str, str], ...] = (
    ({}, "outbox, 29d left", "outbox folder"),
    ({"state": "refused", "failure": "no such user"}, "refused", "not sent: no such user"),
    ({"state": "accepted", "accepted_at": "2026-05-01T20:00:00Z"}, "accepted 2h ago", "accepted 2h ago"),
    ({"state": "of tomorrow"}, "of tomorrow", "of tomorrow"),
)


def detail(scene: Scene) -> str:
    """The text beside the list."""
    return " ".join(" ".join(line.split("│")[-1].split()) for line in scene.lines)


async def test_an_invitation_shows_the_services_state(staged: Staged, server: Server, partner: Partner) -> None:
    """The row shows where the mail went and its result.

    Resending needs a confirmation other than enter, and is recorded in the ledger. An accepted invitation cannot be
    resent.
    """
    partner.told = TOLD
    async with staged(synced=False, base_url=server.base_url) as scene:
        await invited(scene)
        for told, cell, fact in INVITATIONS:
            partner.told = TOLD | told
            await scene.press("1", "3")
            await scene.shows(cell)

            assert fact in detail(scene)
            assert ("29d" in scene.text) == ("29d" in cell)

        partner.told = TOLD
        await scene.press("1", "3")
        await scene.shows("outbox, 29d left")
        await scene.press("R", "enter")
        assert len(server.posts) == 1
        await scene.press("ctrl+s")
        resent = [each.path for each in server.requests if each.method == "POST"][1:]
        assert resent == ["/v1/external/invitations/inv_2/resend"]
        assert "sent again" in scene.toasts[-1]
        assert [action.kind for action in await scene.engine.ledger.actions(limit=1)] == ["invitation.resend"]

        partner.told = TOLD | {"state": "accepted", "accepted_at": "2026-05-01T20:00:00Z"}
        await scene.press("1", "3")
        await scene.shows("accepted 2h ago")
        await scene.press("R")
        assert len(scene.app.screen_stack) == 1


async def test_an_invitation_is_unknown_without_the_extension(staged: Staged, server: Server, partner: Partner) -> None:
    """Without the extension an invitation is never shown as sent; a parent is shown even without a name.

    After a new one, keys such as resend act on that one, and enter shows its action.
    """
    partner.made = {name: ORGANIZATION[name] for name in ("organization_id", "parent_organization_id")}
    async with staged((80, 24), synced=False, base_url=server.base_url) as scene:
        await invited(scene)
        await scene.shows("unknown")
        assert "this service does not report" in detail(scene)
        assert ORGANIZATION["parent_organization_id"] in detail(scene)
        assert "29d" not in scene.text
        await scene.press("n", *"bob@globex.example", "ctrl+s", "ctrl+s", "escape")
        newest, _ = await scene.engine.ledger.organizations()
        item = scene.app.screen.query_one(LineTable).item
        assert item is not None
        assert (item.key, newest.subject) == (newest.action_id, "bob@globex.example")
        await scene.press("enter")
        await scene.shows("bob@globex.example", "sent")
        assert (scene.app.screen.TAB, scene.app.screen.bookmark[1]) == ("activity", newest.action_id)


async def test_a_search_finds_names_with_any_letters_and_nothing_hidden(
    staged: Staged, server: Server, partner: Partner
) -> None:
    """The service may escape letters in its answer, which may also hold more than is shown."""
    partner.made = ORGANIZATION | {"organization_name": 'Zürich "Ä"', "invitation_secret": "hunter2"}
    async with staged(synced=False, base_url=server.base_url) as scene:
        await invited(scene)
        for word, is_found in (("zürich", True), ('"ä"', True), ("hunter2", False), ("organization_slug", False)):
            await scene.press("slash", *word, "enter")

            await scene.shows("1 created" if is_found else "No write matches")
            await scene.press("escape", "escape")
            await scene.shows("1 created")
