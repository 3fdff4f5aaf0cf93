"""A new rule ignores everything that its first poll finds, by the service's own times."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.automations.bot import Bot
from app.automations.replay import replay
from tests.automations.test_acting import Said, automation, configured
from tests.automations.test_who_works import at_work, looked
from tests.lab import Lab, stamp
from tests.waiting import until


def _local_behind(moment: datetime) -> str:
    return f"{moment - timedelta(hours=5):%Y-%m-%dT%H:%M:%S.%f}"


@pytest.mark.parametrize(
    ("hours", "is_dated", "show_time"),
    [(5, False, stamp), (-2, True, _local_behind)],
)
async def test_a_new_rule_acts_on_runs_that_end_after_its_first_look(
    tmp_path: Path, hours: int, is_dated: bool, show_time: Callable[[datetime], str]
) -> None:
    """A new bot ignores failures from before its start, whether it sees them at once or later.

    This does not depend on the service's clock or on whether its answers have a date.
    """
    offset = timedelta(hours=hours)
    with Lab(clock=lambda: datetime.now(UTC), clock_offset=offset, is_dated=is_dated, show_time=show_time) as lab:
        now = datetime.now(UTC)
        lab.put("old", "failed", created=now - timedelta(days=3), updated=now - timedelta(minutes=1))
        lab.fill(30, until=now - timedelta(minutes=30))
        lab.put("first", "failed", created=now - timedelta(minutes=9), updated=now - timedelta(minutes=1))
        lab.put("second", "working", created=now - timedelta(minutes=9))
        text = "[poll]\nruns_s = 1\npage_size = 20\nfirst_runs = 20\n" + automation('{ continue = "go on" }')
        async with at_work(configured(lab, tmp_path, text)) as (bot, said):
            await looked(bot)
            await until(lambda: bot.engine.cache.detail("old"), "the old run is fetched")
            lab.move("second", "failed")
            lab.put("third", "failed")
            await until(lambda: len(said.outcomes()) == 4, "both failures are acted on", saw=said.outcomes)

    continued = [request.json()["run_id"] for request in lab.requests if request.method == "POST"]
    assert sorted(continued) == ["second", "third"]


@pytest.mark.parametrize("tells_turns", [True, False])
async def test_a_run_that_failed_again_between_two_polls_sets_a_rule_off_again(
    tmp_path: Path, tells_turns: bool
) -> None:
    """A second failure counts once, also in the replay, if the service lists turns.

    Without them a mere update does nothing.
    """
    with Lab(clock=lambda: datetime.now(UTC)) as lab:
        settings = configured(lab, tmp_path, automation('{ command = ["true"] }'))
        bot = await Bot.open(settings, settings.profile(), said := Said())

        def end_turn(number: int) -> None:
            began = lab.now
            lab.move("run_1", "failed")
            turn = {"number": number, "started_at": stamp(began), "ended_at": stamp(lab.now)}
            lab.turns["run_1"] = {"turns": [{"number": 1}, turn]}

        lab.put("run_1", "working")
        await bot.once()
        end_turn(1)
        await bot.once()
        lab.move("run_1", "failed")  # For example, the run got a label.
        await bot.once()
        assert len(said.outcomes()) == 2
        end_turn(2)
        if not tells_turns:
            lab.turns.clear()
        await bot.once()
        await bot.once()
        told = await replay(bot.engine, settings.automations, lab.now - timedelta(hours=1), lab.now)
        await bot.close()

    times = 2 if tells_turns else 1
    assert said.outcomes() == [("acting", None), ("done", None)] * times
    assert told["r"].counts == {"done": times}
