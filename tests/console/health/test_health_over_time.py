"""The hosts over time, as the room says it: what was seen, and never more than that."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records import HealthReport, HealthSample
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from widgets.health import Card, HealthList, fold

Lived = Callable[..., Awaitable[None]]

DAYS_AGO = 2.5
EVERY = timedelta(minutes=10)
TROUBLES: Sequence[tuple[str, str, float, float]] = (
    ("gitlab", "unreachable", 31.0, 30.0),
    ("gitlab", "degraded", 30.0, 28.5),
    ("github", "degraded", 14.0, 13.5),
    ("gitlab", "unauthorized", 9.0, 8.5),
    ("gitlab", "degraded", 0.2, 0.0),
)
"""Platform, status, and hours before now of beginning and end."""
SILENCE = (20.0, 16.0)
"""Hours before now in which nobody looked."""


def report(**statuses: str) -> HealthReport:
    where = {"gitlab": ("gitlab.acme.example", "acme")}
    return HealthReport(
        tuple(HealthSample(name, status, *where.get(name, (None, None)), "{}") for name, status in statuses.items())
    )


@pytest.fixture
def lived() -> Lived:
    """Two and a half days of samples, with troubles and a silence; the screen has seen them."""

    async def live(scene: Scene) -> None:
        now, before = scene.clock(), timedelta(days=DAYS_AGO)
        while before >= timedelta(0):
            hours = before.total_seconds() / 3600
            troubles = {platform: status for platform, status, start, end in TROUBLES if end <= hours < start}
            statuses = {"github": "ok", "gitlab": "ok", **troubles}
            if not SILENCE[1] <= hours < SILENCE[0]:
                await scene.engine.cache.store_health(report(**statuses), at=now - before)
            before -= EVERY
        await scene.ring()
        await scene.tick(seconds=1)

    return live


def card(scene: Scene, title: str) -> Card:
    """A host's card."""
    return next(card for card in scene.app.screen.query("#hosts Card").results(Card) if str(card.border_title) == title)


def text(scene: Scene, title: str) -> str:
    return str(card(scene, title).render())


async def test_uptime_is_of_what_was_seen(staged: Staged, lived: Lived) -> None:
    """The four hours in which nobody looked count neither as up nor as down, and are shown as such."""
    async with staged(WIDE, synced=False) as scene:
        await scene.press("2")
        await lived(scene)

        # 19h50m seen of 24h, of which half an hour was bad and 12 minutes degraded.
        assert "24h 97.47%" in text(scene, "github")
        assert "seen     19h50m" in text(scene, "github")
        strip = next(line for line in text(scene, "github").splitlines() if line.startswith("24h ago"))
        assert "········" in strip
        assert strip.count("▄") == 2


async def test_a_host_never_seen_bad_is_at_a_hundred(staged: Staged) -> None:
    """And only such a one: figures are rounded down."""
    async with staged(WIDE) as scene:
        await scene.press("2")
        for _ in range(3):
            scene.clock.move(minutes=5)
            await scene.sync()

        assert "24h 100%" in text(scene, "github")
        assert "24h 0.00%" in text(scene, "gitlab")


async def test_flapping_is_shown_and_is_one_incident(staged: Staged) -> None:
    """The state is what it is now; that it comes and goes stands beside it."""
    async with staged(WIDE, synced=False) as scene:
        await scene.press("2")
        for number in range(8):
            await scene.engine.cache.store_health(
                report(github="ok" if number % 2 else "unreachable"), at=scene.clock()
            )
            scene.clock.move(seconds=30)
        await scene.ring()

        assert "✓ ok" in text(scene, "github")
        assert "⇄ flapping: 7 changes in 15m" in text(scene, "github")
        assert str(scene.app.screen.query_one("#incidents", HealthList).render()).count("unreachable") == 1


SLICES = ("well", "well", None, "bad", "well", None, None, "impaired")


@pytest.mark.parametrize(
    ("slices", "cells", "expected"),
    [
        (SLICES, 8, SLICES),
        (SLICES, 7, ("well", "bad", "well", "impaired")),
        (SLICES, 2, ("bad", "impaired")),
        (SLICES, 1, ("bad",)),
        ((None, None, None, None, None, "well"), 2, (None, "well")),
    ],
)
def test_folding_keeps_the_worst_and_what_is_known_of_now(slices: Any, cells: int, expected: Any) -> None:
    """A cell that stands for several slices hides no trouble, and the last one speaks even where most is unseen."""
    assert fold(slices, cells) == expected


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])
async def test_picture_of_a_past(
    staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]
) -> None:
    """Two hosts, incidents, a silence."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        await scene.sync()

        assert scene.app.export_screenshot() == picture
