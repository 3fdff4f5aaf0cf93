"""The on-call's night: told of each trouble once, and never of a host's where it is our own link's or the token's."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.console.conftest import Scene, Staged
from tests.console.journeys.conftest import Service
from tests.lab import Drop
from tests.waiting import until


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


async def test_our_link_is_no_hosts_trouble(staged: Staged, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link's card is bad and says since when; the hosts' say as of when; one toast down, one back."""
    service.health = {"github": {"status": "ok"}}
    async with staged() as scene:
        ration(scene, monkeypatch)
        service.refuses = Drop()
        await polls(scene)
        await scene.shows("◌ no answer for 4m", "No answer for 4m", "; asking again")
        await scene.press("2")
        await scene.shows("✗ service unreachable", "since 22:01:30 · asking again", "No newer answer", "accepted")
        assert "unhealthy" not in scene.text

        service.refuses = None
        await polls(scene)
        await scene.shows("✓ up", "● live")
        assert "No newer answer" not in scene.text
        expected = ["No link to the service: acme-prod", "The link to the service is back: acme-prod"]
        await until(
            lambda: [title for title in scene.titles if not title.startswith("Run stuck")] == expected,
            "one toast down, one back",
            saw=lambda: scene.titles,
        )
