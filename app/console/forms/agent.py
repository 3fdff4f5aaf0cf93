"""The form that starts a named agent."""

from collections.abc import Sequence

from textual.widget import Widget

from app.actions import FieldProblem, problems
from app.api.requests import StartAgent, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values, named
from app.console.forms.form_screen import Built
from app.console.forms.values import branch_field, faithful, read_pairs, reading, repository_field
from app.engine import Engine
from widgets.forms.field import LineField
from widgets.forms.pairs import PairsField, unpacked


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

    def build(self, values: Values) -> Built:
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
