"""Many writes at a glance: found, put in order, and corrected where they had no effect."""

from app.actions.screen_form import ActionForm
from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
)
from storage.records import Repository
from tests.console.conftest import SMALL, Staged
from tests.console.journeys.conftest import BY_KEYS, BY_MOUSE, Walked
from tests.console.journeys.steps import Hand, Service
from tests.lab import Respond


def order(hand: Hand, *names: str) -> list[str]:
    """The names in the order of their lines."""
    at = {name: hand.scene.text.find(f" {name}@") for name in names}
    return sorted((name for name in names if at[name] >= 0), key=lambda name: at[name])


@BY_KEYS
async def test_organizations_are_searched(walked: Walked, service: Service) -> None:
    """By address, name, slug and id; the newest attempt comes first, and the cursor stays on its own."""
    service.loses = {"bea@initech.example"}
    async with walked(SMALL) as hand:
        for address in ("zoe@acme.example", "bea@initech.example", "ada@globex.example"):
            await hand.scene.engine.actions.submit(CreateOrganization(address))
            hand.scene.clock.move(seconds=5)
        await hand.do("3", "3 Org")
        await hand.point("bea@initech")
        names = ("ada", "bea", "zoe")
        assert order(hand, *names) == ["ada", "bea", "zoe"]
        await hand.see("▌ ? unknown bea@")

        for words, left in (("ORG_ada", ["ada"]), ("acme .example", ["zoe"]), ("bea@", ["bea"])):
            await hand.do("slash", "/ search")
            await hand.type(words)
            await hand.see("1 of 3")
            assert order(hand, *names) == left
            await hand.do("escape", "clear")
        await hand.do("slash", "/ search")
        await hand.type("nothing-like-it")
        await hand.see("No attempt matches")
        await hand.do("enter", "enter to the list")
        await hand.do("escape", "esc show all")
        await hand.see("zoe@acme.example")


@BY_MOUSE
async def test_what_was_rejected_is_edited_and_sent_again(walked: Walked, service: Service) -> None:
    """The form begins with the request as it was sent, and makes a new action; the old one stays rejected."""
    request = StartRun(
        "Fix it.", Repository.parse("acme/web"), "fix/it", {"depth": 3, "note": "3", "text": "two\nlines"}
    )
    service.rejects = Respond(400, {"message": "Not that branch.", "error_code": "invalid_branch"})
    async with walked(SMALL) as hand:
        ledger = hand.scene.engine.ledger
        rejected = await hand.scene.engine.actions.submit(request)
        service.rejects = None
        await hand.do("6", "6 Activity")
        await hand.point("start run")
        await hand.do("E", "E edit and resend")
        assert (hand.value("repository"), hand.value("branch_name")) == ("acme/web", "fix/it")
        await hand.fill("instructions", " Now really.")
        await hand.do("escape", "Close esc")

        await hand.do("E", "E edit and resend")
        await hand.see("Your draft from just now")
        await hand.do("ctrl+n", "Start fresh ^n")
        await hand.do("ctrl+s", "Preview ^s")
        await hand.do("ctrl+s", "Send ^s")
        await hand.see("The run was started")
        await hand.do("escape", "Close esc")

        first, second = service.written
        assert first == second
        newest, oldest = await ledger.actions(limit=9)
        assert (newest.state, oldest.state) == ("confirmed", "rejected")
        assert (newest.action_id != rejected.action_id, oldest.action_id) == (True, rejected.action_id)
        await hand.point("✓ confirmed")
        assert "edit and resend" not in hand.scene.text


RUN = "run_01JX00007F3KQ9ZT2M0000"
REQUESTS: tuple[WriteRequest, ...] = (
    ContinueRun(RUN, "Go on.", Repository.parse("gitlab:a/b"), "main", {"k": True}),
    StartAgent("nightly", "acme/api", None, {"bell\x1b": "a"}),
    StartAgent("nightly", "acme/api", "main", {"bell": "a\x1b[2J", "n": [1, "\u202e"]}),
    CreateOrganization("ada@globex.example", "OFFER"),
    OnboardProject("group/project", 7),
    StartRun("Fix \x1b it.", Repository.parse("acme/web")),
    StartRun("Fix it.", Repository.of("forge", {"id": 7})),
)
UNSHOWABLE: tuple[WriteRequest, ...] = (REQUESTS[1], *REQUESTS[-2:])


async def test_each_kind_begins_as_it_was_sent_or_not_at_all(staged: Staged, service: Service) -> None:
    """What no form shows faithfully is refused with a sentence; nothing is changed behind one's back."""
    service.rejects = Respond(400, {"message": "No."})
    async with staged() as scene:
        for request in REQUESTS:
            await scene.engine.actions.submit(request)
            scene.clock.move(seconds=5)
        await scene.press("6")
        for request in reversed(REQUESTS):
            refusals = sum("No form can show" in toast for toast in scene.toasts)
            await scene.press("E")
            if request in UNSHOWABLE:
                assert sum("No form can show" in toast for toast in scene.toasts) > refusals, request
            else:
                form = scene.app.screen
                assert isinstance(form, ActionForm)
                assert form.requests(form.values) == (request,)
                await scene.press("escape")
            await scene.press("down")
