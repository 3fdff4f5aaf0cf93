"""The Automations tab, over the real engine, the real state and a configuration file."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from app.api.requests import StartRun
from app.automations.acting import propose
from app.automations.rule import fingerprint_of
from app.automations.screen_sheets import ApprovalsSheet
from app.console.session import GoToTab
from app.engine.events import StateChangedElsewhere
from storage.records import Repository
from storage.state import AT_WORK, State
from tests.console.automations.conftest import ONE, REQUEST, Changed, decided, file_of
from tests.console.conftest import Disk, Hasty, Scene, Staged

Configured = Callable[[str], Changed]
TIMED = '[[automations]]\nname = "nightly"\non = { schedule = "0 3 * * *" }\ndo = { command = ["echo", "{date}"] }\n'
NOTE = '[[automations]]\nname = "note"\non = { every = "1d" }\ndo = { notify = "default", text = "note of {date}" }\n'
HOSTILE = "\x1b[2J[/nope]\u202e"
RUN = {"run_id": "run_01JX0003", "run_status": "failed", "run_repository": "acme/api"}


async def waits(scene: Scene, ago_m: float, **about: str) -> int:
    """A request that waits for approval."""
    return await decided(scene, "second chance", "waiting", "waits", request=REQUEST, ago_m=ago_m, **about)


async def journal(scene: Scene, outcome: str) -> list[str]:
    """The run ids of decisions with this outcome, newest first."""
    found = await scene.engine.usable_state().journal()
    return [each.occurrence.facts["run.id"] for each in found if each.outcome == outcome]


async def outcomes(scene: Scene, rule: str = "second chance") -> list[tuple[str, str]]:
    """The outcomes of the rule's decisions, newest first."""
    return [(each.outcome, each.reason) for each in await scene.engine.usable_state().journal(rule)]


async def test_the_journal_claims_no_effect_that_did_not_happen(staged: Staged, configured: Configured) -> None:
    """The journal does not claim effects of an earlier wording either.

    Foreign text stays text in the journal, on the card and above the question, without markup or links.
    """
    async with staged(changed=configured(ONE)) as scene:
        await decided(scene, "second chance", "done", made="run_01JX0003", **RUN)
        await decided(scene, "second chance", "done", made="run_new", ago_m=2, **RUN)
        await decided(scene, "second chance", "done", made="run_01JX0003", ago_m=60 * 24 * 10, **RUN)
        await scene.press("5", "enter")
        assert [f"{how} run_" in scene.text for how in ("continued", "made", "acted on")] == [True] * 3
        assert "made run_01JX0003" not in scene.text

        body = {"instructions": HOSTILE, "run_id": HOSTILE}
        request = json.dumps({"path": "/external/runs", "body": body}, ensure_ascii=False)
        facts = {"run_id": HOSTILE, "run_branch": HOSTILE}
        await decided(scene, "second chance", "failed", HOSTILE, ago_m=0.9, made=HOSTILE, **facts)
        await decided(scene, "second chance", "waiting", HOSTILE, ago_m=0.5, request=request, **facts)
        await scene.press("escape")
        await scene.ring(StateChangedElsewhere())
        for keys in ("home", "v"):
            await scene.press(keys)
            assert "[/nope]" in scene.text
            assert not {"\x1b", "\u202e"} & set(scene.text)


async def test_the_screen_says_whether_a_bot_is_running(staged: Staged, configured: Configured) -> None:
    """The screen follows other processes' decisions, and says when a running bot uses an older file."""
    async with staged(changed=configured(ONE)) as scene:
        await scene.press("5")
        assert "no bot is running: runwarden watch" in scene.text

        other = await State.open(scene.engine.usable_state().writer.path, clock=scene.clock)
        await other.acquire_lease("automations", "4711-abc", 30.0)
        await decided(scene, "second chance", "skipped", "in quiet hours", **RUN)
        await scene.ring(StateChangedElsewhere())
        assert "a bot is at work: process 4711" in scene.text
        assert "in quiet hours" in scene.text

        old = scene.engine.settings.automations
        await other.begin_rule(AT_WORK, fingerprint_of(old), scene.clock.now)
        switch_off(scene)
        await scene.press("f5")
        assert "the running bot uses an older file: kill -HUP 4711" in scene.text

        new = [replace(each, is_on=False) for each in old]
        await other.begin_rule(AT_WORK, fingerprint_of(new), scene.clock.now)
        await scene.ring(StateChangedElsewhere())
        assert "a bot is at work: process 4711" in scene.text

        await scene.tick(seconds=31)
        assert "no bot is running" in scene.text
        await other.close()


def switch_off(scene: Scene) -> None:
    """Disable the rule in its file."""
    file_of(scene).write_text(file_of(scene).read_text("utf-8").replace('chance"\n', 'chance"\nenabled = false\n'))


async def test_a_rule_is_paused_and_read_again(staged: Staged, configured: Configured) -> None:
    """One key pauses the rule and shows the reason. The file is read again, and an error there is reported."""
    async with staged(toasts=True, changed=configured(ONE)) as scene:
        await scene.press("5", "P")
        assert "‖ paused by " in scene.text
        await scene.press("P")
        assert "‖ paused" not in scene.text
        assert (await scene.engine.usable_state().rule_states())["second chance"].paused is None

        assert "▸ on" in scene.text
        switch_off(scene)
        await scene.press("f5")
        assert "- off; press E and set enabled = true" in scene.text

        file = file_of(scene)
        file.write_text(f"{file.read_text('utf-8')}\noops", "utf-8")
        await scene.press("f5")
        assert "The configuration has a mistake" in scene.text
        assert "second chance" in scene.text


async def test_an_approval_is_answered_only_after_it_was_shown(
    staged: Staged, configured: Configured, hasty: Hasty
) -> None:
    """The row has the rule, the run and the request, enter shows the exact request, and a held key answers nothing."""
    changed = configured(ONE) | {"command_line": "runwarden --profile=acme-prod"}
    async with staged(toasts=True, changed=changed) as scene:
        await waits(scene, 1, **RUN)
        await scene.press("5", "V")
        await scene.shows("second chance failed", "continue: Find out why, and fix")
        assert "run_01JX0003" not in scene.text
        assert "POST /external/runs" not in scene.text
        await hasty(scene, "ctrl+s")
        await scene.shows("Check it, then press ^s again")
        await scene.press("enter")
        await scene.shows("POST /external/runs", '"run_id": "run_01JX0003"')
        await scene.press("enter")
        assert "POST /external/runs" not in scene.text
        assert await outcomes(scene) == [("waiting", "waits")]

        await scene.press("ctrl+s")
        ((outcome, reason),) = await outcomes(scene)
        assert (outcome, reason[:12]) == ("approved", "approved by ")
        assert not isinstance(scene.app.screen, ApprovalsSheet)
        assert "as soon as a bot is running: runwarden --profile=acme-prod watch" in scene.toasts[-1]

        number = await waits(scene, 0.5, **RUN)
        await scene.ring(StateChangedElsewhere())
        await scene.press("V")
        await scene.engine.usable_state().change_outcome(number, "waiting", "approved", "approved by ann")
        await scene.press("ctrl+k")
        assert (await outcomes(scene))[0] == ("approved", "approved by ann")
        assert "No longer waiting: second chance" in scene.toasts[-1]


async def test_marked_requests_are_answered_together(staged: Staged, configured: Configured) -> None:
    """A key acts on the marked requests, wherever the cursor is, and an answered one leaves the cursor in place.

    Answers from elsewhere are reported, and the next request is not answered in place of the one meant.
    """
    async with staged(toasts=True, changed=configured(ONE)) as scene:
        for number in range(1, 6):
            await waits(scene, 9 - number, run_id=f"run_{number}", run_status="failed", run_branch=f"fix/{number}")
        await scene.press("5", "V")
        await scene.shows("Waiting for approval: 5", "^s approve", "^k reject")

        # The outcome of the previous answer is shown above the others, so that no toast covers them.
        await scene.press("j", "j", "ctrl+k")
        await scene.shows("Rejected: second chance.", "Waiting for approval: 4")
        assert not [toast for toast in scene.toasts if "Rejected" in toast]
        await scene.press("ctrl+k")
        await scene.shows("Waiting for approval: 3")
        assert await journal(scene, "skipped") == ["run_4", "run_3"]

        await scene.press("home", "space", "space")
        await scene.shows("3, 2 marked", "^s approve 2", "^k reject 2")
        await scene.press("ctrl+s")
        await scene.shows("Approved: 2 requests.", "Waiting for approval: 1", "fix/5: continue: Find out why")
        assert "run_5" not in scene.text
        assert await journal(scene, "approved") == ["run_2", "run_1"]

        await scene.press("asterisk", "ctrl+k")
        assert not isinstance(scene.app.screen, ApprovalsSheet)
        assert (await outcomes(scene))[0][0] == "skipped"

        # Neither the request under the cursor nor a marked one is silently replaced by another.
        number = await waits(scene, 2.5, run_id="run_4", run_branch="fix/4")
        await waits(scene, 2, run_branch="fix/5")
        await scene.ring(StateChangedElsewhere())
        await scene.press("V")
        await scene.shows("Waiting for approval: 2", "fix/4: continue: Find out why")
        await scene.engine.usable_state().change_outcome(number, "waiting", "approved", "approved by ann")
        await scene.ring(StateChangedElsewhere())
        await scene.shows(
            "second chance: answered elsewhere: approved by ann.", "approval: 1", "fix/5: continue: Find out why"
        )
        await scene.press("ctrl+s")
        await scene.shows("Check it, then press ^s again")
        assert (await outcomes(scene))[0] == ("waiting", "waits")

        await scene.press("ctrl+s")
        assert (await outcomes(scene))[0][0] == "approved"

        # The marked ones are gone, and the one under the cursor was not meant.
        number = await waits(scene, 0.9, run_id="run_01JX0006")
        await waits(scene, 0.8, run_id="run_01JX0007")
        await scene.ring(StateChangedElsewhere())
        await scene.press("V", "space")
        await scene.shows("^s approve 1")
        await scene.engine.usable_state().change_outcome(number, "waiting", "approved", "approved by ann")
        await scene.ring(StateChangedElsewhere())
        await scene.press("ctrl+s")
        assert (await outcomes(scene))[0] == ("waiting", "waits")


async def test_the_approvals_sheet_lists_the_newest_requests(
    staged: Staged, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tab counts all of them, however many there are."""
    monkeypatch.setattr("app.automations.screen_data.MAX_WAITING", 2)
    async with staged(changed=configured(ONE)) as scene:
        for number in range(1, 4):
            await waits(scene, 9 - number, run_id=f"run_{number}", run_branch=f"fix/{number}")
        await scene.press("5")
        await scene.shows("3 wait for approval")
        await scene.press("V")
        await scene.shows("Waiting for approval: 2", "fix/2", "fix/3")
        assert "fix/1" not in scene.text


async def test_a_proposal_is_listed_without_any_automation(staged: Staged, configured: Configured) -> None:
    """The proposal shows its exact request and its sender, the inbox leads to it, and the mouse alone can answer it."""
    async with staged(changed=configured("")) as scene:
        await scene.press("5")
        request = StartRun("Look at {run.id}.", Repository.parse("acme/api"))
        await propose(scene.engine, request)
        await scene.ring(StateChangedElsewhere())
        await scene.shows("1 waits for approval")
        scene.app.screen.post_message(GoToTab("automations", "approval:[mcp] run.start"))
        await scene.shows("[mcp] run.start", "by a program", "acme/api: start a run: Look at {run.id}.")
        await scene.press("escape")
        for words in ("1 waits for approval", "^k reject"):
            y = next(y for y, line in enumerate(scene.lines) if words in line)
            await scene.pilot.click(offset=(scene.lines[y].index(words) + 1, y))
            await scene.settle()

        ((outcome, reason),) = await outcomes(scene, "[mcp] run.start")
        assert (outcome, reason[:12]) == ("skipped", "rejected by ")


async def test_running_a_rule_now_shows_its_effect_first(staged: Staged, configured: Configured) -> None:
    """The rule runs within its limits, and its outcome is shown and journalled."""
    async with staged(toasts=True, changed=configured(f"{ONE}\n{TIMED}\n{NOTE}")) as scene:
        await scene.press("5", "j", "S")
        await scene.shows("RUN echo 2026-05-01")
        await scene.press("enter")
        await scene.shows("ctrl+s Run it now", "esc Leave it")
        assert await outcomes(scene, "nightly") == []

        await scene.press("ctrl+s")
        assert await outcomes(scene, "nightly") == [("done", "")]
        assert "● done" in scene.toasts[-1]

        await scene.press("k", "S")
        await scene.shows("Choose a run", "✗ failed")
        await scene.press("enter")
        await scene.shows("Find out why, and fix it.")
        await scene.press("ctrl+s")
        assert [outcome for outcome, _ in await outcomes(scene)] == ["waiting"]

        await scene.press("j", "j", "S")
        await scene.shows("NOTIFY default", "note of 2026-05-01")


async def test_a_failing_state_is_reported_in_this_tab_only(staged: Staged, configured: Configured, disk: Disk) -> None:
    """The banner shows the state's error; once it works again, the rules are back."""
    async with staged(changed=configured(ONE)) as scene:
        await scene.press("5")
        disk.fails = True
        await scene.ring(StateChangedElsewhere())
        assert "Nothing can be shown" in scene.text
        assert "disk I/O error" in scene.text

        disk.fails = False
        await scene.ring(StateChangedElsewhere())
        assert "second chance" in scene.text
