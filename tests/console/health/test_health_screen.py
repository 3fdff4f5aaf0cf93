"""Health shows only what was observed of the hosts over time."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records import HealthSample
from storage.records.activity import PollOutcome
from tests.console.conftest import WIDE, Scene, Staged
from tests.lab import Lab
from widgets.health import strip

TROUBLES: Sequence[tuple[str, str, float, float]] = (
    ("gitlab", "unreachable", 31.0, 30.0),
    ("gitlab", "degraded", 30.0, 28.5),
    ("github", "degraded", 14.0, 13.5),
    ("gitlab", "unauthorized", 9.0, 8.5),
    ("gitlab", "degraded", 0.2, 0.0),
)
"""Platform, status, and the hours before now at which it began and ended."""
SILENCE = (20.0, 16.0)
"""Hours before now without an observation."""


def report(**statuses: str) -> tuple[HealthSample, ...]:
    where = {"gitlab": ("gitlab.acme.example", "acme")}
    return tuple(HealthSample(name, status, *where.get(name, (None, None)), "{}") for name, status in statuses.items())


async def lived(scene: Scene) -> None:
    """Two and a half days of samples with incidents and an unobserved gap, shown on the screen."""
    now, before = scene.clock(), timedelta(days=2.5)
    while before >= timedelta(0):
        hours = before.total_seconds() / 3600
        troubles = {platform: status for platform, status, start, end in TROUBLES if end <= hours < start}
        statuses = {"github": "ok", "gitlab": "ok", **troubles}
        if not SILENCE[1] <= hours < SILENCE[0]:
            await scene.engine.cache.store_health(report(**statuses), at=now - before)
        before -= timedelta(minutes=10)
    await scene.ring()
    await scene.tick(seconds=1)


def text(scene: Scene, title: str) -> str:
    """A row of the list, without the columns around it."""
    lines = scene.lines
    first = next(at for at, line in enumerate(lines) if line[1:].startswith(title))
    return "\n".join(takewhile(str.strip, (line[1:].rstrip() for line in lines[first:])))


async def test_unobserved_time_is_neither_up_nor_down(staged: Staged, picture: SnapshotAssertion) -> None:
    """The four unobserved hours count as neither up nor down, and are shown as unobserved."""
    async with staged(WIDE, synced=False) as scene:
        await scene.press("2")
        await lived(scene)

        # 19h50m of 24h were observed; of these half an hour was bad and 12 minutes degraded.
        said = text(scene, "github")
        assert "24h 97.47% of 19h50m seen   7d 99.10% of 2d07h seen   30d 99.10% of 2d07h seen" in said
        drawn = next(line for line in said.splitlines() if line.startswith("24h ago"))
        assert "········" in drawn

        await scene.sync()
        await scene.ring()
        assert scene.app.export_screenshot() == picture(name="140x40")


async def test_less_than_a_day_has_no_uptime(staged: Staged) -> None:
    """Less than a day shows how long it was observed instead of a share.

    A flapping host shows its current status, marks the flapping, and has one incident.
    """
    async with staged(WIDE) as scene:
        await scene.press("2")
        for _ in range(3):
            scene.clock.move(minutes=5)
            await scene.sync()

        for title in ("github", "gitlab", "our link"):
            assert "uptime   observed for 15m00s" in text(scene, title)

        for number in range(8):
            await scene.engine.cache.store_health(
                report(github="ok" if number % 2 else "unreachable"), at=scene.clock()
            )
            scene.clock.move(seconds=30)
        await scene.ring()

        assert "✓ ok" in text(scene, "github")
        assert "⇄ flapping: 8 changes in 15m" in text(scene, "github")
        assert scene.text.count("✗ unreachable") == 1


SLICES = ("well", "well", None, "bad", "well", None, None, "impaired")


@pytest.mark.parametrize(
    ("slices", "cells", "expected"),
    [
        (SLICES, 4, "━▌·▆"),
        (SLICES, 1, "▆"),
        (("well", "bad"), 4, "━━━█"),
        (("well",) * 99 + ("bad", "well"), 2, "▎━"),
    ],
)
def test_each_cell_of_a_strip_shows_the_worst_of_its_time(slices: Any, cells: int, expected: str) -> None:
    """A cell shows any incident in its time, however short, and its share.

    The last one is red only while the host is bad.
    """
    assert "".join(glyph for _, glyph in strip(slices, cells)) == expected


REFUSALS = {
    "not_authorized": "✓ answers         token refused",
    "forbidden": "✓ answers         not permitted",
    "token": "◌ not asked       there is no usable token",
}


async def test_outages_of_the_link_are_incidents(staged: Staged, board: Lab) -> None:
    """An outage lasts from the first poll without an answer to the next answer.

    A refusal is an answer, and no runs are counted. Without a token the service is not shown as answering, and a host
    that is no longer connected is neither healthy nor forgotten.
    """
    async with staged() as scene:
        await scene.press("2")
        for kind, link in REFUSALS.items():
            await scene.ended(PollOutcome("runs", scene.clock(), kind, "no"))
            (row,) = [line for line in scene.lines if line[1:].startswith("our link") and ":" not in line]
            assert row.removeprefix(" our link").strip() == link
        del board.health["gitlab"]
        await scene.sync()
        assert "not connected" in scene.text
        assert "gitlab" not in scene.lines[0]

        for seconds, kind in ((10, "unreachable"), (46, None), (600, "forbidden"), (660, None)):
            at = scene.clock() + timedelta(seconds=seconds)
            await scene.ended(PollOutcome("runs", at, kind, kind))
        await scene.tick(minutes=12)
        await scene.ring()

        (outage,) = [line for line in scene.lines if "our link" in line and "22:00:10" in line]
        assert "✗ unreachable" in outage
        assert "36s" in outage
        assert "failed" not in outage
