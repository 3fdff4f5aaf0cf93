"""What can be done with the run in focus."""

import webbrowser
from dataclasses import replace

import pytest

from app.console.forms import ContinueRunForm, NewRunForm
from app.console.messages import FollowRun
from app.console.runs.run_actions import RUN_BINDINGS, WRITES, RunActions
from storage.records import Action
from tests.console.runs.conftest import Desk
from tests.console.scenes import SceneClock


def on(desk: Desk, run_id: str | None = "run_1") -> RunActions:
    """The actions on a run."""
    return RunActions(desk.context, lambda: run_id)


async def test_every_key_has_an_action(desk: Desk) -> None:
    """A key that named none would end in a KeyError."""
    names = {binding.action.removeprefix("run('").removesuffix("')") for binding in RUN_BINDINGS}
    for name in names:
        await on(desk, None).do(name)

    assert names > WRITES - {"retry"}


@pytest.mark.parametrize(
    ("name", "run_id", "form"), [("new", None, NewRunForm), ("continue", "run_1", ContinueRunForm)]
)
async def test_a_form_is_shown(desk: Desk, name: str, run_id: str | None, form: type) -> None:
    """Once what it begins with was read."""
    await on(desk, run_id).do(name)
    await desk.work()

    assert [type(screen) for screen, _ in desk.screens] == [form]


async def test_without_a_run_nothing_is_continued_followed_or_copied(desk: Desk) -> None:
    """The key that was meant for a run says why."""
    for name in ("continue", "follow", "copy_id", "copy_json", "open"):
        await on(desk, None).do(name)
        await desk.work()

    assert desk.said == ["No run is selected: nothing to continue."]
    assert (desk.screens, desk.posted, desk.copied) == ([], [], [])


async def test_the_run_is_copied_by_id_and_as_json(desk: Desk) -> None:
    """The JSON is as received."""
    for name in ("copy_id", "copy_json"):
        await on(desk).do(name)

    assert desk.copied == ["run_1", '{"run_id": "run_1", "status": "failed"}']


async def test_following_is_asked_of_the_app(desk: Desk) -> None:
    """The app follows for all screens."""
    await on(desk).do("follow")

    assert desk.posted == [FollowRun(("run_1",))]


@pytest.mark.parametrize("has_browser", [True, False])
async def test_the_run_is_opened_by_the_template(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, has_browser: bool
) -> None:
    """Where there is no browser, the address is said."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or has_browser)
    await on(desk).do("open")

    assert opened == ["https://runs.example/run_1"]
    assert desk.said == ([] if has_browser else ["No browser here. The address: https://runs.example/run_1"])


def test_a_read_only_profile_disables_the_writes(desk: Desk) -> None:
    """None shows the key as disabled; without a template the browser key is hidden."""
    desk.session.profile = replace(desk.session.profile, read_only=True)
    desk.session.settings = replace(desk.settings, console=replace(desk.settings.console, run_url=""))
    actions = on(desk)

    assert {name: actions.is_possible(name) for name in ("new", "copy_id", "open")} == {
        "new": None,
        "copy_id": True,
        "open": False,
    }


def test_a_started_run_is_told_and_asked_for(desk: Desk) -> None:
    """Only once it is confirmed; a form that was left changes nothing."""
    started: list[str] = []
    actions = RunActions(desk.context, lambda: None, started.append)
    actions.form_closed(None)
    actions.form_closed(an_action("unknown", None))
    assert (started, desk.polled) == ([], [])

    actions.form_closed(an_action("confirmed", "run_9"))
    assert (started, desk.polled) == (["run_9"], ["now"])


async def test_before_the_engine_is_open_a_form_says_so(desk: Desk) -> None:
    """Nothing is started."""
    desk.session.engine = None
    await on(desk).do("new")

    assert desk.said == [desk.session.not_open]
    assert not desk.screens


def an_action(state: str, result_id: str | None) -> Action:
    """A start of a run, as the ledger has it."""
    return Action("act_1", "run.start", "", "k", "/runs", "{}", "console", state, SceneClock().now, result_id=result_id)  # type: ignore[arg-type]
