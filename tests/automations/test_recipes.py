"""The recipes of docs/use/automations.md: read, set off and carried out."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.automations.occurrences import upcoming
from app.automations.rule import OnHealth, OnInterval, OnRun, OnSchedule, OnStuck, OnUnknownAction, Rule
from app.automations.sentence import sentence, warnings
from app.profiles.load import parse
from tests.automations.conftest import Place
from tests.notify.conftest import NOON

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "automations.md").read_text("utf-8")
TEXT = PAGE.partition("## Recipes")[2].partition("```toml\n")[2].partition("```")[0]
RULES = parse(Path("/etc/config.toml"), TEXT).automations


async def happens(place: Place, rule: Rule) -> None:
    """What the rule waits for."""
    match rule.on:
        case OnSchedule() | OnInterval():
            place.world.now = next(upcoming(rule, NOON, place.world.now)) + timedelta(minutes=2)
        case OnRun() as on:
            glob = on.scope.repositories[0].replace("*", "web") if on.scope.repositories else "acme/api"
            branch = on.scope.branches[0].replace("*", "x") if on.scope.branches else "agent/x"
            await place.world.run("run_1", on.to, repository=glob, branch=branch)
        case OnStuck():
            await _stuck(place)
        case OnHealth() as on:
            for status in ("unreachable", "unreachable", *(["ok", "ok"] if on.is_over else [])):
                await place.world.health(github=status)
                place.world.pass_(minutes=6)
            await place.world.health(github="ok" if on.is_over else "unreachable")
        case OnUnknownAction():
            await place.unknown_write()
            place.world.pass_(hours=1)


async def _stuck(place: Place) -> None:
    for number in range(10):
        await place.world.run(f"old_{number}", "working")
        place.world.pass_(minutes=1)
        await place.world.run(f"old_{number}", "completed")
    for _ in range(4):
        await place.world.run("run_1", "working")
        place.world.pass_(minutes=15)


@pytest.mark.parametrize("number", range(10))
async def test_a_recipe_is_set_off_by_what_it_is_for(place: Place, number: int) -> None:
    """Once; the one that asks first waits."""
    rule = RULES[number]
    runner = place.runner(TEXT)
    runner.rules = (rule,)
    await runner.look()
    place.world.pass_(minutes=1)
    await happens(place, rule)

    await runner.look()
    await runner.look()

    assert [name for name, _ in place.acts.done] == ([] if rule.needs_approval else [rule.name])
    assert {each.outcome for each in place.journal} == ({"waiting"} if rule.needs_approval else {"acting", "done"})


def test_every_recipe_reads_as_a_sentence() -> None:
    """Ten of them; what they warn of is bounded by their limits."""
    assert len(RULES) == 10
    assert all(sentence(rule, NOON).endswith(".") for rule in RULES)
    bounds = {line.partition("until ")[2] for rule in RULES for line in warnings(rule, RULES, NOON)}
    assert bounds <= {
        "limit.per_conversation (1) stops it.",
        "limit.per_conversation (3) stops it.",
        "limit.per_conversation stops them.",
    }
