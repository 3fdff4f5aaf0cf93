"""The ten most common tasks take at most five keys each (docs/use/console.md); and writes from many screens."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from app.actions.screen import ActivityScreen
from app.actions.screen_form import ActionForm
from app.actions.screen_many import BatchScreen
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun, WriteRequest
from app.profiles.load import parse
from app.runs.screen_run import RunScreen
from storage.records import HealthSample, Repository
from tests.console.automations.conftest import ONE, REQUEST, decided
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, TOKEN_VARIABLE, a_day
from tests.lab import Drop, Lab, Received, Respond, Step, stamp

NEW_RUN: Final = "run_01JYSTARTED"


@dataclass(kw_only=True, eq=False)
class Service(Lab):
    """The lab, which rejects and loses requests as scripted; the first started run has its own id."""

    rejects: Step | None = None
    """The answer to every write."""
    rejects_at: str = ""
    """Starts on this branch are refused."""
    loses: bool = False
    """Whether writes take effect without an answer."""

    def answer(self, request: Received) -> Step:
        """Answer as the lab does, except for refused and lost requests."""
        if request.method != "POST":
            return super().answer(request)
        body = request.json()
        if self.rejects is not None:
            return self.rejects
        if self.rejects_at and body.get("branch_name") == self.rejects_at:
            return Respond(400, {"message": "Not on that branch."})
        if not request.path.endswith("/runs") or "run_id" in body:
            return Drop() if self.loses else super().answer(request)
        count = sum(run_id.startswith(NEW_RUN) for run_id in self.runs)
        run_id = f"{NEW_RUN}{count + 1}" if count else NEW_RUN
        where = {"branch_name": "agent/started", "repository": body["repository"]}
        self.put(run_id, "queued", created=MINUTES_INTO_THE_DAY, **where)
        return Drop() if self.loses else Respond(201, self.runs[run_id])


@pytest.fixture
def service() -> Iterator[Service]:
    """A service with a day's runs."""
    with Service() as service:
        a_day(service)
        yield service


@pytest.fixture
def board(service: Service) -> Service:
    """The service that `staged` shows."""
    return service


TUESDAY: Final = "run_01JXTUESDAY"
STEPS: Final = [
    {"kind": "ran", "text": "make", "call": "c1"},
    {"kind": "result", "text": "Error: no space left on device", "call": "c1", "failed": True},
    *200 * [{"kind": "said", "text": "Cleaning up."}],
]
"""A log with an error far above its end."""


class Journey(NamedTuple):
    """The keys from the list of runs to a goal."""

    name: str
    """The keys, as docs/use/console.md lists them."""
    keys: str
    ends: tuple[str, ...]
    """The text that is then on the screen or in a toast."""


PRESSED: Final = {"]": "right_square_bracket", "!": "exclamation_mark", "↓": "down"}
JOURNEYS: Final = (
    Journey("Find the failed run of three days ago", "] ] t 3", ("1 of", "since:2026-04-28", "fix/tuesday")),
    Journey("See what broke last night: the incident and its runs", "2 ! enter", ("repo:gitlab:*", "fix/night")),
    Journey("See who changed this branch", "b enter enter", ("ada", "On this branch 2 runs")),
    Journey("Read the error in the log of the last failed run", "] ] l !", ("Error: no space left on device",)),
    Journey(
        "See a repository's success rate, and its runs of the week", "4 ↓ enter", ("repo:acme/api since:2026-04-25",)
    ),
    Journey("Resolve a write whose outcome is unknown", "U v n ctrl+s", ("⊘ not created",)),
    Journey(
        "See what was sent to create the newest organization",
        "3 enter",
        ("What was sent", '"email": "ada@globex.example"'),
    ),
    Journey("Retry all that failed on one host", "2 ↓ T ctrl+s", ("3 of 3 runs started again",)),
    Journey("Approve an automation's request", "5 V ctrl+s", ("◌ approved",)),
    Journey("Snooze the most urgent item of the inbox until tomorrow morning", "7 h 2", ("Snoozed:",)),
)


def a_week(service: Service) -> None:
    """Runs of last Tuesday and of the night, each with a turn and a log with an error far above its end."""
    tools = {"platform": "gitlab", "data": {"project_path": "acme/tools"}}
    service.put(TUESDAY, "failed", created=-(3 * 1440 + 120), branch_name="fix/tuesday")
    service.put("run_01JXTUESDAYTOO", created=-(3 * 1440 + 125))
    service.put("run_01JXBEFORE", created=-1500, branch_name="agent/started", repository=tools)
    service.put("run_01JXNIGHT", "failed", created=75, updated=80, branch_name="fix/night", repository=tools)
    service.health["gitlab"] |= {"status": "ok"}
    turn = {"number": 1, "instructions": "Do it.", "state": "failed", "outcome": "failed", "caller": "ada"}
    turns = {"turns": [turn | {"started_at": stamp(MINUTES_INTO_THE_DAY)}]}
    for run_id in (NEW_RUN, *service.runs):
        service.turns[run_id], service.logs[run_id, 1], service.steps[run_id, 1] = turns, b"a log", STEPS


async def a_night(scene: Scene, service: Service) -> None:
    """A recovered host, a failed run of ours, an organization, an unknown write, and a request for approval."""
    engine = scene.engine
    for minutes in range(600, 0, -10):
        gitlab = "unreachable" if 510 <= minutes < 540 else "ok"
        samples = [HealthSample("github", "ok", None, None, "{}")]
        samples.append(HealthSample("gitlab", gitlab, "gitlab.acme.example", "acme", "{}"))
        await engine.cache.store_health(tuple(samples), at=scene.clock() - timedelta(minutes=minutes))
    await engine.actions.submit(StartRun("Fix it.", Repository.parse("gitlab:acme/tools")))
    service.runs[NEW_RUN] |= {"status": "failed"}
    service.loses = True
    await engine.actions.submit(CreateOrganization("lost@globex.example"))
    service.loses = False
    await engine.actions.submit(CreateOrganization("ada@globex.example"))
    await decided(scene, "second chance", "waiting", "waits for approval", request=REQUEST, ago_m=5.0)
    await scene.sync()
    await scene.ring()
    await scene.tick(seconds=1)


async def test_every_journey_works_in_one_console(staged: Staged, service: Service, tmp_path: Path) -> None:
    """All are walked in one console, one after the other, each from the list of runs."""
    a_week(service)
    file = tmp_path / "config.toml"
    profile = f'[profiles.acme-prod]\nbase_url = "{service.base_url}"\ntoken_env = "{TOKEN_VARIABLE}"\n'
    file.write_text(profile + ONE, "utf-8")
    changed = {"file": file, "automations": parse(file, file.read_text("utf-8")).automations}
    async with staged(synced=False, changed=changed) as scene:
        await a_night(scene, service)
        for journey in JOURNEYS:
            # Each begins with all runs, and the cursor of each tab on its first row.
            await scene.press("2", "home")
            await scene.to_all_runs()
            await scene.press(*(PRESSED.get(key, key) for key in journey.keys.split()))
            await scene.shows(*(word for word in journey.ends if not any(word in toast for toast in scene.toasts)))


def test_the_documentation_lists_every_journey() -> None:
    """The documentation lists ten, in this order, and none takes more than five keys."""
    page = (Path(__file__).parents[2] / "docs/use/console.md").read_text("utf-8")
    table = page.partition("## Ten journeys")[2].partition("\n## ")[0]
    keys = [" ".join(f"`{key}`" for key in each.keys.split()) for each in JOURNEYS]

    rows = [f"| {each.name} | {pressed} |" for each, pressed in zip(JOURNEYS, keys, strict=True)]
    assert [line for line in table.splitlines() if line.startswith("| ")][1:] == rows
    assert len(rows) == 10
    assert max(len(each.keys.split()) for each in JOURNEYS) <= 5


WEB = Repository.parse("acme/web")
FIRST, SECOND = f"{NEW_RUN}4", f"{NEW_RUN}5"


def form_values(scene: Scene) -> dict[str, str]:
    assert isinstance(scene.app.screen, ActionForm)
    return dict(scene.app.screen.values)


async def test_an_unknown_outcome_is_visible_everywhere_until_resolved(staged: Staged, service: Service) -> None:
    """The header and the tab count it and a key leads to it.

    It is not sent again, and once resolved no form warns about it. An open form notices a resolution by another process
    too: the warning disappears, and a note says what happened to the text.
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
        await scene.engine.ledger.resolve(again.action_id, "run_found")
        await scene.ring()
        await scene.shows("took effect: run_found")
        assert "the outcome is unknown" not in scene.text
        await scene.press("escape", "n")
        assert form_values(scene)["instructions"] == ""


async def started(scene: Scene, service: Service, count: int) -> None:
    """Marks runs that were started from here and failed."""
    for number in range(count):
        made = await scene.engine.actions.submit(StartRun(f"Fix {number}.", WEB, f"branch-{number}"))
        service.runs[str(made.result_id)] |= {"status": "failed", "branch_name": f"branch-{number}"}
    scene.clock.move(minutes=1)
    await scene.sync()
    scene.table.mark([run_id for run_id in service.runs if run_id.startswith(NEW_RUN)])


async def ended(scene: Scene, service: Service, **statuses: str) -> None:
    """Lets the runs end, and the console poll."""
    for run_id, status in statuses.items():
        service.runs[run_id] |= {"status": status, "updated_at": stamp(MINUTES_INTO_THE_DAY + 1)}
    scene.clock.move(minutes=2)
    await scene.sync()


async def test_a_batch_is_followed_after_its_form_closes(staged: Staged, service: Service) -> None:
    """The batch's line changes in every tab, and its list names each run."""
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


async def test_resolving_an_outcome_updates_its_batch(staged: Staged, service: Service) -> None:
    """The outcome is resolved in Activity, long after the form has closed; once dismissed, the line disappears."""
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


async def test_a_rejected_request_can_be_edited_and_sent(staged: Staged, service: Service) -> None:
    """The form starts with the request as it was sent, and creates a new action; the old one stays rejected.

    A request that no form can show exactly is refused with a sentence, and never changed silently.
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
        await scene.shows("forge:{")
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
