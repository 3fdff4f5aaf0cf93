"""What is known about a run beyond its row: why it failed, its labels, and which rule started it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.bot import Bot
from app.automations.occurrences import MAX_QUESTIONS
from app.automations.replay import replay
from app.automations.rule import fingerprint
from app.inbox.inbox import Inbox
from storage.records.results import FailureFacts
from tests.automations.conftest import Place, rule
from tests.automations.test_acting import Said, configured
from tests.lab import Lab, Received, Respond, Step
from tests.sync.conftest import Desk

SAYS = "{ notify = 'default', text = '{run.branch}: {run.reason}' }"


async def shown(place: Place, run_id: str, status: str = "failed", **extra: object) -> None:
    """Let the service show a run with more fields than the API specifies."""
    await place.run(run_id, "working")
    place.move(minutes=1)
    await place.run(run_id, status)
    run = place.runs[run_id]
    raw = json.dumps({**json.loads(run.raw_json), **extra})
    await place.cache.store_runs([replace(run, raw_json=raw)], asked_at=place.now)


async def started(place: Place, run_id: str, key: str = "k", **metadata: str) -> str:
    """Record a start from this machine, whose outcome is unknown at first; return its action's id."""
    action_id = await place.unknown_write(json.dumps({"instructions": "x", "metadata": metadata}), key)
    if run_id:
        await place.ledger.resolve(action_id, run_id)
    return action_id


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({}, "no reason given"),
        ({"reason": "", "error": {"code": 7, "message": "no such branch"}}, "no such branch"),
        ({"error": ["odd"], "message": 7, "failure_reason": "x" * 5000}, "x" * 999 + "…"),
    ],
)
async def test_the_reason_of_a_failure_is_what_the_service_says(
    place: Place, extra: dict[str, object], reason: str
) -> None:
    """The reason is read from any of the usual fields; without one there is still a complete sentence."""
    runner = await place.begun(rule(do=SAYS))
    await shown(place, "run_1", **extra)
    await runner.decide_and_act()

    assert place.journal[-1].occurrence.facts["run.reason"] == reason


async def test_a_rule_may_ask_for_labels(place: Place) -> None:
    """Labels come from the service, or from what this machine sent; runs without labels are skipped silently."""
    wanted = 'metadata = { team = "pay*", kind = ["nightly", "weekly"] }'
    runner = await place.begun(rule(on=f'{{ run = "failed", {wanted} }}'))
    labels = {"run_1": {"team": "payments", "kind": "weekly"}, "run_2": {"team": "payments"}, "run_3": {"team": "web"}}
    for run_id, given in labels.items():
        if run_id == "run_1":
            await started(place, run_id, run_id, **given)
        await shown(place, run_id, **({} if run_id == "run_1" else {"metadata": given}))
    await shown(place, "run_4")
    await runner.decide_and_act()

    assert [identity.split(":")[1] for _, identity in place.acts.done] == ["run_1"]
    assert {each.occurrence.facts["run.id"] for each in place.journal} == {"run_1"}


async def test_a_run_found_later_belongs_to_the_rule_that_made_it(place: Place) -> None:
    """If a user links a run after a lost answer, it counts for its rule, and the loop stops at the same limit."""
    text = rule(do='{ start = "again", repository = "acme/api" }', limit="{ per_conversation = 1 }", overlap='"allow"')
    runner = await place.begun(text)
    action_id = await started(place, "")
    place.acts.results = [ActingResult("unknown", "no answer", action_id)]
    await shown(place, "run_1")
    await runner.decide_and_act()
    await place.ledger.resolve(action_id, "run_2")
    await shown(place, "run_2")

    for each in (runner, place.runner(text)):
        await each.decide_and_act()

    assert len(place.acts.done) == 1
    found = [(each.outcome, each.result_id) for each in await place.state.journal("r")]
    assert found == [("limited", None), ("done", "run_2")]


async def test_an_edit_is_the_fix_of_a_rule_that_paused_itself(place: Place) -> None:
    """Editing a rule resumes it if it had paused itself.

    One that a user paused stays paused, and a renamed one is new.
    """
    for name, why in (("a", "5 failures in a row"), ("b", "by ann"), ("c", "by ann")):
        (one,) = place.runner(rule(name=f'"{name}"')).rules
        await place.state.begin_rule(name, fingerprint(one), place.now)
        await place.state.pause(name, why)
    place.move(minutes=10)

    text = "\n".join(rule(name=f'"{name}"', pause_after="2") for name in "abd")
    await place.runner(text).decide_and_act()

    states = await place.state.rule_states()
    paused = {name: state.paused for name, state in states.items()}
    assert paused == {"a": None, "b": "by ann", "c": "by ann", "d": None}
    assert {name for name, state in states.items() if state.since == place.now} == {"a", "b", "d"}


async def test_what_the_list_does_not_say_is_asked_of_the_results(place: Place) -> None:
    """Run results are only requested for the first few failures of a storm."""
    asked: list[str] = []

    async def tell(run_id: str) -> str:
        asked.append(run_id)
        return f"{run_id} does not compile"

    runner = place.runner(rule(do=SAYS, limit="{ per_hour = 100 }"))
    runner.observer.ask_reason = tell
    await runner.decide_and_act()
    place.move(minutes=1)
    cache = place.cache
    await place.storm(MAX_QUESTIONS + 5, "acme/api")
    # Many updates arrive at once after failures, and none of them requests results.
    await cache.store_failure_facts(FailureFacts(), await cache.questions_due())
    await runner.decide_and_act()

    reasons = {each.occurrence.facts["run.reason"] for each in place.journal}
    assert len(asked) == MAX_QUESTIONS
    assert reasons == {*(f"{run_id} does not compile" for run_id in asked), "no reason given"}


# a run's findings and cost, requested from the service once the run has ended


def on(name: str, words: str) -> str:
    """A rule with a harmless action."""
    return f'[[automations]]\nname = "{name}"\non = {{ {words} }}\ndo = {{ command = ["true"] }}\n'


def results(*severities: str, used: float | None = None) -> dict[str, Any]:
    """The service's results of a run; only the last turn's findings count."""
    found = [{"path": "a.py", "title": "Look", "severity": one} for one in severities]
    earlier = {"number": 1, "findings": [{"path": "b.py", "title": "Gone", "severity": "blocker"}]}
    return {"turns": [earlier, {"number": 2, "findings": found}], "budget_used": used}


RULES = "".join(
    on(name, words)
    for name, words in {
        "blockers": 'finding = "blocker"',
        "major": 'finding = "major", repository = "acme/*"',
        "dear": "budget = 0.8",
    }.items()
)


async def test_a_run_that_ends_sets_off_the_rules_that_it_meets(tmp_path: Path) -> None:
    """Each matching rule acts once, even after a restart; if the service does not answer it is asked again."""
    with Lab(clock=lambda: datetime.now(UTC)) as lab:
        settings = configured(lab, tmp_path, RULES)
        ended = {
            "run_1": results("major", "note"),
            "run_2": results("blocker"),
            "run_3": results("minor", used=0.8),
            "run_4": results(used=0.79),
        }
        for run_id in ended:
            lab.put(run_id, "working")
        bot = await Bot.open(settings, settings.profile(), said := Said())
        await bot.once()
        lab.turns |= ended
        for run_id in ended:
            lab.move(run_id, "completed")

        def refuse(received: Received) -> Step:
            return Respond(503) if received.path.endswith("external/runs/run_2") else lab.answer(received)

        lab.otherwise = refuse
        await bot.once()
        before = len(said.outcomes())
        lab.otherwise = None
        await bot.once()
        await bot.close()
        again = await Bot.open(settings, settings.profile(), said)
        await again.once()
        told = await replay(again.engine, settings.automations, lab.now - timedelta(hours=1), lab.now)
        del lab.turns["run_2"]
        unknown = await replay(again.engine, settings.automations, lab.now - timedelta(hours=1), lab.now)
        await again.close()

    done = [facts["rule"] for event, facts in said if event == "decision" and facts["outcome"] == "done"]
    assert sorted(map(str, done)) == ["blockers", "dear", "major", "major"]
    assert before < len(said.outcomes())
    assert {name: each.counts for name, each in told.items()} == {
        "blockers": {"done": 1},
        "major": {"done": 2},
        "dear": {"done": 1},
    }
    assert all(each.held_since is not None for each in told.values())
    assert all(each.held_since is None for each in unknown.values()), "one run was not told of"


async def test_a_page_about_a_completed_run_is_as_urgent_as_its_findings(tmp_path: Path) -> None:
    """A blocker's notification has the level error, any other finding's warning: scripts choose by the level."""
    with Lab(clock=lambda: datetime.now(UTC)) as lab:
        rules = on("blockers", 'finding = "blocker"') + on("notes", 'finding = "note", repository = "acme/*"')
        rules = rules.replace('{ command = ["true"] }', '{ notify = "oncall", title = "{rule.name}" }')
        settings = configured(lab, tmp_path, f'{rules}[notify.routes.oncall]\ncommand = ["true"]\n')
        lab.put("run_1", "working")
        bot = await Bot.open(settings, settings.profile(), Said())
        await bot.once()
        lab.turns["run_1"] = results("blocker")
        lab.move("run_1", "completed")
        await bot.once()
        made = await bot.state.recent_deliveries()
        await bot.close()

    assert {each.message.title: each.message.level for each in made} == {"blockers": "error", "notes": "warning"}


async def test_a_run_that_asks_or_was_cancelled_sets_off_no_rule_on_failures(tmp_path: Path) -> None:
    """A run that asks a question or was cancelled is not a failure; rules wait until the service says which it is."""
    runs = ("run_asks", "run_ended", "run_fails")
    with Lab(clock=lambda: datetime.now(UTC)) as lab:
        rules = on("again", 'run = "failed"') + on("tell", 'run = "cancelled"')
        settings = configured(lab, tmp_path, rules)
        for run_id in runs:
            lab.put(run_id, "working")
        bot = await Bot.open(settings, settings.profile(), said := Said())
        await bot.once()
        for run_id in runs:
            lab.move(run_id, "failed")
        told = Respond(503)

        def answer(received: Received) -> Step:
            return told if received.path.endswith("external/questions") else lab.answer(received)

        lab.otherwise = answer
        await bot.once()
        before = len(said.outcomes())
        asked = {"run_id": "run_asks", "question": "Which database?", "choices": []}
        told = Respond(200, {"questions": [asked], "cancelled": ["run_ended"]})
        await bot.once()
        items = await Inbox.of(bot.engine, tuple).items()
        await bot.close()

    done = [str(facts) for event, facts in said if event == "decision" and facts["outcome"] == "done"]
    assert before == 0
    found = {(rule, run) for rule in ("again", "tell") for run in runs for one in done if rule in one and run in one}
    assert found == {("again", "run_fails"), ("tell", "run_ended")}
    assert [(each.kind, [one.run_id for one in each.entries]) for each in items] == [
        ("failed", ["run_fails"]),
        ("question", ["run_asks"]),
    ]


async def test_readings_of_an_inbox_at_the_same_time_are_independent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading is complete even if a run changes meanwhile, and another reading begins and ends."""
    with Lab(clock=lambda: datetime.now(UTC)) as lab:
        lab.put("run_1", "failed", reason="no such branch")
        async with Desk(lab, tmp_path).engine() as engine:
            await engine.refresh()
            box, questions = Inbox.of(engine), engine.cache.questions

            async def later() -> Any:
                monkeypatch.undo()
                lab.move("run_1", "failed", updated=datetime.now(UTC) + timedelta(seconds=1))
                await engine.refresh()
                await box.items()
                return await questions()

            monkeypatch.setattr(engine.cache, "questions", later)
            (item,) = await box.items()

    assert item.title.endswith(": no such branch")
    assert item.run_ids == ("run_1",)
