"""Writes from many places: no unknown outcome goes out of sight, and a batch goes on after its form has closed."""

from app.actions.screen import ActivityScreen
from app.actions.screen_form import ActionForm
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun, WriteRequest
from app.console.sheets import BatchScreen
from app.runs.screen_run import RunScreen
from storage.records import Repository
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.journeys.conftest import NEW_RUN, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import Respond, stamp

WEB = Repository.parse("acme/web")
FIRST, SECOND = f"{NEW_RUN}4", f"{NEW_RUN}5"


def form_values(scene: Scene) -> dict[str, str]:
    assert isinstance(scene.app.screen, ActionForm)
    return dict(scene.app.screen.values)


async def test_an_unknown_outcome_is_in_sight_everywhere_until_it_is_resolved(staged: Staged, service: Service) -> None:
    """It is not sent again; the header and the tab count it, a key leads to it, and once resolved no form warns of it.

    A form on show hears that, by another process too: the warning goes, and it says what became of the text.
    """
    async with staged() as scene:
        service.loses = True
        await scene.press("n", *"Fix it.", "ctrl+s", "ctrl+s")
        await scene.shows("The outcome is unknown", "runwarden actions resolve act_")
        await scene.press("ctrl+s", "ctrl+s", "escape")
        (action,) = await scene.engine.ledger.actions(limit=9)
        assert len(service.posts) == 1
        for tab in ("2", "4", "1"):
            await scene.press(tab)
            await scene.shows("?1", "Activity ?1")

        await scene.press("n")
        await scene.shows("the outcome is unknown: check before you send it again")
        await scene.press("escape", "U")
        assert isinstance(scene.app.screen, ActivityScreen)
        await scene.shows("Check whether it took effect", action.action_id)
        await scene.press("v", "n", "ctrl+s")
        await scene.shows("⊘ not created")
        assert "unknown" not in scene.lines[0]
        assert "?1" not in scene.text

        await scene.press("1", "n")
        await scene.shows("Your draft from")
        assert "unknown" not in scene.text
        repository = Repository.parse(form_values(scene)["repository"])
        assert form_values(scene)["instructions"] == "Fix it."
        await scene.press("escape")

        again = await scene.engine.actions.submit(StartRun("Fix it.", repository))
        await scene.press("n")
        await scene.shows("the outcome is unknown: check before you send it again")
        await scene.engine.ledger.resolve_created(again.action_id, "run_found")
        await scene.ring()
        await scene.shows("took effect: run_found")
        assert "the outcome is unknown" not in scene.text
        await scene.press("escape", "n")
        assert form_values(scene)["instructions"] == ""


async def started(scene: Scene, service: Service, count: int) -> None:
    """Runs that were started from here, and failed; they are marked."""
    for number in range(count):
        made = await scene.engine.actions.submit(StartRun(f"Fix {number}.", WEB, f"branch-{number}"))
        service.runs[str(made.result_id)] |= {"status": "failed", "branch_name": f"branch-{number}"}
    scene.clock.move(minutes=1)
    await scene.sync()
    scene.table.mark([run_id for run_id in service.runs if run_id.startswith(NEW_RUN)])


async def ended(scene: Scene, service: Service, **statuses: str) -> None:
    """The runs end, and the console polls."""
    for run_id, status in statuses.items():
        service.runs[run_id] |= {"status": status, "updated_at": stamp(MINUTES_INTO_THE_DAY + 1)}
    scene.clock.move(minutes=2)
    await scene.sync()


async def test_a_batch_is_followed_to_its_end_after_its_form_has_closed(staged: Staged, service: Service) -> None:
    """Its line moves in every tab, and its list names each run."""
    async with staged() as scene:
        await started(scene, service, 3)
        service.rejects_at = "branch-2"
        await scene.press("T", "ctrl+s")
        await scene.shows("2 of 3 runs started again", "Not on that branch.")
        await scene.press("escape")
        await scene.shows("⊘ 2 of 3 sent 0 of 2 done")
        await ended(scene, service, **{FIRST: "completed", SECOND: "failed"})
        await scene.press("2")
        await scene.shows("⊘ 2 of 3 sent 2 of 2 done, 1 failed")

        await scene.press("F")
        assert isinstance(scene.app.screen, BatchScreen)
        await scene.shows("✗ rejected", "Not on that branch.", "✗ failed", "✓ completed")
        service.runs[SECOND] |= {"status": "working", "updated_at": stamp(MINUTES_INTO_THE_DAY + 3)}
        await scene.sync()
        await scene.shows("● working")
        await ended(scene, service, **{SECOND: "completed"})
        await scene.shows("2 of 2 done")
        assert "done, 1 failed" not in scene.text
        await scene.press("enter")
        assert isinstance(scene.app.screen, RunScreen)


async def test_what_a_batch_left_unknown_moves_its_line_when_it_is_resolved(staged: Staged, service: Service) -> None:
    """Resolved in Activity, long after its form has closed; let go, the line is gone."""
    async with staged() as scene:
        await started(scene, service, 1)
        service.loses = True
        await scene.press("T", "ctrl+s")
        await scene.shows("press v to resolve it")
        await scene.press("escape")
        await scene.shows("? 0 of 1 sent, 1 unknown")
        await scene.press("U", "v", "n", "ctrl+s")
        await scene.shows("✗ 0 of 1 sent")
        await scene.press("F", "delete")
        assert "of 1 sent" not in scene.text


REQUESTS: tuple[WriteRequest, ...] = (
    ContinueRun("run_01JX00007F3KQ9ZT2M0000", "Go on.", Repository.parse("gitlab:a/b"), "main", {"k": True}),
    StartAgent("nightly", "acme/api", None, {"bell\x1b": "a"}),
    StartAgent("nightly", "acme/api", "main", {"bell": "a\x1b[2J", "n": [1, "\u202e"]}),
    CreateOrganization("ada@globex.example", "OFFER"),
    OnboardProject("group/project", 7),
    StartRun("Fix \x1b it.", WEB),
    StartRun("Fix it.", Repository.of("forge", {"id": 7})),
)
UNSHOWABLE: tuple[WriteRequest, ...] = (REQUESTS[1], *REQUESTS[-2:])


async def test_what_was_rejected_is_edited_and_sent_again(staged: Staged, service: Service) -> None:
    """The form begins with the request as it was sent, and makes a new action; the old one stays rejected.

    What no form shows faithfully is refused with a sentence; nothing is changed behind one's back.
    """
    request = StartRun("Fix it.", WEB, "fix/it", {"depth": 3, "note": "3", "text": "two\nlines"})
    service.rejects = Respond(400, {"message": "Not that branch.", "error_code": "invalid_branch"})
    async with staged(SMALL) as scene:
        rejected = await scene.engine.actions.submit(request)
        service.rejects = None
        await scene.press("6", "E")
        assert (form_values(scene)["repository"], form_values(scene)["branch_name"]) == ("acme/web", "fix/it")
        await scene.press("x", "escape", "E")
        await scene.shows("Your draft from just now")
        await scene.press("ctrl+n", "ctrl+s", "ctrl+s")
        await scene.shows("The run was started")
        await scene.press("escape")

        first, second = (each.json() for each in service.requests if each.method == "POST")
        assert first == second
        newest, oldest = await scene.engine.ledger.actions(limit=9)
        assert (newest.state, oldest.state) == ("confirmed", "rejected")
        assert (newest.action_id != rejected.action_id, oldest.action_id) == (True, rejected.action_id)
        await scene.press("home")
        assert "edit and resend" not in scene.text

        service.rejects = Respond(400, {"message": "No."})
        for sent in REQUESTS:
            await scene.engine.actions.submit(sent)
            scene.clock.move(seconds=5)
        await scene.press("home")
        for sent in reversed(REQUESTS):
            refusals = sum("No form can show" in toast for toast in scene.toasts)
            await scene.press("E")
            if sent in UNSHOWABLE:
                assert sum("No form can show" in toast for toast in scene.toasts) > refusals, sent
            else:
                form = scene.app.screen
                assert isinstance(form, ActionForm)
                assert form.requests(form.values) == (sent,)
                await scene.press("escape")
            await scene.press("down")
