"""The on-call's night: told of each trouble once, and never of a host's where it is our own link's or the token's."""

import asyncio
import re
from types import SimpleNamespace

import pytest

from tests.console.conftest import Scene
from tests.console.journeys.conftest import BY_KEYS, Walked
from tests.console.journeys.steps import Service
from tests.lab import Drop
from tests.waiting import until

HEALTHY = {"github": {"status": "ok"}}


async def polls(scene: Scene, count: int = 3) -> None:
    """Time passes, a minute and a half between two polls."""
    for _ in range(count):
        scene.clock.move(seconds=90)
        await scene.sync()
    await scene.tick(seconds=1)


def ration(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget goes by the scene's clock, which moves on while a request waits for its turn."""

    async def passes(seconds: float) -> None:
        scene.clock.move(seconds=seconds)

    budget = scene.engine.client.budget
    budget.now_s, budget.draw = (lambda: scene.clock().timestamp()), (lambda: 1.0)
    monkeypatch.setattr("app.api.budget.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": passes}))


def of_troubles(titles: list[str]) -> list[str]:
    """All titles, except those about the run that was stuck all along."""
    return [title for title in titles if not title.startswith("Run stuck")]


def bad_hosts(scene: Scene) -> int:
    """How many code hosts the first line of the tab counts as not well."""
    found = re.search(r"code hosts?, (\d+) unhealthy", scene.text)
    return int(found[1]) if found else 0


@BY_KEYS
async def test_our_own_link_is_no_hosts_trouble(
    walked: Walked, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link's card is bad and says since when; the hosts' say as of when; one toast down, one back."""
    service.health = dict(HEALTHY)
    async with walked() as hand:
        ration(hand.scene, monkeypatch)
        service.refuses = Drop()
        await polls(hand.scene)
        await hand.see("◌ no answer for 4m", "No answer for 4m", "; asking again")
        await hand.do("2", "2 Health")
        await hand.see("✗ service unreachable", "since 22:01:30 · asking again", "No newer answer", "accepted")
        assert bad_hosts(hand.scene) == 0
        assert "unhealthy" not in hand.scene.text

        service.refuses = None
        await polls(hand.scene)
        await hand.see("✓ up", "● live")
        assert "No newer answer" not in hand.scene.text
        expected = ["No link to the service: acme-prod", "The link to the service is back: acme-prod"]
        await until(
            lambda: of_troubles(hand.scene.titles) == expected,
            "one toast down, one back",
            saw=lambda: hand.scene.titles,
        )
