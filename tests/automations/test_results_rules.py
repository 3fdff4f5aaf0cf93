"""Rules on what a run found and what it cost: asked of the service once the run has ended."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.automations.bot import Bot
from app.automations.replay import replay
from app.inbox.inbox import Causes
from tests.automations.test_acting import Said, configured
from tests.lab import Lab, Received, Respond, Step

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def on(name: str, words: str) -> str:
    """A rule that does nothing much."""
    return f'[[automations]]\nname = "{name}"\non = {{ {words} }}\ndo = {{ command = ["true"] }}\n'


def results(*severities: str, used: float | None = None) -> dict[str, Any]:
    """What the service tells of a run: the first turn's findings do not count, the last one's do."""
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


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_run_that_ends_sets_off_the_rules_that_it_meets(tmp_path: Path, is_away: bool) -> None:
    """Each once, over a restart, and in the replay; where the service cannot be asked at first, it is asked again."""
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

        lab.otherwise = refuse if is_away else lab.answer
        await bot.once()
        before = len(said.outcomes())
        lab.otherwise = lab.answer
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
    assert (before == len(said.outcomes())) == (not is_away)
    assert {name: each.counts for name, each in told.items()} == {
        "blockers": {"done": 1},
        "major": {"done": 2},
        "dear": {"done": 1},
    }
    assert all(each.held_since is not None for each in told.values())
    assert all(each.held_since is None for each in unknown.values()), "one run was not told of"


async def test_a_run_that_asks_or_was_cancelled_sets_off_no_rule_on_failures(tmp_path: Path) -> None:
    """Its answer is a person's, and its end was; until the service has told which these are, the rules wait."""
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
        causes = await Causes(bot.engine, None, tuple).read(datetime.now(UTC))
        await bot.close()

    done = [str(facts) for event, facts in said if event == "decision" and facts["outcome"] == "done"]
    assert before == 0
    assert {
        (rule, run_id) for rule in ("again", "tell") for run_id in runs for one in done if rule in one and run_id in one
    } == {
        ("again", "run_fails"),
        ("tell", "run_ended"),
    }
    assert [(each.kind, [one.run_id for one in each.entries]) for each in causes] == [
        ("failed", ["run_fails"]),
        ("question", ["run_asks"]),
    ]
