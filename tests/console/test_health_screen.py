"""The Health room: hosts, link and token are three things."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.profiles import PollSettings
from app.sync.polling import Polling
from storage.records.activity import PollOutcome
from tests.console.conftest import Staged
from tests.console.scenes import settings_for
from tests.lab import Drop, Lab


async def test_a_host_that_is_no_longer_connected_is_said_so(staged: Staged, board: Lab) -> None:
    """It is not shown as healthy, nor forgotten."""
    async with staged() as scene:
        await scene.press("2")
        del board.health["gitlab"]
        await scene.sync()

        assert "not connected" in scene.text
        assert "gitlab" not in scene.lines[0]


async def test_our_own_outages_are_incidents_too(staged: Staged) -> None:
    """From the first poll without an answer to the next answer; a refusal is an answer, and no runs are counted."""
    async with staged() as scene:
        await scene.press("2")
        for seconds, kind in ((10, "unreachable"), (46, None), (600, "forbidden"), (660, None)):
            at = scene.clock() + timedelta(seconds=seconds)
            await scene.ended(PollOutcome("runs", at, kind, kind))
        await scene.tick(minutes=12)
        await scene.ring()

        (outage,) = [line for line in scene.lines if "our link" in line and "22:00:10" in line]
        assert "✗ unreachable" in outage
        assert "36s" in outage
        assert "failed" not in outage
        await scene.press("exclamation_mark", "exclamation_mark")
        assert scene.app.screen.bookmark.startswith("incident:our link")  # type: ignore[attr-defined]
        await scene.press("enter")
        assert scene.app.current_mode == "health"


async def test_a_service_that_returns_is_seen_where_a_person_looks(staged: Staged, board: Lab, tmp_path: Path) -> None:
    """Long before the next poll is due; the hosts are asked for with it."""
    (profile,) = settings_for(board.base_url, tmp_path).profiles
    rarely = replace(profile, poll=PollSettings(runs_s=3600.0, health_s=3600.0))
    async with staged(changed={"profiles": (rarely,)}) as scene:
        scene.engine.start_polling()
        answer, board.otherwise = board.otherwise, lambda _: Drop()
        await scene.press("ctrl+r")
        await scene.shows("No answer for", "gitlab ▲?")
        board.otherwise = answer
        await scene.tick(seconds=4)

        await scene.shows("● live", "gitlab ▲ ")


async def test_only_a_person_who_looks_has_the_service_asked_every_four_seconds(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a window in the background, and no service that refuses; the sentence counts down to it."""
    asked: list[str] = []
    monkeypatch.setattr(Polling, "poll_soon", lambda _, subject: asked.append(subject))
    rows: tuple[tuple[str | None, bool, int], ...] = (
        *(("unreachable", True, 2), ("unreachable", False, 0)),
        *((None, True, 0), ("not_authorized", True, 0), ("rate_limited", True, 0)),
    )
    async with staged() as scene:
        for kind, is_looking, asks in rows:
            asked.clear()
            scene.app.app_focus = is_looking
            await scene.ended(PollOutcome("runs", scene.clock(), kind, "no"))
            for _ in range(8):
                await scene.tick(seconds=1)

            assert asked == ["runs"] * asks, kind


async def test_a_refusal_is_named_as_what_it_is(staged: Staged) -> None:
    """A service that was never asked, because there is no token, is not said to answer."""
    refusals = {
        "not_authorized": "✓ answers         token refused",
        "forbidden": "✓ answers         not permitted",
        "token": "◌ not asked       there is no usable token",
    }
    async with staged() as scene:
        await scene.press("2")
        for kind, link in refusals.items():
            await scene.ended(PollOutcome("runs", scene.clock(), kind, "no"))

            (row,) = [line for line in scene.lines if line[1:].startswith("our link") and ":" not in line]
            assert row.removeprefix(" our link").strip() == link
