"""What can be done with a run, wherever one is on show."""

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from app.console.base_screen import BaseScreen
from app.console.messages import FollowRun, OpenRun
from app.text import json_escaped
from storage.records import Action, Run

if TYPE_CHECKING:
    from app.engine import Engine


class RunActingScreen(BaseScreen):
    """A screen with one run in focus: `focused_run_id` says which."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new_run", "new run", tooltip="Start a run on a repository", id="run.new"),
        Binding("c", "continue_run", "continue", tooltip="Say more to this run's agent", id="run.continue"),
        Binding("a", "start_agent", "agent", tooltip="Start a named agent on a repository", id="run.agent"),
        Binding("f", "follow", "follow", tooltip="To its end, in every room; again: no more", id="run.follow"),
        Binding(
            "N",
            "new_like_this",
            "new like this",
            show=False,
            tooltip="Same repository, same instructions",
            id="run.new_like",
        ),
        Binding("y", "copy_id", "copy run id", show=False, id="run.copy_id"),
        Binding("Y", "copy_json", "copy JSON", show=False, tooltip="The run as received", id="run.copy_json"),
        Binding("w", "open_url", "open in browser", show=False, tooltip="By console.run_url", id="run.open"),
        Binding("r", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh"),
    ]

    @property
    def focused_run_id(self) -> str | None:
        """The run that keys act on; None: there is none."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are shown as such; without a URL template there is nothing to open."""
        if action == "open_url":
            return bool(self.console.settings.console.run_url)
        if action in {"new_run", "continue_run", "start_agent", "new_like_this"} and self.console.profile.read_only:
            return None
        return super().check_action(action, parameters)

    def action_new_run(self) -> None:
        """Opens the form for a new run."""
        self._with_engine(self._new_run)

    def action_new_like_this(self) -> None:
        """Opens the form for a new run on this one's repository, with what this one was told."""
        self._with_engine(self._new_like_this)

    def action_continue_run(self) -> None:
        """Opens the form for the next turn."""
        self._with_engine(self._continue)

    def action_start_agent(self) -> None:
        """Opens the form for a named agent."""
        self._with_engine(self._start_agent)

    def action_refresh(self) -> None:
        """Asks the service now."""
        if self.console.engine is not None:
            self.console.engine.polling.poll_soon("runs")
            self.console.engine.polling.poll_soon("health")

    def action_follow(self) -> None:
        """Follows the run to its end, or lets it go."""
        if self.focused_run_id is not None:
            self.post_message(FollowRun(self.focused_run_id))

    def open_run(self, run_id: str) -> None:
        """Gives the run the whole screen."""
        self.post_message(OpenRun(run_id))

    async def action_copy_json(self) -> None:
        """Copies the run as received."""
        run = await self._run()
        if run is not None:
            self.app.copy_to_clipboard(json_escaped(run.raw_json))
            self.console.say("Copied the run's JSON")

    def action_copy_id(self) -> None:
        """Copies the run's id to the terminal's clipboard."""
        if self.focused_run_id is not None:
            self.console.copy(self.focused_run_id)

    async def action_open_url(self) -> None:
        """Opens the run by the configured URL template."""
        run = await self._run()
        if run is None:
            return
        address = self.console.settings.console.run_url.format_map(
            {
                "run_id": quote(run.run_id, safe=""),
                "repository": quote(run.repository.path, safe="/"),
                "branch": quote(run.branch_name, safe=""),
            }
        )
        import webbrowser  # it looks for every browser there is: not before somebody wants one

        if not webbrowser.open(address):
            self.console.say(f"No browser here. The address: {address}", severity="warning")

    async def _run(self) -> Run | None:
        engine, run_id = self.console.engine, self.focused_run_id
        if engine is None or run_id is None:
            return None
        detail = await engine.cache.detail(run_id)
        return detail.run if detail else None

    def _with_engine(self, work: Any) -> None:
        engine = self.console.engine
        if engine is None:
            self.console.say(self.console.not_open)
            return
        self.run_worker(work(engine), exclusive=True, group="form")

    async def _new_run(self, engine: "Engine") -> None:
        from app.console.forms import NewRunForm

        self._show_form(NewRunForm(engine))

    async def _new_like_this(self, engine: "Engine") -> None:
        from app.console.forms import NewRunForm
        from app.console.runs.loaders import read_beginning

        run = await self._run()
        if run is None:
            self._show_form(NewRunForm(engine))
            return
        begun = await read_beginning(engine.ledger, run.run_id)
        self._show_form(NewRunForm(engine, run.repository.label, begun.branch, begun.instructions))

    async def _continue(self, engine: "Engine") -> None:
        from app.console.forms import ContinueRunForm

        run = await self._run()
        if run is None:
            self.console.say("No run is selected: nothing to continue.", severity="warning")
            return
        self._show_form(ContinueRunForm(engine, run))

    async def _start_agent(self, engine: "Engine") -> None:
        from app.console.forms import StartAgentForm

        run = await self._run()
        self._show_form(StartAgentForm(engine, repository=run.repository.label) if run else StartAgentForm(engine))

    def _show_form(self, form: ModalScreen[Action | None]) -> None:
        self.app.push_screen(form, self.acted)

    def acted(self, action: Action | None) -> None:
        """A form was closed; the run that it made comes with the next answer, which is asked for now."""
        if action is not None and action.state == "confirmed":
            self.action_refresh()
