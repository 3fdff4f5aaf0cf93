"""Actions on the run in focus, on every screen that has one, and on many runs at once."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Final, Literal

from textual.binding import Binding

from app.console.base import BaseScreen
from app.console.session import FIX_TOAST_S, MAX_COPY, FollowRun, OpenRun, Session, mark_of
from app.engine.text import json_escaped, safe_text
from app.health.facts import warning_of
from app.runs.document import NO_PAGE, run_address
from storage.records import Action, Run, RunFilter, RunSort, RunSummary
from storage.records.run import ASKS
from widgets.kit import hidden, keyless

if TYPE_CHECKING:
    from textual.worker import Worker

    from app.engine.engine import Engine

FormName = Literal["retry", "continue"]
MAX_MARKS: Final = 1_000
"""Runs marked at a time: for more there are filters."""
WRITES: Final = frozenset({"new_run", "continue_run", "retry", "cancel_run"})
ON_A_RUN: Final = frozenset(
    {"continue_run", "follow_run", "cancel_run", "copy_run_id", "copy_run_json", "open_in_browser", "part"}
)

PARTS_OF_A_RUN: Final = (
    hidden("l", "part('log')", "log", tooltip="The run's log", id="run.log"),
    hidden("d", "part('changes')", "diff", tooltip="What the run changed", id="run.changes"),
    hidden("r", "part('review')", "review", tooltip="The run's findings", id="run.review"),
)
RETRY: Final = hidden("T", "retry", "retry failed", tooltip="Send a failed run's instructions again", id="runs.retry")
RUN_BINDINGS: Final = (
    Binding("n", "new_run", "new run", tooltip="Start a run on a repository", id="run.new"),
    Binding("c", "continue_run", "continue", tooltip="Send this run's agent another message", id="run.continue"),
    Binding("a", "new_run('name')", "agent", tooltip="Start a run of a named agent", id="run.agent"),
    Binding(
        "f",
        "follow_run",
        "follow",
        tooltip="Follow it in every tab until it ends; press again to unfollow",
        id="run.follow",
    ),
    hidden("X", "cancel_run", "cancel run", tooltip="Cancel the run, or all marked ones", id="run.cancel"),
    *PARTS_OF_A_RUN,
    hidden("y", "copy_run_id", "copy run id", id="run.copy_id"),
    keyless("copy_run_json", "copy JSON", tooltip="Copy the run as received", id="run.copy_json"),
    hidden(
        "o", "open_in_browser", "open in browser", tooltip="Open console.run_url, or the service's page", id="run.open"
    ),
)


def keys_for(status: str, summary: RunSummary, *, is_final: bool) -> dict[str, str]:
    """The actions that matter for a run, see `BaseScreen.keys_now`."""
    if summary.result.startswith(ASKS):
        return {"continue_run": "answer", "part('log')": "", "follow_run": ""}
    if not is_final:
        return {"part('log')": "", "cancel_run": "cancel", "follow_run": ""}
    retry = {"retry": "retry"} if status == "failed" else {}
    part = "part('review')" if status == "completed" else "part('log')"
    return {**retry, part: "", "part('changes')": "", "continue_run": ""}


def with_engine(
    screen: BaseScreen, work: Callable[..., Awaitable[None]], group: str, *arguments: object
) -> "Worker[None] | None":
    """Start work that needs the engine, replacing work of the same group; without an engine, report why."""
    engine = screen.acting_engine
    if not isinstance(engine, str):
        return screen.run_worker(partial(work, engine, *arguments), exclusive=True, group=group)
    screen.session.notify(engine)
    return None


def using_engine(group: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Turn a coroutine method that needs the engine, its first argument, into one that starts it with `with_engine`."""

    def decorator(method: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(method)
        def start(screen: BaseScreen, *arguments: object) -> None:
            with_engine(screen, partial(method, screen), group, *arguments)

        return start

    return decorator


class RunActions(BaseScreen):
    """A screen with a run in focus, and the actions of `RUN_BINDINGS`."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in WRITES and self.acting_profile.read_only:
            return None
        return super().check_action(action, parameters)

    @using_engine("form")
    async def action_new_run(self, engine: "Engine", focus: str = "") -> None:
        """Start a run, on the repository of the chosen runs; `focus`: the form's field to begin with."""
        from app.actions.screen_start import NewRunForm

        runs = await self._runs()
        labels = {run.repository.label for run in runs}
        if len(labels) > 1:
            self.session.notify(f"{len(runs):,} runs of {len(labels):,} repositories are marked: name one of these.")
        repository = labels.pop() if len(labels) == 1 else ""
        self.app.push_screen(NewRunForm(engine, repository, focus=focus), self.form_closed)

    @using_engine("form")
    async def action_continue_run(self, engine: "Engine") -> None:
        from app.actions.screen_writes import ContinueRunForm

        if not (runs := await self._runs()):
            self.session.notify("Nothing to continue: no run is selected.", severity="warning")
        elif len(runs) > 1:
            many = f"{len(runs):,} runs are marked, but only one can be continued at a time. Press esc to unmark them."
            self.session.notify(many, severity="warning")
        else:
            finals = await engine.cache.final_statuses()
            is_here = engine is self.session.engine
            form = ContinueRunForm(engine, runs[0], final_statuses=finals, may_wait=is_here)
            self.app.push_screen(form, self.form_closed)

    @using_engine("form")
    async def action_cancel_run(self, engine: "Engine") -> None:
        from app.actions.screen_many import cancel_sheet

        runs = await self._runs()
        finals = await engine.cache.final_statuses()
        active = [run for run in runs if run.status not in finals]
        cap = engine.settings.console.send_cap
        if len(active) > cap:
            reason = f"Nothing was sent: {len(active):,} runs to cancel, more than {cap}."
            self.session.notify(f"{reason} Mark fewer, or raise send_cap in [console].", severity="warning")
        elif active:
            waiting = await engine.follow_ups.list_waiting([run.run_id for run in active])
            sheet = cancel_sheet(engine, active, len(runs) - len(active), waiting)
            sheet.mark = mark_of(engine)
            if (outcome := await self.app.push_screen_wait(sheet)) is not None:
                self.session.notify(outcome, opens=OpenRun(runs[0].run_id, engine.profile.name))
                self.action_refresh()
        else:
            have = "These runs have" if len(runs) > 1 else "This run has"
            self.session.notify(f"{have} ended: there is nothing to cancel.")

    def action_retry(self) -> None:
        self.show_form("retry")

    @using_engine("form")
    async def show_form(self, engine: "Engine", name: FormName) -> None:
        self.was_sent(await show_many(self, engine, name, self.chosen_ids))

    def was_sent(self, run_ids: tuple[str, ...]) -> None:
        if run_ids:
            self.action_refresh()

    def action_follow_run(self) -> None:
        engine = self.acting_engine
        if isinstance(engine, str):
            self.session.notify(engine)
        elif self.chosen_ids:
            self.post_message(FollowRun(self.chosen_ids, engine.profile.name))

    def action_copy_run_id(self) -> None:
        if ids := self.chosen_ids:
            lines = "\n".join(safe_text(run_id, limit=MAX_COPY) for run_id in ids)
            self.session.copy_as_is(lines, f"{len(ids):,} run ids" if len(ids) > 1 else lines)

    async def action_copy_run_json(self) -> None:
        if runs := await self._runs():
            name = f"The JSON of {len(runs):,} runs" if len(runs) > 1 else "The run's JSON"
            text = ",\n".join(json_escaped(run.raw_json) for run in runs)
            self.session.copy_as_is(f"[{text}]" if len(runs) > 1 else text, name)

    @using_engine("browser")
    async def action_open_in_browser(self, engine: "Engine") -> None:
        """Open the run's address, or show it where there is no browser."""
        runs = await self._runs()
        if len(runs) > 1:
            self.session.notify(f"{len(runs):,} runs are marked: only one is opened. esc unmarks them.")
        if len(runs) != 1:
            return
        import webbrowser  # Searches for all installed browsers, so it is imported at first use.

        template = self.session.settings.console.run_url
        address = run_address(template, runs[0]) if template else await engine.extension.page(runs[0].run_id)
        if address is None:
            self.session.notify(NO_PAGE)
        elif not webbrowser.open(address):
            self.session.notify(f"No browser found. The address: {address}", severity="warning")

    def form_closed(self, action: "Action | None") -> None:
        if action is not None and action.state == "confirmed":
            self.action_refresh()

    async def _runs(self) -> list[Run]:
        engine = self.acting_engine
        ids = self.chosen_ids
        details = {} if isinstance(engine, str) else await engine.cache.details(ids)
        return [details[run_id].run for run_id in ids if run_id in details]


async def ids_of(session: Session, engine: "Engine", condition: RunFilter, sort: RunSort) -> tuple[str, ...]:
    """Ids of all matching runs; none, with a notice, if there are too many."""
    total = await engine.cache.count(condition)
    if total > MAX_MARKS:
        reason = f"{total:,} runs match; at most {MAX_MARKS:,} are marked at a time. Narrow the filter first."
        session.notify(reason, severity="warning")
        return ()
    return tuple(row.run_id for row in await engine.cache.rows(condition, sort, offset=0, limit=MAX_MARKS))


async def show_many(screen: BaseScreen, engine: "Engine", name: FormName, ids: Sequence[str]) -> tuple[str, ...]:
    """Show the form that retries or continues these runs; return the ids that it was sent for."""
    from app.actions.screen_batch import continue_batch, known_of, retry_batch
    from app.actions.screen_many import ManyForm

    session = screen.session
    details = await engine.cache.details(ids)
    runs = tuple(details[run_id].run for run_id in ids if run_id in details)
    say = partial(session.notify, "Asking the service for the instructions; the form opens when it answers.")
    waiting = screen.set_timer(0.5, say)
    try:
        facts = await known_of(engine, [details[run.run_id] for run in runs])
    finally:
        waiting.stop()
    if screen.app.screen is not screen:
        return ()
    if name == "retry":
        task = retry_batch(runs, facts)
        platforms = {run.repository.platform for run in task.runs}
        if warning := warning_of(await engine.cache.health(), platforms, session.healthy_words):
            session.notify(safe_text(warning, limit=300), severity="warning", timeout=FIX_TOAST_S)
    else:
        task = continue_batch(runs, facts, await engine.cache.final_statuses())
    if not task.runs:
        session.notify(f"Nothing to {task.text.verb}: {task.left_out or 'no run is marked'}.", severity="warning")
        return ()
    # The lines of batches are read from the profile on show: another one's progress is in the form alone.
    follows = {"changed": session.batches.keep} if engine is session.engine else {}
    form = ManyForm(engine, task, cap=session.settings.console.send_cap, **follows)
    await screen.app.push_screen_wait(form)
    return form.run_batch.confirmed
