"""One instruction for many runs is previewed and sent one by one, and stops when continuing would be unsafe."""

from typing import Any

from app.actions.screen_batch import Known, continue_batch, known_of, retry_batch
from app.actions.screen_many import ManyForm
from app.api.requests import StartRun
from app.engine.engine import Engine
from storage.records import FINAL_STATUSES, Run, RunDetail
from tests.console.forms.conftest import CREATED, WEB, Opened, a_run
from tests.console.quiet import Driver
from tests.lab import Drop, Respond
from widgets.forms.dialog import RequestPreview

TALL = (100, 34)


def some_runs(*numbers: int) -> list[Run]:
    return [a_run(number, f"agent/{number}") for number in numbers]


async def known(engine: Engine, runs: list[Run]) -> Known:
    """Record the runs' starts, in the ledger and in the service."""
    return await known_of(engine, [RunDetail(run, engine.clock(), engine.clock(), "current", ()) for run in runs])


def continuing(engine: Engine, *numbers: int, cap: int = 25) -> ManyForm:
    """The form that continues these runs."""
    return ManyForm(engine, continue_batch(some_runs(*numbers), {}, FINAL_STATUSES), cap=cap)


def goes_on(number: int) -> Respond:
    """The service's answer to a continuation."""
    return Respond(201, CREATED | {"run_id": f"run_{number}"})


async def sent(form: Driver, text: str = "Try again.") -> None:
    """Types, previews and sends."""
    await form.fill(text)
    await form.press("ctrl+s", "ctrl+s")


async def test_every_marked_run_is_continued_in_batches(opened: Opened, engine: Engine, post: Any) -> None:
    """The preview names all runs; each gets its own POST and action, and an active run is left out."""
    post.next(goes_on(1), goes_on(2), goes_on(3))
    runs = [*some_runs(1, 2, 3), a_run(4, "agent/4", "working")]
    many = ManyForm(engine, continue_batch(runs, {}, FINAL_STATUSES), cap=2)
    async with opened(lambda _: many, size=TALL) as form:
        assert "3 on 1 repository" in form.text
        assert "1 run still active" in form.text
        await form.fill("Try again.")
        await form.press("ctrl+s")
        assert [f"run_{number}" in form.words for number in (1, 2, 3, 4)] == [True, True, True, False]
        assert "first 2, then the next" in form.words
        assert post.requests == []
        await form.press("ctrl+s")
        assert "2 of 3 runs continued" in form.words
        assert "1 is left" in form.words
        assert len(post.requests) == 2
        await form.press("ctrl+s")
        assert "✓ 3 of 3 runs continued" in form.text
        await form.press("escape")

    assert [request.json()["run_id"] for request in post.requests] == ["run_1", "run_2", "run_3"]
    assert {request.json()["instructions"] for request in post.requests} == {"Try again."}
    assert many.run_batch.confirmed == ("run_1", "run_2", "run_3")
    assert {action.state for action in await engine.ledger.actions()} == {"confirmed"}


async def test_the_next_batch_waits_until_an_unknown_outcome_is_resolved(
    opened: Opened, engine: Engine, post: Any
) -> None:
    """Once resolved on the spot, the run counts with the others, and the rest is sent."""
    post.next(Drop(), goes_on(2))
    async with opened(lambda engine: continuing(engine, 1, 2), size=TALL) as form:
        await sent(form)
        assert "press v to resolve it" in form.words
        await form.press("ctrl+s")
        assert len(post.requests) == 1
        await form.press("v", "n", "ctrl+s", "ctrl+s")
        assert "1 of 2 runs continued" in form.words
        assert "⊘ not created" in form.words

    assert [request.json()["run_id"] for request in post.requests] == ["run_1", "run_2"]


async def test_sending_stops_between_two_runs(opened: Opened, engine: Engine, post: Any) -> None:
    """Escape during the first request lets it finish, and the second is never sent."""
    many = continuing(engine, 1, 2)

    class Stopping(list[Any]):
        def pop(self, _: Any = 0) -> Any:
            many.app.call_from_thread(many.action_back)
            return goes_on(1)

    post.steps = Stopping()
    async with opened(lambda _: many) as form:
        await sent(form)
        assert "1 of 2 runs continued" in form.words
        assert "1 is left, and stays marked" in form.words

    assert len(post.requests) == 1


async def started(engine: Engine, post: Any, *said: str) -> None:
    """Runs that were started from here, run_1 first."""
    for number, words_ in enumerate(said, 1):
        post.next(goes_on(number))
        await engine.actions.submit(StartRun(words_, WEB, f"agent/{number}"))


async def test_placeholders_are_replaced_for_each_run(opened: Opened, engine: Engine, post: Any) -> None:
    """The preview shows the first run's values. If a run lacks one, the form names it and sends nothing."""
    await started(engine, post, "Fix one.", "Fix two.")
    forms = [
        ManyForm(engine, continue_batch(runs, await known(engine, runs), FINAL_STATUSES), cap=25)
        for runs in (some_runs(1, 2), some_runs(1, 3))
    ]
    post.next(goes_on(1), goes_on(2))
    async with opened(lambda _: forms[0], size=TALL) as form:
        await form.fill("On {branch} of {repository} once more: {previous_instructions} {x}")
        await form.press("ctrl+s")
        form.screen.query_one(RequestPreview).scroll_end(animate=False)
        await form.settle()
        assert "On agent/1 of acme/web once more: Fix one. {x}" in form.words
        await form.press("ctrl+s")

    sent_texts = [request.json()["instructions"] for request in post.requests[2:]]
    assert sent_texts == [f"On agent/{n} of acme/web once more: Fix {w}. {{x}}" for n, w in ((1, "one"), (2, "two"))]

    async with opened(lambda _: forms[1], size=TALL) as form:
        await sent(form, "Again: {previous_instructions}")
        assert "✗ In 1 of 2 runs {previous_instructions} is not known" in form.words
        assert form.screen.phase == "editing"
    assert len(post.requests) == 4


async def test_after_a_failed_read_the_service_is_not_asked_again(engine: Engine, post: Any) -> None:
    """Words sent from here are still known; for the other runs, the form says why theirs are not."""
    await started(engine, post, "Fix one.")
    post.turns = {f"run_{number}": Respond(429, headers={"Retry-After": "60"}) for number in range(2, 40)}
    runs = some_runs(*range(1, 40))
    task = retry_batch(runs, await known(engine, runs))

    asked = [request for request in post.server.requests if "/external/runs/run_" in request.path]
    assert [run.run_id for run in task.runs] == ["run_1"]
    assert "38 runs with unknown instructions: The service could not be asked" in task.left_out
    assert len(asked) <= 8
