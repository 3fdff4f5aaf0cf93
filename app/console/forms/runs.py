"""The two forms about runs: a new one, and the next turn of one."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from textual import work
from textual.widget import Widget

from app.actions import Problem, problems
from app.actions.refusals import branch_problem
from app.api.requests import ContinueRun, StartRun, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values, named
from app.console.forms.form_screen import Built
from app.console.forms.values import (
    branch_field,
    faithful,
    read_pairs,
    read_repository,
    reading,
    repository_field,
)
from app.console.turns import instructions_of, turn_of
from app.engine import Engine
from app.text import safe_text
from storage.records import FINAL_STATUSES, Repository, Run
from widgets.after_refresh import after_refresh
from widgets.badges import run_badge
from widgets.forms.conversation import Conversation
from widgets.forms.facts import FormFact
from widgets.forms.field import ParagraphField
from widgets.forms.pairs import PairsField, unpacked

_ANY: Final = Repository.of("github", {})
"""Stands for a repository that cannot be read yet, so that the other fields can be judged."""


def continuation(run: Run, instructions: str) -> ContinueRun:
    """The request for the run's next turn."""
    # Named where it can be: without a name a service may make another branch (spec 4.3).
    branch = run.branch_name if run.branch_name and branch_problem(run.branch_name) is None else None
    return ContinueRun(run.run_id, instructions, run.repository, branch)


class NewRunForm(ActionForm):
    """POST /external/runs (spec 4.3)."""

    TITLE_TEXT = "New run"

    def __init__(
        self, engine: Engine, repository: str = "", branch: str = "", instructions: str = "", *, like: str = ""
    ) -> None:
        """Prepare; a repository or branch that cannot be shown faithfully is left out.

        `like` is the id of the run that it should be like; that run's draft then waits behind a key.
        """
        self._begin = {"repository": faithful(repository), "branch": faithful(branch), "instructions": instructions}
        self._previous = instructions
        draft = named("run.start.like" if like else "run.start", like or repository)
        super().__init__(engine, draft=draft, fresh_wins=bool(like))

    def make_rows(self) -> Sequence[Widget]:
        """Where, on which branch, what, and anything else the service is told."""
        begin = self._begin
        return (
            repository_field("owner/repo, or gitlab:group/project", begin["repository"]),
            branch_field(begin["branch"]),
            ParagraphField(
                "instructions",
                "instructions",
                "",
                value=begin["instructions"],
                placeholder="What should the agent do?",
            ),
            PairsField("metadata", "metadata", "Optional. JSON where it is JSON, else text.", reading=reading),
        )

    def build(self, values: Values) -> Built:
        """The request as typed, or all that is wrong with it."""
        repository = read_repository(values["repository"])
        metadata = read_pairs("metadata", unpacked(values["metadata"]))
        unread = [part for part in (repository, metadata) if isinstance(part, Problem)]
        request = StartRun(
            values["instructions"],
            _ANY if isinstance(repository, Problem) else repository,
            values["branch_name"].strip() or None,
            {} if isinstance(metadata, Problem) else metadata,
        )
        return (*unread, *problems(request)) if unread else request

    def placeholders(self) -> dict[str, str]:
        """What is known for a template's placeholders."""
        return super().placeholders() | {"previous_instructions": self._previous}

    def consequence(self, request: WriteRequest) -> str:
        """What sending does."""
        if not isinstance(request, StartRun):
            return ""
        branch = f"branch {request.branch_name}" if request.branch_name else "a branch the service makes"
        return f"Starts one run on {request.repository.label}, on {branch}."


class ContinueRunForm(ActionForm):
    """POST /external/runs with a run_id: the next turn of a conversation (spec 4.3)."""

    TITLE_TEXT = "Continue a run"

    def __init__(
        self,
        engine: Engine,
        run: Run,
        *,
        final_statuses: Collection[str] = FINAL_STATUSES,
        sent: ContinueRun | None = None,
        said: str = "",
    ) -> None:
        """Prepare for this run; with `sent`, all but the instructions is sent as it was then.

        With `said`, those are the instructions, and the form begins with the preview.
        """
        self._run, self._has_ended = run, run.status in final_statuses
        self._sent = sent
        self._conversation = Conversation()
        self._previous = ""
        super().__init__(engine, draft=named("run.continue", run.run_id), fresh_wins=bool(said))
        self.beginning = {"instructions": said} if said else None

    def make_rows(self) -> Sequence[Widget]:
        """Which run, what was said to it, and what it should do next."""
        run, badge = self._run, run_badge(self._run.status, is_final=self._has_ended)
        where = safe_text(f"{run.repository.label}  {run.branch_name}")
        return (
            FormFact("run", safe_text(run.run_id), badge),
            FormFact("on", where),
            self._conversation,
            ParagraphField(
                "instructions",
                "instructions",
                "The agent remembers what was said before."
                if self._has_ended
                else "It is still active: the service may refuse it.",
                placeholder="What should it do next?",
            ),
        )

    async def on_mount(self) -> None:
        """The conversation so far is looked up, once there is room to show it."""
        after_refresh(self, self._read_conversation)
        if self.beginning is not None:
            after_refresh(self, self.action_forward)

    def actions_changed(self) -> None:
        """A turn was sent or settled."""
        super().actions_changed()
        self._read_conversation()

    @work(group="conversation", exclusive=True)
    async def _read_conversation(self) -> None:
        turns = await self.engine.ledger.for_run(self._run.run_id)
        self._previous = next((text for turn in reversed(turns) if (text := instructions_of(turn))), "")
        self._conversation.show(tuple(map(turn_of, turns)), self.engine.clock())

    def placeholders(self) -> dict[str, str]:
        """What is known for a template's placeholders."""
        run = self._run
        known = {"repository": run.repository.label, "branch": run.branch_name}
        return known | {"previous_instructions": self._previous}

    def build(self, values: Values) -> Built:
        """The request as typed."""
        if self._sent is not None:
            return replace(self._sent, instructions=values["instructions"])
        return continuation(self._run, values["instructions"])

    def consequence(self, request: WriteRequest) -> str:
        """What sending does."""
        del request
        return f"Continues {self._run.run_id} with its context."
