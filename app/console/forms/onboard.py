"""The form that connects a GitLab project."""

from collections.abc import Sequence

from textual.widget import Widget

from app.actions import FieldProblem, problems
from app.api.requests import OnboardProject, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values
from app.console.forms.form_screen import RequestOrProblems
from app.engine import Engine
from widgets.forms.field import LineField


class OnboardForm(ActionForm):
    """POST /external/gitlab/projects (spec 4.6 names it; its shape is our decision)."""

    TITLE_TEXT = "Onboard a GitLab project"
    DEFAULT_CSS = "OnboardForm FormDialog { height: 20; }"

    def __init__(self, engine: Engine) -> None:
        """Prepare for this engine's profile."""
        super().__init__(engine, draft="gitlab.onboard")

    def make_rows(self) -> Sequence[Widget]:
        """The project: its path, its id or both."""
        return (
            LineField("project_path", "project", "Its path with all groups.", placeholder="group/project"),
            LineField("project_id", "project id", "A number; it wins where both are given.", placeholder="optional"),
        )

    def build(self, values: Values) -> RequestOrProblems:
        """The request as typed, or its problems."""
        text = values["project_id"].strip()
        path = values["project_path"].strip() or None
        if text and not (text.isascii() and text.isdigit()):
            wrong = FieldProblem("project_id", "A project id is a number; or leave it empty.")
            return (wrong, *problems(OnboardProject(path or "-")))
        return OnboardProject(path, int(text) if text else None)

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending."""
        del request
        return "Connects the project and sets up its webhook. Doing it twice does no harm."
