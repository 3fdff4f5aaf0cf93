"""Objects that writes create besides runs: organizations, onboarded projects, executions."""

from datetime import timedelta
from typing import Final

from storage.lazy_dataclass import dataclass

INVITATION_LIFETIME: Final = timedelta(days=30)
"""How long the administrator's invitation holds (spec 3)."""


@dataclass(frozen=True, slots=True)
class Organization:
    """A child organization."""

    organization_id: str
    organization_name: str
    organization_slug: str
    parent_organization_id: str
    raw_json: str
    """As received."""


@dataclass(frozen=True, slots=True)
class Project:
    """The service's answer about the project."""

    project_path: str
    status: str
    """As received: onboarded, already_connected or failed are known."""
    success: bool
    webhook_configured: bool | None
    """None: the service did not say."""
    project_id: int | None
    error: str | None
    raw_json: str


@dataclass(frozen=True, slots=True)
class Execution:
    """A named agent's execution, accepted (spec 2.6); no endpoint reads it back."""

    agent_name: str
    execution_id: str
    repository: str
    status: str
    created_at: str
    """As received."""
    raw_json: str
