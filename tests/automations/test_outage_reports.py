"""A bot beside a service whose code hosts fail at random: each outage is reported once, in time, with its duration."""

import random
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import pytest

from app.automations.acting import ResponseRunner
from app.notify.dispatcher import Dispatcher
from app.notify.incidents import IncidentReader
from app.profiles.load import parse
from storage.records import PollOutcome
from storage.records.alert import Message
from tests.automations.conftest import Place
from tests.virtual_time import in_virtual_time

POLL: Final = timedelta(seconds=30)
REST: Final = timedelta(minutes=5)
"""Between polls while all is well and stays so: nothing could be reported there."""
FOR: Final = timedelta(seconds=15)
SLACK: Final = timedelta(seconds=15)
HOLD: Final = timedelta(seconds=60)
RULES: Final = """
[notify]
on = []
[notify.routes.oncall]
command = ["true"]
[[automations]]
name = "outage"
on = { health = "not ok", for = "15s" }
do = { notify = "oncall" }
limit = { per_hour = 1000, per_day = 10000 }
"""
UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


@dataclass
class Outage:
    """When a host was down, and what was reported of it."""

    host: str
    start: datetime
    end: datetime
    is_seen: bool = False
    began: list[datetime] = field(default_factory=list)
    """When its beginning was reported."""
    ended: list[timedelta] = field(default_factory=list)
    """The durations that were reported after it."""


def outages(rng: random.Random, host: str, start: datetime, until: datetime) -> list[Outage]:
    """Outages of seconds to hours; two of one host are further apart than a recovery that lasts."""
    found: list[Outage] = []
    at = start + timedelta(minutes=rng.uniform(5, 60))
    while at < until:
        lasts = timedelta(seconds=rng.choice((rng.uniform(5, 60), rng.uniform(60, 900), rng.uniform(900, 20_000))))
        found.append(Outage(host, at, at + lasts))
        at += lasts + timedelta(seconds=rng.choice((rng.uniform(200, 900), rng.uniform(900, 30_000))))
    return found


def duration(text: str) -> timedelta:
    """As `span` writes it."""
    return timedelta(seconds=sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", text)))


def account(message: Message, now: datetime, happened: dict[str, list[Outage]]) -> None:
    """Enter a message under the outage that it reports."""
    (group,) = message.groups
    outage = [each for each in happened[group.removeprefix("host:")] if each.is_seen and each.start <= now][-1]
    if message.phase == "new":
        outage.began.append(now)
    elif message.phase == "over":
        said = re.search(r"(?:after|for) (\S+?)(?:,|$)", f"{message.title}, {message.body}")
        assert said, message
        outage.ended.append(duration(said[1]))


@pytest.mark.parametrize("hours", [4, pytest.param(1_000, marks=[pytest.mark.campaign, pytest.mark.timeout(14_400)])])
@in_virtual_time
async def test_each_outage_is_reported_once_in_time_and_with_its_duration(tmp_path: Path, hours: int) -> None:
    """Within 15 s of `for` and a poll after it began, whatever happens to the other host and to single polls."""
    async with (place := Place()).opened(tmp_path):
        await simulate(place, hours)


async def simulate(place: Place, hours: int) -> None:
    """Let so many hours pass, and compare what was reported with what happened."""
    rng, begins = random.Random(hours), place.now
    await place.answered()
    happened = {host: outages(rng, host, begins, begins + timedelta(hours=hours)) for host in ("github", "gitlab")}
    settings = parse(Path("/etc/config.toml"), RULES)
    incidents = IncidentReader(place.cache, {"ok"}, POLL.total_seconds(), HOLD)
    runner, nothing = place.runner(RULES), cast("Any", None)
    runner.responses = ResponseRunner(place.cache, nothing, place.state, "acme", frozenset(), nothing)
    dispatcher = Dispatcher(
        place.state, place.cache, place.ledger, incidents, settings.notify, "acme", place.clock, lambda *_, **__: None
    )
    reported = 0
    last = max(each.end for own in happened.values() for each in own) + 10 * HOLD
    while place.now < last:
        now = place.now
        down = {each.host: each for own in happened.values() for each in own if each.start <= now < each.end}
        if rng.random() < 0.01:
            # The answer is lost: nothing is known of the hosts for this time.
            await place.cache.record_poll(PollOutcome("health", now, "unreachable", "No connection."))
        else:
            for outage in down.values():
                outage.is_seen = True
            await place.health(**{host: "down" if host in down else "ok" for host in happened})
        await runner.decide_and_act()
        await dispatcher.make_messages()
        for each in reversed(await place.state.recent_deliveries(5)):
            if each.delivery_id > reported:
                reported = each.delivery_id
                account(each.message, now, happened)
        around = [one for own in happened.values() for one in own if one.start - REST <= now <= one.end + 4 * HOLD]
        place.now += POLL if around else REST

    seen = [each for own in happened.values() for each in own if each.is_seen]
    assert len(seen) > hours / 4
    wrong = [each for each in seen if len(each.began) > 1 or len(each.ended) != 1]
    late = [each for each in seen if each.began and each.began[0] - each.start > FOR + 2 * POLL + SLACK]
    unsaid = [each for each in seen if each.end - each.start > FOR + 3 * POLL + SLACK and not each.began]
    false = [
        each
        for each in seen
        if each.ended and abs(each.ended[0] - (each.end - each.start)) > 2 * POLL + (each.end - each.start) / 60
    ]
    assert [wrong, late, unsaid, false] == [[], [], [], []]
