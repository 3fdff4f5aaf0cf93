"""What was not thought of: clocks set back, disks that fill up in the middle, floods, and runs that flip."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.bot import LEASE
from app.automations.occurrences import asked_for
from storage.claims import Owner, this_process
from tests.automations.conftest import Place, rule
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_who_works import at_work, looked
from tests.waiting import until

__all__ = ["service"]


async def test_a_rule_that_is_off_and_is_set_off_by_hand_is_left_to_the_process_that_does_it(place: Place) -> None:
    """A bot at work closes nothing that another process is about to do."""
    text = rule(do='{ command = ["true"] }', enabled="false")
    place.acts.results = [ActingResult("failed", "not yet", may_repeat=True)]
    by_hand = place.runner(text)
    await by_hand.set_off(by_hand.rules[0], asked_for(place.world.now, None))
    await place.owned_by(replace(this_process(), pid=1, started="?"))
    await place.runner(text).look()

    assert [each.outcome for each in await place.state.open_decisions()] == ["acting"]
    await place.owned_by(Owner(2**22 + 1, "1", "?", "?"))
    await place.runner(text).look()
    assert place.outcomes[-1][0] == "interrupted"


async def test_a_slow_deed_keeps_the_lease(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed while a program runs, however long: no other bot is let in."""
    monkeypatch.setattr("app.automations.bot.LEASE_S", 3.0)
    begun, go = tmp_path / "begun", tmp_path / "go"
    argv = json.dumps(["sh", "-c", f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"])
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation(f"{{ command = {argv} }}"))
    async with at_work(settings) as (bot, said):
        await until(lambda: ("working", {"profile": "acme"}) in said, "the bot works", saw=lambda: said)
        await looked(bot)
        service.runs = [RUN]
        await until(begun.exists, "the program runs")
        first = await bot.state.lease_until(LEASE)

        async def is_renewed() -> bool:
            return await bot.state.lease_until(LEASE) != first

        await until(is_renewed, "the lease is renewed")
        assert ("done", None) not in said.outcomes()
        go.touch()
        await until(lambda: ("done", None) in said.outcomes(), "the program ends", saw=said.outcomes)
