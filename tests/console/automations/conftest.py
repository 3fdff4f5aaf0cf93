"""A configuration file with automations, and a state with their history."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.automations.rule import fingerprint
from app.profiles.load import parse
from storage.records.decision import Occurrence, Outcome, Verdict
from tests.console.conftest import Scene
from tests.console.scenes import TOKEN_VARIABLE
from tests.lab import Lab

Changed = dict[str, Any]
ONE = """\
[[automations]] # mine
name = "second chance"
on = { run = "failed", repository = "acme/*" }
do = { continue = "Find out why, and fix it." }
approval = true
"""


@pytest.fixture
def configured(board: Lab, tmp_path: Path) -> Callable[[str], Changed]:
    """Writes a configuration with these automations; returns the arguments that stage a scene with it."""

    def configure(text: str = ONE) -> Changed:
        file = tmp_path / "config.toml"
        profile = f'[profiles.acme-prod]\nbase_url = "{board.base_url}"\ntoken_env = "{TOKEN_VARIABLE}"\n'
        file.write_text(f"# Ours.\n{profile}\n{text}", "utf-8")
        return {"file": file, "automations": parse(file, file.read_text("utf-8")).automations}

    return configure


def file_of(scene: Scene) -> Path:
    """The path of the scene's configuration."""
    file = scene.engine.settings.file
    assert file is not None
    return file


async def decided(
    scene: Scene,
    rule: str,
    outcome: Outcome,
    reason: str = "",
    *,
    ago_m: float = 1.0,
    request: str = "",
    made: str | None = None,
    **facts: str,
) -> int:
    """A past decision, recorded as the runner does it; `_` in a fact's name stands for the dot of a placeholder."""
    state, now = scene.engine.usable_state(), scene.clock.now
    (known,) = [automation for automation in scene.engine.settings.automations if automation.name == rule]
    await state.begin_rule(rule, fingerprint(known), now - timedelta(days=9))
    scene.clock.now = now - timedelta(minutes=ago_m)
    named = {name.replace("_", ".", 1): value for name, value in facts.items()}
    occurrence = Occurrence(f"run:{ago_m}", scene.clock.now, facts=named)
    first: Outcome = "acting" if outcome in {"done", "failed", "unknown", "interrupted"} else outcome
    decision = await state.decide(rule, occurrence, lambda _: Verdict(first, reason))
    assert decision is not None
    if request:
        await state.store_request(decision.decision_id, request)
    if first != outcome:
        await state.settle(replace(decision, outcome=outcome, reason=reason, result_id=made))
    scene.clock.now = now
    return decision.decision_id


REQUEST = (
    '{"body": {"instructions": "Find out why, and fix it.", "metadata": {"runwarden_automation": "second chance"},'
    ' "repository": {"data": {"owner": "acme", "repo": "api"}, "platform": "github"}, "run_id": "run_01JX0003"},'
    ' "path": "/external/runs"}'
)
