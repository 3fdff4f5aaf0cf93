"""A program that stays after its reported result is stopped a few seconds later, and the turn ends as reported."""

from collections.abc import Callable
from typing import Any

import pytest

from service.execution import agent as agent_process
from service.execution.rehearsal import Rehearsal
from service.store.agents import Agent

RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"All done.","session_id":"s1"}'
FAULT = '{"type":"result","subtype":"error_during_execution","is_error":true,"result":"It broke."}'
MORE = '{"type":"assistant","message":{"content":[]}}'
LINGERED = "the program reported its end but stayed for 1 s more, and was stopped"


@pytest.mark.parametrize(
    ("source", "failure", "lingers"),
    [
        (f"echo '{RESULT}'; while echo still here; do sleep 0.2; done", None, True),
        (f"trap '' TERM; echo '{RESULT}'; sleep 1000", None, True),
        (f"echo '{FAULT}'; while :; do :; done", "It broke", True),
        (f"echo '{RESULT}'; echo '{MORE}'; sleep 2; echo '{RESULT}'", None, False),
    ],
    ids=["prints", "ignores signals", "failed and computes", "goes on"],
)
def test_a_program_that_stays_is_stopped(
    rehearse: Callable[..., Rehearsal],
    script: Callable[..., Agent],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    failure: str | None,
    *,
    lingers: bool,
) -> None:
    """Its change counts; one that reports further work after a result is left alone."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setattr(agent_process, "LINGERS_S", 1)
    given: Any = script(f"cat >/dev/null; echo x > x.txt; {source}", preset="claude-code")
    agent = Agent(given.name, given.argv, 300, environment=("ANTHROPIC_API_KEY",), options=given.options)
    done = rehearse().turn(agent, "go")

    assert (LINGERED in done.log) == lingers, done.log
    assert (done.failure is None) == (failure is None), done.failure
    assert failure is None or failure in str(done.failure)
    assert "x.txt" in done.diff
