"""A GitLab project after onboarding; the spec names the endpoint only (spec 4.6)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Project:
    """What the service said of the project."""

    project_path: str
    status: str
    """As received: onboarded, already_connected or failed are known."""
    success: bool
    webhook_configured: bool | None
    """None: the service did not say."""
    project_id: int | None
    error: str | None
    raw_json: str
