"""One instruction to many runs: previewed, sent one by one, and no further than it is safe."""

from typing import Any

import pytest

from app.actions.screen_many import Known, ManyForm, continued, known_of, retried
from app.api.requests import StartRun
from app.engine.engine import Engine
from storage.records import FINAL_STATUSES, Repository, Run, RunDetail
from tests.console.forms.steps import CREATED, opened, painted, press, settle, words, write
from tests.lab import Drop, Respond
from widgets.forms.pages import RequestPreview


def a_run(clock: Any, number: int, status: str = "failed") -> Run:
    return Run(f"run_{number}", status, f"agent/{number}", Repository.parse("acme/web"), clock(), clock(), "{}")


async def known(engine: Engine, *runs: Run) -> Known:
    """What began them, as ledger and service have it."""
    return await known_of(engine, [RunDetail(run, engine.clock(), engine.clock(), "current", ()) for run in runs])


async def continuing(engine: Engine, clock: Any, numbers: tuple[int, ...], cap: int = 25) -> ManyForm:
    """The form that continues these runs."""
    runs = [a_run(clock, number) for number in numbers]
    return ManyForm(engine, continued(runs, {}, FINAL_STATUSES), cap=cap)


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
    form = ManyForm(engine, continued(runs, {}, FINAL_STATUSES), cap=25)
    app = stage(lambda _: form)
    async with opened(app) as pilot:
        assert "2 on 1 repository" in painted(app)
        assert "1 run still active" in painted(app)
        await write(pilot, "Try again.")
        await press(pilot, "ctrl+s")
        preview = words(app)
        assert post.requests == []
        await press(pilot, "ctrl+s")

        assert "✓ 2 of 2 runs continued" in painted(app)
        await press(pilot, "escape")

    assert "run_1" in preview
    assert "run_2" in preview
    assert "run_3" not in preview
    assert [request.json()["run_id"] for request in post.requests] == ["run_1", "run_2"]
    assert {request.json()["instructions"] for request in post.requests} == {"Try again."}
    assert form.confirmed == ("run_1", "run_2")
    assert {action.state for action in await engine.ledger.actions()} == {"confirmed"}


@pytest.mark.parametrize(
    ("answer", "states", "said"),
    [
        (Respond(409, {"message": "still active"}), ["confirmed", "rejected", "confirmed"], "run_2: still active"),
        (Respond(429, {"message": "slow"}, {"Retry-After": "9"}), ["rejected", "confirmed"], "3 are left, and stay"),
        (Respond(401, {"message": "expired"}), ["rejected", "confirmed"], "3 are left, and stay marked"),
        (Drop(), ["unknown", "confirmed"], "press v to resolve it"),
    ],
)
async def test_what_the_next_would_suffer_too_stops_it(
    stage: Any, clock: Any, engine: Engine, post: Any, answer: Any, states: list[str], said: str
) -> None:
    """A conflict is that run's own. A spent rate limit, a refused token, an unknown outcome: nothing more is sent."""
    numbers = (1, 2, 3) if len(states) == 3 else (1, 2, 3, 4)
    post.next(goes_on(1), answer, goes_on(3))
    form = await continuing(engine, clock, numbers, cap=25)
    app = stage(lambda _: form)
    async with opened(app) as pilot:
        await sent(pilot)

        assert f"{states.count('confirmed')} of {len(numbers)} runs continued" in words(app)
        assert said in words(app)
    assert len(post.requests) == len(states)
    assert [action.state for action in await engine.ledger.actions()] == states
    assert form.confirmed == (("run_1", "run_3") if len(states) == 3 else ("run_1",))


async def test_sending_stops_between_two_runs(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """Escape while the first is on its way: it is settled, the second is never sent."""
    form = await continuing(engine, clock, (1, 2))
    app = stage(lambda _: form)

    class Stopping(list[Any]):
        def pop(self, _: Any = 0) -> Any:
            app.call_from_thread(form.action_back)
            return goes_on(1)

    post.steps = Stopping()
    async with opened(app) as pilot:
        await sent(pilot)

        assert "1 of 2 runs continued" in words(app)
        assert "1 is left, and stays marked" in words(app)
    assert len(post.requests) == 1


async def test_the_next_batch_waits_until_an_unknown_outcome_is_resolved(
    stage: Any, clock: Any, engine: Engine, post: Any
) -> None:
    """Resolved on the spot, it takes its place among the others, and the rest is sent."""
    post.next(Drop(), goes_on(2))
    form = await continuing(engine, clock, (1, 2), cap=25)
    app = stage(lambda _: form)
    async with opened(app, size=(100, 34)) as pilot:
        await sent(pilot)
        await press(pilot, "ctrl+s")
        assert len(post.requests) == 1
        await press(pilot, "v", "n", "ctrl+s")
        await press(pilot, "ctrl+s")

        assert "1 of 2 runs continued" in words(app)
        assert "⊘ not created" in words(app)
    assert [request.json()["run_id"] for request in post.requests] == ["run_1", "run_2"]


async def started(engine: Engine, post: Any, *said: str) -> None:
    """Runs that were started from here, run_1 first."""
    for number, words_ in enumerate(said, 1):
        post.next(goes_on(number))
        await engine.actions.submit(StartRun(words_, Repository.parse("acme/web"), f"agent/{number}"))


async def test_failed_runs_are_retried_with_their_own_words_once(
    stage: Any, clock: Any, engine: Engine, post: Any
) -> None:
    """From the ledger; those started elsewhere are left out, and what was retried before is not sent a second time."""
    await started(engine, post, "Fix one.", "Fix two.")
    runs = [a_run(clock, 1), a_run(clock, 2), a_run(clock, 3), a_run(clock, 4, "completed")]
    post.next(goes_on(11), goes_on(12))
    for expected in (4, 4):
        form = ManyForm(engine, retried(runs, await known(engine, *runs)), cap=25)
        app = stage(lambda _, form=form: form)
        async with opened(app, size=(100, 34)) as pilot:
            assert "1 run neither failed nor cancelled, 1 run with unknown instructions: It was not" in words(app)
            await press(pilot, "ctrl+s", "ctrl+s")

            assert "2 of 2 runs started again" in words(app)
            assert form.run_ids == ("run_11", "run_12")
        assert len(post.requests) == expected

    sent_again = [request.json() for request in post.requests[2:]]
    assert [body["instructions"] for body in sent_again] == ["Fix one.", "Fix two."]
    assert [body["branch_name"] for body in sent_again] == ["agent/1", "agent/2"]


async def test_placeholders_are_filled_in_for_each_run(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """The preview shows the first one, the others get their own; one that a run lacks is named, and nothing is sent."""
    await started(engine, post, "Fix one.", "Fix two.")
    runs = [a_run(clock, 1), a_run(clock, 2)]
    form = ManyForm(engine, continued(runs, await known(engine, *runs), FINAL_STATUSES), cap=25)
    app = stage(lambda _: form)
    post.next(goes_on(1), goes_on(2))
    async with opened(app, size=(100, 34)) as pilot:
        await write(pilot, "On {branch} of {repository} once more: {previous_instructions} {x}")
        await press(pilot, "ctrl+s")
        app.screen.query_one(RequestPreview).scroll_end(animate=False)
        await settle(pilot)
        assert "On agent/1 of acme/web once more: Fix one. {x}" in words(app)
        await press(pilot, "ctrl+s")

    sent_texts = [request.json()["instructions"] for request in post.requests[2:]]
    assert sent_texts == [f"On agent/{n} of acme/web once more: Fix {w}. {{x}}" for n, w in ((1, "one"), (2, "two"))]

    runs = [a_run(clock, 1), a_run(clock, 3)]
    task = continued(runs, await known(engine, *runs), FINAL_STATUSES)
    app = stage(lambda engine: ManyForm(engine, task, cap=25))
    async with opened(app, size=(100, 34)) as pilot:
        await sent(pilot, "Again: {previous_instructions}")

        assert "✗ In 1 of 2 runs {previous_instructions} is not known" in words(app)
        assert app.screen.phase == "editing"
    assert len(post.requests) == 4


async def test_what_others_asked_is_retried_as_the_service_tells_it(
    stage: Any, clock: Any, engine: Engine, post: Any
) -> None:
    """The form begins with the preview: whose words they are, the words, and what a named agent is started with."""
    runs = [a_run(clock, 1), a_run(clock, 2), a_run(clock, 3)]
    ann = {"number": 1, "instructions": "Fix \x1b[2J it", "caller": "ann\x1b"}
    agent = {"number": 1, "instructions": "Look (2)", "caller": "ci", "inputs": {"depth": 2}}
    post.turns = {
        "run_1": {"run_id": "run_1", "turns": [ann]},
        "run_2": {"run_id": "run_2", "agent": "audit", "turns": [agent]},
    }
    form = ManyForm(engine, retried(runs, await known(engine, *runs)), cap=25)
    execution = {"agent_name": "audit", "execution_id": "run_12", "repository": "acme/web", "status": "queued"}
    post.next(goes_on(11), Respond(201, execution | {"created_at": "2026-05-04T12:00:00Z"}))
    app = stage(lambda _: form)
    async with opened(app, size=(100, 34)) as pilot:
        preview = words(app)
        await press(pilot, "ctrl+s")

        assert "2 of 2 runs started again" in words(app)
    assert "1 from ann␛, 1 from ci" in preview
    assert "1 run with unknown instructions: It was not" in preview
    assert "Fix ␛[2J it" in preview
    assert "audit: depth=2" in preview
    assert "each of the others is made from its own run" in preview
    assert "\x1b" not in preview
    first, second = post.requests
    assert (first.json()["instructions"], first.json()["branch_name"]) == ("Fix \x1b[2J it", "agent/1")
    assert (second.path, second.json()["inputs"]) == ("/v1/external/agents/audit/runs", {"depth": 2})


async def test_after_a_failure_the_service_is_asked_no_more(clock: Any, engine: Engine, post: Any) -> None:
    """What was sent from here is known all the same; of the others it is said why it is not."""
    await started(engine, post, "Fix one.")
    post.turns = {f"run_{number}": Respond(429, headers={"Retry-After": "60"}) for number in range(2, 40)}
    runs = [a_run(clock, number) for number in range(1, 40)]
    task = retried(runs, await known(engine, *runs))

    asked = [request for request in post.server.requests if "/external/runs/run_" in request.path]
    assert [run.run_id for run in task.runs] == ["run_1"]
    assert "38 runs with unknown instructions: The service could not be asked" in task.left_out
    assert len(asked) <= 8
