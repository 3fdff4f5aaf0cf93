"""The ten ways that people go most, each in at most five keys; docs/use/console.md lists them."""

from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from app.api.requests import CreateOrganization, StartRun
from app.profiles.load import parse
from storage.records import HealthSample, Repository
from tests.console.automations.conftest import ONE, REQUEST, decided
from tests.console.conftest import Scene, Staged
from tests.console.journeys.conftest import NEW_RUN, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY, TOKEN_VARIABLE
from tests.lab import stamp

TUESDAY: Final = "run_01JXTUESDAY"
STEPS: Final = [
    {"kind": "ran", "text": "make", "call": "c1"},
    {"kind": "result", "text": "Error: no space left on device", "call": "c1", "failed": True},
    *200 * [{"kind": "said", "text": "Cleaning up."}],
]
"""A log with an error far above its end."""


class Journey(NamedTuple):
    """From the list of runs to what a person wanted to see, or wanted done."""

    name: str
    """As docs/use/console.md has it."""
    keys: str
    ends: tuple[str, ...]
    """What is on the screen then, or in a toast."""


PRESSED: Final = {"]": "right_square_bracket", "!": "exclamation_mark", "↓": "down"}
JOURNEYS: Final = (
    Journey(
        "Find the failed run of last Tuesday (today is Friday)", "] ] t 3", ("1 of", "since:2026-04-28", "fix/tuesday")
    ),
    Journey("See what broke last night: the incident and its runs", "2 ! enter", ("repo:gitlab:*", "fix/night")),
    Journey("See who changed this branch", "b enter enter", ("ada", "On this branch 2 runs")),
    Journey("Read the error in the log of the last failed run", "] ] l !", ("Error: no space left on device",)),
    Journey(
        "See a repository's success rate, and its runs of the week", "4 ↓ enter", ("repo:acme/api since:2026-04-25",)
    ),
    Journey("Resolve a write whose outcome is unknown", "U v n ctrl+s", ("⊘ not created",)),
    Journey(
        "See what was sent to create the newest organization",
        "3 enter enter",
        ("What was sent", '"email": "ada@globex.example"'),
    ),
    Journey("Retry all that failed on one host", "2 ↓ T ctrl+s", ("3 of 3 runs started again",)),
    Journey("Approve an automation's request", "5 V ctrl+s", ("◌ approved",)),
    Journey("Snooze the most urgent item of the inbox until tomorrow morning", "7 h 2", ("Snoozed:",)),
)


def a_week(service: Service) -> None:
    """Runs of last Tuesday and of the night, and of each run its turn and a log with an error far above its end."""
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
    """A host that was away, a run of ours that failed, an organization, an unknown write, and one to approve."""
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


async def test_each_is_walked_in_one_console(staged: Staged, service: Service, tmp_path: Path) -> None:
    """One after the other, each from the list of runs."""
    a_week(service)
    file = tmp_path / "config.toml"
    profile = f'[profiles.acme-prod]\nbase_url = "{service.base_url}"\ntoken_env = "{TOKEN_VARIABLE}"\n'
    file.write_text(profile + ONE, "utf-8")
    changed = {"file": file, "automations": parse(file, file.read_text("utf-8")).automations}
    async with staged(synced=False, changed=changed) as scene:
        await a_night(scene, service)
        for journey in JOURNEYS:
            # Where each begins: all runs, and the cursor of each tab on its first row.
            await scene.press("2", "home")
            await scene.to_all_runs()
            await scene.press(*(PRESSED.get(key, key) for key in journey.keys.split()))
            await scene.shows(*(word for word in journey.ends if not any(word in toast for toast in scene.toasts)))


def test_the_documentation_lists_them_with_their_keys() -> None:
    """Ten, in this order, and none takes more than five keys."""
    page = (Path(__file__).parents[3] / "docs/use/console.md").read_text("utf-8")
    table = page.partition("## Ten journeys")[2].partition("\n## ")[0]
    keys = [" ".join(f"`{key}`" for key in each.keys.split()) for each in JOURNEYS]

    rows = [f"| {each.name} | {pressed} |" for each, pressed in zip(JOURNEYS, keys, strict=True)]
    assert [line for line in table.splitlines() if line.startswith("| ")][1:] == rows
    assert len(rows) == 10
    assert max(len(each.keys.split()) for each in JOURNEYS) <= 5
