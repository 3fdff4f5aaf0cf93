"""The forms for a new run, for a run's next turn, and for a named agent."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from textual import work
from textual.widget import Widget

from app.actions import FieldProblem, problems
from app.actions.fields import branch_problem
from app.api.requests import ContinueRun, StartAgent, StartRun, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values, named
from app.console.forms.fields import (
    branch_field,
    faithful,
    read_pairs,
    read_repository,
    reading,
    repository_field,
)
from app.console.forms.form_screen import RequestOrProblems
from app.console.ledger_turns import instructions_of, turn_of
from app.engine import Engine
from app.text import safe_text
from storage.records import FINAL_STATUSES, Repository, Run
from widgets.after_refresh import after_refresh
from widgets.badges import run_badge
from widgets.forms.facts import FormFact
from widgets.forms.field import LineField, ParagraphField
from widgets.forms.pairs import PairsField, unpacked
from widgets.runs.conversation import Conversation

_ANY: Final = Repository.of("github", {})
"""Stands for a repository that cannot be read yet, so that the other fields can be checked."""


def continuation(run: Run, instructions: str) -> ContinueRun:
    """The request for the run's next turn."""
    # With the branch if it is known: without one a service may create another branch (spec 4.3).
    branch = run.branch_name if run.branch_name and branch_problem(run.branch_name) is None else None
    return ContinueRun(run.run_id, instructions, run.repository, branch)


class NewRunForm(ActionForm):
    """POST /external/runs (spec 4.3)."""

    TITLE_TEXT = "New run"

    def __init__(
        self, engine: Engine, repository: str = "", branch: str = "", instructions: str = "", *, like: str = ""
    ) -> None:
        """Prepare; a repository or branch that cannot be shown exactly is left out.

        `like` is the id of a run to imitate; that run's draft then waits behind a key.
        """
        self._begin = {"repository": faithful(repository), "branch": faithful(branch), "instructions": instructions}
        self._previous = instructions
        draft = named("run.start.like" if like else "run.start", like or repository)
        super().__init__(engine, draft=draft, fresh_wins=bool(like))

    def make_rows(self) -> Sequence[Widget]:
        """The repository, the branch, the instructions and the metadata."""
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

    def build(self, values: Values) -> RequestOrProblems:
        """The request as typed, or its problems."""
        repository = read_repository(values["repository"])
        metadata = read_pairs("metadata", unpacked(values["metadata"]))
        unread = [part for part in (repository, metadata) if isinstance(part, FieldProblem)]
        request = StartRun(
            values["instructions"],
            _ANY if isinstance(repository, FieldProblem) else repository,
            values["branch_name"].strip() or None,
            {} if isinstance(metadata, FieldProblem) else metadata,
        )
        return (*unread, *problems(request)) if unread else request

    def placeholders(self) -> dict[str, str]:
        """The values of a template's placeholders."""
        return super().placeholders() | {"previous_instructions": self._previous}

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending."""
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
        """Prepare for this run; `sent` is an earlier request whose values are kept, all but the instructions.

        With `said` as instructions the form begins with the preview.
        """
        self._run, self._has_ended = run, run.status in final_statuses
        self._sent = sent
        self._conversation = Conversation()
        self._previous = ""
        super().__init__(engine, draft=named("run.continue", run.run_id), fresh_wins=bool(said))
        self.beginning = {"instructions": said} if said else None

    def make_rows(self) -> Sequence[Widget]:
        """The run, its conversation, and the next instructions."""
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
        """Read the conversation, once there is room to show it."""
        after_refresh(self, self._read_conversation)
        if self.beginning is not None:
            after_refresh(self, self.action_forward)

    def actions_changed(self) -> None:
        """Show a turn that was sent or settled."""
        super().actions_changed()
        self._read_conversation()

    @work(group="conversation", exclusive=True)
    async def _read_conversation(self) -> None:
        turns = await self.engine.ledger.for_run(self._run.run_id)
        self._previous = next((text for turn in reversed(turns) if (text := instructions_of(turn))), "")
        self._conversation.show(tuple(map(turn_of, turns)), self.engine.clock())

    def placeholders(self) -> dict[str, str]:
        """The values of a template's placeholders."""
        run = self._run
        known = {"repository": run.repository.label, "branch": run.branch_name}
        return known | {"previous_instructions": self._previous}

    def build(self, values: Values) -> RequestOrProblems:
        """The request as typed."""
        if self._sent is not None:
            return replace(self._sent, instructions=values["instructions"])
        return continuation(self._run, values["instructions"])

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending."""
        del request
        return f"Continues {self._run.run_id} with its context."


class StartAgentForm(ActionForm):
    """POST /external/agents/{name}/runs (spec 4.4)."""

    TITLE_TEXT = "Start a named agent"
    DEFAULT_CLASSES = "-long"

    def __init__(self, engine: Engine, repository: str = "", branch: str = "") -> None:
        """Prepare; values that cannot be shown exactly are left out."""
        # The label's platform prefix is ours; this endpoint takes the bare group/project.
        self._begin = (faithful(repository.removeprefix("gitlab:")), faithful(branch))
        super().__init__(engine, draft=named("agent.start", repository))

    def make_rows(self) -> Sequence[Widget]:
        """The agent, the repository and the inputs."""
        repository, branch = self._begin
        return (
            LineField("name", "agent", "As it is named in the service's configuration.", placeholder="security-review"),
            repository_field("owner/repo, group/project, a URL, or a configured name", repository),
            branch_field(branch),
            PairsField("inputs", "inputs", "Optional. JSON where it is JSON, else text.", reading=reading),
        )

    def build(self, values: Values) -> RequestOrProblems:
        """The request as typed, or its problems."""
        inputs = read_pairs("inputs", unpacked(values["inputs"]))
        request = StartAgent(
            values["name"].strip(),
            values["repository"].strip(),
            values["branch_name"].strip() or None,
            {} if isinstance(inputs, FieldProblem) else inputs,
        )
        return (inputs, *problems(request)) if isinstance(inputs, FieldProblem) else request

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending."""
        if not isinstance(request, StartAgent):
            return ""
        return f"Starts the agent {request.name} once on {request.repository}, as it is configured there."
