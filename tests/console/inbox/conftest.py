"""A console with something of each kind in its inbox."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from app.config.load import parse
from app.events import StateChangedElsewhere
from storage.records.decision import Occurrence, Verdict
from storage.state import State
from tests.automations.conftest import rule
from tests.console.conftest import WIDE, Scene, Staged
from tests.lab import Lab
from widgets.line_table import LineTable

RULES: Final = parse(
    Path("/etc/config.toml"), rule(approval="true") + "\n" + rule(name='"nightly review"', on='{ every = "6h" }')
).automations


@pytest.fixture(autouse=True)
def same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions get the same ids in every picture."""
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)


def state_of(scene: Scene) -> State:
    return scene.engine.usable_state()


@asynccontextmanager
async def inbox(
    staged: Staged, size: tuple[int, int] = WIDE, *, automated: bool = True, **options: bool
) -> AsyncIterator[Scene]:
    """The tab, with something of each kind."""
    async with staged(size, changed={"automations": RULES} if automated else {}, **options) as scene:
        await unknown_outcome(scene)
        if automated:
            for each in RULES:
                await state_of(scene).begin_rule(each.name, "as it is", scene.clock())
            await state_of(scene).pause("nightly review", "5 failures in a row, the last one: no such agent")
            occurrence = Occurrence("run_1:failed", scene.clock() - timedelta(minutes=3))
            await state_of(scene).decide("r", occurrence, lambda _: Verdict("waiting"))
        await scene.ring(StateChangedElsewhere())
        await scene.press("7")
        yield scene


async def unknown_outcome(scene: Scene) -> None:
    ledger = scene.engine.ledger
    given = {"kind": "run.start", "subject": "acme/api", "key": "k", "path": "/runs", "body_json": "{}"}
    action = await ledger.prepare(action_id=None, actor="console:ann", **given)
    await ledger.sending(action.action_id)
    await ledger.unknown(action.action_id, None)  # type: ignore[arg-type]


def keys(scene: Scene) -> list[str]:
    """What the list holds, from top to bottom."""
    return [item.key for item in scene.app.session.inbox.items or ()]


def here(scene: Scene) -> str:
    item = scene.app.screen.query_one(LineTable).item
    return "" if item is None else item.key


async def fail(scene: Scene, board: Lab, run_id: str, **changed: object) -> None:
    """Another run fails, now."""
    scene.clock.move(minutes=1)
    minutes = 600.0 + (scene.clock() - datetime.fromisoformat("2026-05-01T22:00:00+00:00")).total_seconds() / 60
    board.put(run_id, "failed", created=minutes - 0.5, updated=minutes, **changed)
    await scene.sync()
    await scene.tick(seconds=3)
