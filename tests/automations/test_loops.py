"""Loops: rules that set themselves or each other off end at their limit, and say so once."""

from pathlib import Path

import pytest

from app.automations.acting import ActingResult
from app.automations.sentence import warnings
from app.profiles.load import parse
from tests.automations.conftest import Place, rule

TO_WEB = '{ start = "go", repository = "acme/web" }'
TO_API = '{ start = "go", repository = "acme/api" }'
CASES = {
    "continued": [rule(do='{ continue = "again" }')],
    "started anew": [rule(do=TO_API, overlap='"allow"')],
    "two that feed each other": [
        rule(name='"a"', on='{ run = "failed", repository = "acme/api" }', do=TO_WEB, overlap='"allow"'),
        rule(name='"b"', on='{ run = "failed", repository = "acme/web" }', do=TO_API, overlap='"allow"'),
    ],
    "by way of a run that completes": [
        rule(name='"a"', do=TO_WEB, overlap='"allow"'),
        rule(name='"b"', on='{ run = "completed" }', do='{ continue = "break it" }', overlap='"allow"'),
    ],
}


@pytest.mark.parametrize("texts", CASES.values(), ids=CASES)
async def test_a_loop_ends_at_its_limit_and_says_so_once(place: Place, texts: list[str]) -> None:
    """However many turns and runs it makes; what a rule made, and what that led to, is one conversation.

    `automations check` warns of it beforehand.
    """
    text = "\n".join(texts)
    rules = parse(Path("/etc/config.toml"), text).automations
    assert any("trigger" in line for each in rules for line in warnings(each, rules, place.world.now))
    runner, made, turns = place.runner(text), 1, 0
    place.acts.results = [ActingResult("done", result_id=f"run_{number}") for number in range(2, 60)]
    if "continue" in texts[0]:
        place.acts.results = [ActingResult("done", result_id="run_1")] * 60
    await runner.look()
    await place.world.run("run_1", "working")
    for _ in range(30):
        place.world.pass_(minutes=1)
        statuses = ("failed", "completed") if "completed" in text else ("failed",)
        await place.world.run(
            f"run_{made}", statuses[turns % len(statuses)], repository=("acme/api", "acme/web")[made % 2 - 1]
        )
        await runner.look()
        if len(place.acts.done) > turns:
            turns = len(place.acts.done)
            made = made if "continue" in texts[0] else turns + 1
            await place.world.run(f"run_{made}", "working", repository=("acme/api", "acme/web")[made % 2 - 1])

    limited = [each.rule for each in place.journal if each.outcome == "limited"]
    assert len(place.acts.done) <= 3 * len(texts)
    assert len(limited) == len(set(limited)) == 1
    assert "limit.per_conversation" in next(each.reason for each in place.journal if each.outcome == "limited")
