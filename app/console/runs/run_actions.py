"""The actions on one run: start another, continue it, follow it, copy it, open it."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.content import Content

from app.console.messages import FollowRun
from app.console.runs.screen_context import ScreenContext
from app.run_document import run_address
from app.text import json_escaped, safe_text
from storage.records import Run

if TYPE_CHECKING:
    from pathlib import Path

    from textual.screen import ModalScreen

    from app.console.sheets.confirm import ConfirmSheet
    from app.engine import Engine
    from storage.records import Action

WRITES: Final = frozenset({"new", "continue", "agent", "new_like", "retry", "cancel"})
NEEDS_NO_RUN: Final = frozenset({"new", "agent", "refresh"})

_hidden = partial(Binding, show=False)
RUN_BINDINGS: Final = (
    Binding("n", "run('new')", "new run", tooltip="Start a run on a repository", id="run.new"),
    Binding("c", "run('continue')", "continue", tooltip="Say more to this run's agent", id="run.continue"),
    Binding("a", "run('agent')", "agent", tooltip="Start a named agent on a repository", id="run.agent"),
    Binding("f", "run('follow')", "follow", tooltip="To its end, in every tab; again: unfollow", id="run.follow"),
    _hidden("N", "run('new_like')", "new like this", tooltip="Same repository, same instructions", id="run.new_like"),
    _hidden("X", "run('cancel')", "cancel run", tooltip="End its agent's work", id="run.cancel"),
    _hidden("y", "run('copy_id')", "copy run id", id="run.copy_id"),
    _hidden("Y", "run('copy_json')", "copy JSON", tooltip="The run as received", id="run.copy_json"),
    _hidden("w", "run('open')", "open in browser", tooltip="By console.run_url", id="run.open"),
    Binding("r", "run('refresh')", "refresh", tooltip="Ask the service now", id="app.refresh"),
)


class RunActions:
    """The actions on the run in focus, by name."""

    def __init__(
        self,
        context: ScreenContext,
        run_id: Callable[[], str | None],
        started: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; `started` is called with the id of a run that a form started."""
        self._context = context
        self._session = context.session
        self._run_id = run_id
        self._started = started
        self._actions: dict[str, Callable[[], Awaitable[None] | None]] = {
            "new": lambda: context.with_engine(self._new, "form"),
            "continue": lambda: context.with_engine(self._continue, "form"),
            "agent": lambda: context.with_engine(self._agent, "form"),
            "new_like": lambda: context.with_engine(self._new_like, "form"),
            "cancel": lambda: context.with_engine(self._cancel, "form"),
            "follow": self._follow,
            "copy_id": self._copy_id,
            "copy_json": self._copy_json,
            "open": self._open,
            "refresh": context.session.poll_soon,
        }

    def is_possible(self, name: str, *, has_runs: bool = True) -> bool | None:
        """Whether an action is possible; None: the profile is read-only, or there is no URL template."""
        if not has_runs and name not in NEEDS_NO_RUN:
            return False
        if name == "open":
            return bool(self._session.settings.console.run_url)
        return None if name in WRITES and self._session.profile.read_only else True

    async def do(self, name: str) -> None:
        """Run an action."""
        done = self._actions[name]()
        if inspect.isawaitable(done):
            await done

    def form_closed(self, action: "Action | None") -> None:
        """Poll the service after a form was sent."""
        if action is None:
            return
        if self._started is not None and action.kind == "run.start" and action.result_id is not None:
            self._started(action.result_id)
        if action.state == "confirmed":
            self._session.poll_soon()

    def reply(self, text: str, closed: Callable[["Action | None"], None]) -> None:
        """Preview a reply in the form that continues the run; `closed` is called with the result."""
        self._context.with_engine(partial(self._preview_reply, text=text, closed=closed), "form")

    async def _preview_reply(self, engine: "Engine", text: str, closed: Callable[["Action | None"], None]) -> None:
        from app.console.forms import ContinueRunForm

        run = await self._run()
        if run is None or not text.strip():
            self._session.notify("Nothing to send: type what it should do next.", severity="warning")
            return
        finals = await engine.cache.final_statuses()
        self._context.push_screen(ContinueRunForm(engine, run, final_statuses=finals, said=text), closed)

    async def _run(self) -> Run | None:
        engine, run_id = self._session.engine, self._run_id()
        if engine is None or run_id is None:
            return None
        detail = await engine.cache.detail(run_id)
        return detail.run if detail else None

    def _follow(self) -> None:
        run_id = self._run_id()
        if run_id is not None:
            self._context.post(FollowRun((run_id,)))

    def _copy_id(self) -> None:
        run_id = self._run_id()
        if run_id is not None:
            self._session.copy(run_id)

    async def _copy_json(self) -> None:
        run = await self._run()
        if run is not None:
            self._session.copy_as_is(json_escaped(run.raw_json), "Copied the run's JSON")

    async def _open(self) -> None:
        run = await self._run()
        if run is None:
            return
        address = run_address(self._session.settings.console.run_url, run)
        import webbrowser  # It searches for all installed browsers: imported at first use.

        if not webbrowser.open(address):
            self._session.notify(f"No browser here. The address: {address}", severity="warning")

    # The forms

    async def _new(self, engine: "Engine") -> None:
        from app.console.forms import NewRunForm

        run = await self._run()
        self._show(NewRunForm(engine, run.repository.label if run else ""))

    async def _new_like(self, engine: "Engine") -> None:
        from app.console.forms import NewRunForm
        from app.console.runs.loaders import read_origin

        run = await self._run()
        if run is None:
            self._show(NewRunForm(engine))
            return
        origin = await read_origin(engine.ledger, run.run_id)
        self._show(NewRunForm(engine, run.repository.label, origin.branch, origin.instructions, like=run.run_id))

    async def _continue(self, engine: "Engine") -> None:
        from app.console.forms import ContinueRunForm

        run = await self._run()
        if run is None:
            self._session.notify("No run is selected: nothing to continue.", severity="warning")
        else:
            self._show(ContinueRunForm(engine, run, final_statuses=await engine.cache.final_statuses()))

    async def _cancel(self, engine: "Engine") -> None:
        run = await self._run()
        if run is None or run.status in await engine.cache.final_statuses():
            self._session.notify("This run has ended: there is nothing to cancel.")
        else:
            self._context.push_screen(cancel_sheet(engine, run), self._cancelled)

    def _cancelled(self, said: str | None) -> None:
        if said is not None:
            self._session.notify(said)
            self._session.poll_soon()

    async def _agent(self, engine: "Engine") -> None:
        from app.console.forms import StartAgentForm

        run = await self._run()
        self._show(StartAgentForm(engine, repository=run.repository.label) if run else StartAgentForm(engine))

    def _show(self, form: "ModalScreen[Action | None]") -> None:
        self._context.push_screen(form, self.form_closed)


def cancel_sheet(engine: "Engine", run: Run) -> "ConfirmSheet":
    """Return a sheet that cancels a run."""
    from app.actions import ActionRefusedError
    from app.actions.cancelling import look
    from app.api.requests import CancelRun
    from app.console.sheets.confirm import ConfirmSheet

    facts = [
        Content(safe_text(f"{run.run_id} on {run.repository.label}, {run.branch_name}, is {run.status}.")),
        Content("Its agent is ended, nothing of this turn is pushed, and the run counts as failed."),
    ]

    async def do(_: "Path") -> str:
        sent = await engine.actions.submit(CancelRun(run.run_id))
        action = await look(engine.actions, sent)
        if action.state == "rejected":
            raise ActionRefusedError(action.error.message if action.error is not None else "The service refused.")
        if action.state != "confirmed" and action.resolution is None:
            return "Whether the run was cancelled is unknown: look at it, and cancel it again if it still works."
        return "The run was cancelled."

    return ConfirmSheet("Cancel the run", facts, None, do)
