"""One instruction to many runs: previewed, sent one by one, and no further than it is safe."""

from typing import Any

import pytest

from app.console.runs.continue_many import ContinueManyForm
from app.engine import Engine
from storage.records import Repository, Run
from tests.console.forms.steps import CREATED, opened, painted, press, words, write
from tests.fault_server import Drop, Respond


def a_run(clock: Any, number: int, status: str = "failed") -> Run:
    return Run(f"run_{number}", status, f"agent/{number}", Repository.parse("acme/web"), clock(), clock(), "{}")


def goes_on(number: int) -> Respond:
    """The service's answer to a continuation."""
    return Respond(201, CREATED | {"run_id": f"run_{number}"})


async def sent(pilot: Any, text: str = "Try again.") -> None:
    """Types, previews, sends."""
    await write(pilot, text)
    await press(pilot, "ctrl+s")
    await press(pilot, "ctrl+s")


async def test_every_run_gets_the_same_words(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """The preview names them all; each is a POST and an action of its own; the active one is left out."""
    post.next(goes_on(1), goes_on(2))
    runs = (a_run(clock, 1), a_run(clock, 2), a_run(clock, 3, "working"))
    form = ContinueManyForm(engine, runs, cap=25)
    app = stage(lambda _: form)
    async with opened(app) as pilot:
        assert "2 on 1 repository" in painted(app)
        assert "1 still active" in painted(app)
        await write(pilot, "Try again.")
        await press(pilot, "ctrl+s")
        preview = words(app)
        assert post.requests == []
        await press(pilot, "ctrl+s")

        assert "✓ 2 of 2 runs go on" in painted(app)
        await press(pilot, "escape")

    assert "run_1" in preview
    assert "run_2" in preview
    assert "run_3" not in preview
    assert [request.json()["run_id"] for request in post.requests] == ["run_1", "run_2"]
    assert {request.json()["instructions"] for request in post.requests} == {"Try again."}
    assert form.confirmed == ("run_1", "run_2")
    assert {action.state for action in await engine.ledger.actions()} == {"confirmed"}


async def test_one_that_is_refused_does_not_stop_the_others(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """A conflict is that run's own; the outcome says whose."""
    post.next(goes_on(1), Respond(409, {"message": "still active"}), goes_on(3))
    form = ContinueManyForm(engine, [a_run(clock, n) for n in (1, 2, 3)], cap=25)
    app = stage(lambda _: form)
    async with opened(app) as pilot:
        await sent(pilot)

        assert "2 of 3 runs go on" in painted(app)
        assert "rejected" in painted(app)
        assert "run_2: still active" in words(app)
    assert form.confirmed == ("run_1", "run_3")


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (Respond(429, {"message": "slow down"}, {"Retry-After": "9"}), "rejected", "2 were not sent to"),
        (Respond(401, {"message": "expired"}), "rejected", "2 were not sent to"),
        (Drop(), "unknown", "v resolves it"),
    ],
)
async def test_what_the_next_would_suffer_too_stops_it(
    stage: Any, clock: Any, engine: Engine, post: Any, answer: Any, state: str, said: str
) -> None:
    """A spent rate limit, a refused token, an outcome that nobody knows: nothing more is sent."""
    post.next(goes_on(1), answer)
    form = ContinueManyForm(engine, [a_run(clock, n) for n in (1, 2, 3, 4)], cap=25)
    app = stage(lambda _: form)
    async with opened(app) as pilot:
        await sent(pilot)

        assert "1 of 4 runs goes on" in words(app)
        assert said in words(app)
    assert len(post.requests) == 2
    assert [action.state for action in await engine.ledger.actions()] == [state, "confirmed"]
    assert form.confirmed == ("run_1",)


async def test_sending_stops_between_two_runs(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """Escape while the first is on its way: it is settled, the second is never sent."""
    form = ContinueManyForm(engine, [a_run(clock, 1), a_run(clock, 2)], cap=25)
    app = stage(lambda _: form)

    class Stopping(list[Any]):
        def pop(self, _: Any = 0) -> Any:
            app.call_from_thread(form.action_back)
            return goes_on(1)

    post.steps = Stopping()
    async with opened(app) as pilot:
        await sent(pilot)

        assert "1 of 2 runs goes on" in words(app)
        assert "1 was not sent to; it stays marked" in words(app)
    assert len(post.requests) == 1


@pytest.mark.parametrize(
    ("count", "status", "said"),
    [(3, "failed", "At most 2 at a time (send_cap): unmark 1."), (2, "working", "None of the marked runs has ended")],
)
async def test_too_many_or_none_are_said_before_anything_is_sent(
    stage: Any, clock: Any, engine: Engine, post: Any, count: int, status: str, said: str
) -> None:
    """In the form."""
    app = stage(lambda engine: ContinueManyForm(engine, [a_run(clock, n, status) for n in range(count)], cap=2))
    async with opened(app, size=(140, 40)) as pilot:
        await sent(pilot)

        assert said in words(app)
        assert app.screen.phase == "editing"
    assert post.requests == []
