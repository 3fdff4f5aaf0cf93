from typing import Any

from app.actions.screen_start import NewRunForm
from app.actions.screen_writes import ContinueRunForm, OnboardForm
from app.actions.second_press import SecondPress
from app.engine.engine import Engine
from storage.records import Repository, Run
from tests.console.forms.steps import CREATED, opened, painted, press, words, write
from tests.lab import Drop, Respond

EXECUTION = {
    "agent_name": "security-review",
    "execution_id": "exec_7",
    "repository": "acme/web",
    "status": "queued",
    "created_at": "2026-05-04T12:00:00Z",
}


def a_run(clock: Any, *, status: str = "failed", branch: str = "agent/flaky", run_id: str = "run_1") -> Run:
    """A run as the cache would have it."""
    return Run(run_id, status, branch, Repository.parse("acme/web"), clock(), clock(), "{}")


CONTINUED = Respond(201, CREATED | {"run_id": "run_1", "branch_name": "agent/flaky"})


async def test_an_agents_inputs_are_sent_as_they_were_read(stage: Any, post: Any) -> None:
    """Each value says how it is read while it is typed."""
    post.next(Respond(202, EXECUTION))
    app = stage(lambda engine: NewRunForm(engine, "gitlab:acme/web", focus="name"))
    async with opened(app, "security-review\t\tmain\t\tdepth=full\nlimit=3\nonly=[1, null]\ndry=true") as pilot:
        text = painted(app)
        await press(pilot, "ctrl+s", "ctrl+s")
        outcome = words(app)

    assert "depth: text, limit: number, only: list, dry: yes/no" in text
    (request,) = post.requests
    assert request.path == "/v1/external/agents/security-review/runs"
    assert request.json() == {
        "repository": "acme/web",
        "branch_name": "main",
        "inputs": {"depth": "full", "limit": 3, "only": [1, None], "dry": True},
    }
    assert "exec_7" in outcome
    assert "The API does not show executions" in outcome


async def test_a_continuation_names_the_run_and_its_branch(stage: Any, clock: Any, engine: Engine, post: Any) -> None:
    """The run is not typed but shown; its id makes the attempt's subject."""
    post.next(CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, a_run(clock)))
    async with opened(app) as pilot:
        text = painted(app)
        await write(pilot, "And now the docs.")
        await press(pilot, "ctrl+s", "ctrl+s")
        await press(pilot, "enter")

    assert "✗ failed  run_1" in text
    (request,) = post.requests
    assert request.json() == {
        "instructions": "And now the docs.",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "branch_name": "agent/flaky",
        "run_id": "run_1",
    }
    assert [action.subject for action in await engine.ledger.for_run("run_1")] == ["run_1"]


async def test_a_continuation_waits_while_an_earlier_one_is_unknown(stage: Any, clock: Any, post: Any) -> None:
    """It shows the earlier attempt; resolved on the spot, the form is back with its text and sends."""
    post.next(Drop(), CONTINUED)
    for text in ("first", "second"):
        app = stage(lambda engine: ContinueRunForm(engine, a_run(clock)))
        async with opened(app, "", "ctrl+n") as pilot:
            await write(pilot, text)
            await press(pilot, "ctrl+s", "ctrl+s")
            blocked = words(app)
            if text == "second":
                await press(pilot, "v")
                await press(pilot, "n", "ctrl+s")
                values = app.screen.values
                await press(pilot, "ctrl+s", "ctrl+s")
                done = words(app)

    assert "Not sent: an earlier attempt is still open" in blocked
    assert "run_1" in blocked
    assert values == {"instructions": "second"}
    assert "The run was continued" in done
    assert [request.json()["instructions"] for request in post.requests] == ["first", "second"]


async def test_a_hostile_run_is_shown_harmlessly(stage: Any, clock: Any, post: Any) -> None:
    """Its branch is not sent along where git would refuse it; the id is sent as it is."""
    hostile = a_run(clock, branch="x\x1b]52;c;eA==\x07[/nope]\u202e", run_id="run_[@click=app.quit]\x1b[2J")
    post.next(CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, hostile))
    async with opened(app) as pilot:
        text = painted(app)
        await write(pilot, "Go on.")
        await press(pilot, "ctrl+s")
        preview = painted(app)
        await press(pilot, "ctrl+s")

    for shown in (text, preview):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "[/nope]" in text
    (request,) = post.requests
    assert request.json()["run_id"] == hostile.run_id
    assert "branch_name" not in request.json()


async def test_a_project_is_onboarded(stage: Any, post: Any) -> None:
    """Path and id go along."""
    post.next(Respond(200, {"success": True, "project_path": "acme/web", "status": "onboarded"}))
    app = stage(OnboardForm)
    async with opened(app, "acme/web\t7", "ctrl+s", "ctrl+s"):
        assert "The project was onboarded" in painted(app)

    assert [request.json() for request in post.requests] == [{"project_path": "acme/web", "project_id": 7}]


def test_a_held_key_never_counts_as_a_second_press() -> None:
    """Nor does one before the preview is on the screen; one after a pause does, and only once."""
    now = [0.0]
    press = SecondPress(lambda: now[0])
    press.PAUSE_S = 0.8  # type: ignore[misc]  # the staged console has none

    def at(moment: float) -> bool:
        now[0] = moment
        return press.press()

    assert not at(5.0)
    press.painted()
    assert [at(moment) for moment in (5.3, 5.9, 6.5, 7.1, 7.9, 8.0)] == [False, False, False, False, True, False]
    press.forget()
    assert not at(20.0)


async def test_a_draft_is_not_sent_by_two_quick_presses(stage: Any, clock: Any, post: Any, monkeypatch: Any) -> None:
    """The form stays at its preview and says that the key sends; pressed once more after a pause, it does."""
    monkeypatch.setattr(SecondPress, "PAUSE_S", 3600)
    post.next(CONTINUED)
    app = stage(lambda engine: ContinueRunForm(engine, a_run(clock)))
    async with opened(app, "An old draft.", "ctrl+s", "ctrl+s", "ctrl+s") as pilot:
        assert app.screen.phase == "preview"
        assert "Check it, then press ^s again to send." in painted(app)
        assert post.requests == []

        monkeypatch.setattr(SecondPress, "PAUSE_S", 0)
        await press(pilot, "ctrl+s")
        assert len(post.requests) == 1
