"""What a write came to, when it came to something."""

from dataclasses import dataclass

from storage.records import Execution, Organization, Project, Run


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer to a write; exactly one of the four is set, by the request's kind."""

    status: int
    """The HTTP status: 200, 201 or 202."""
    raw_json: str
    """The body as received."""
    run: Run | None = None
    execution: Execution | None = None
    organization: Organization | None = None
    project: Project | None = None

    @property
    def result_id(self) -> str:
        """The id of what was made: of the run, execution or organization; the project's path."""
        if self.run is not None:
            return self.run.run_id
        if self.execution is not None:
            return self.execution.execution_id
        if self.organization is not None:
            return self.organization.organization_id
        return self.project.project_path if self.project is not None else ""
