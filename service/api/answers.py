"""Responses as OpenAPI describes them, with examples; the endpoints build them as plain objects."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

_AT: Final = "2026-01-31T08:00:00.000000Z"
_RUN: Final = {
    "run_id": "run_01KG9QX4E8Z3V6T1M2N5P7R9S0",
    "status": "queued",
    "branch_name": "agent/fix-the-login",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
    "created_at": _AT,
    "updated_at": _AT,
}
FAILURES: Final = {
    400: ("invalid_request", "instructions: Field required"),
    401: ("invalid_token", "the bearer token is unknown, revoked or expired; create another"),
    403: ("insufficient_scope", "this needs the scope admin: use a token with it, or ask for that role"),
    404: ("run_not_found", "there is no run 'run_x'; list the runs to find its id"),
    409: ("run_active", "the run run_x is working; continue it when it has ended"),
    410: ("log_not_kept", "the log of turn 1 is not kept any longer"),
    413: ("body_too_large", "the body may have at most 1048576 bytes"),
    415: ("unsupported_media_type", "send the body as 'Content-Type: application/json' in UTF-8"),
    429: ("rate_limited", "the organization acme sent too many requests; try again in 3 s"),
    500: ("internal_error", "the service failed; its log says why"),
}
"""An example of each failure: its code and its message."""


def _example(**value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


class FailureBody(BaseModel):
    """The failure body (spec 2.8)."""

    message: str
    error_code: str | None = None


class Repository(BaseModel):
    """A repository reference (spec 2.3)."""

    platform: str
    data: dict[str, object]


class RunBody(BaseModel):
    """A run (spec 2.4)."""

    model_config = _example(**_RUN)

    run_id: str
    status: str
    branch_name: str
    repository: Repository
    created_at: str
    updated_at: str


class RunListBody(BaseModel):
    """A page of runs, newest first (spec 2.5)."""

    model_config = _example(runs=[_RUN], page_size=10, next_token=None, total_count=1)

    runs: list[RunBody]
    page_size: int
    next_token: str | None
    """The token of the next page; null on the last page."""
    total_count: int
    """The number of runs on all pages, after the filters."""


class ExecutionBody(BaseModel):
    """An agent's execution, whose id is the id of the run that carries it (spec 2.6)."""

    model_config = _example(
        agent_name="reviewer", execution_id=_RUN["run_id"], repository="acme/api", status="queued", created_at=_AT
    )

    agent_name: str
    execution_id: str
    repository: str
    status: str
    created_at: str


class OrganizationBody(BaseModel):
    """A new organization (spec 2.2)."""

    model_config = _example(
        organization_id="org_01KG9QX4E8Z3V6T1M2N5P7R9S1",
        organization_name="Customer",
        organization_slug="customer",
        parent_organization_id="org_01KG9QX4E8Z3V6T1M2N5P7R9S2",
    )

    organization_id: str
    organization_name: str
    organization_slug: str
    parent_organization_id: str


class HealthBody(BaseModel):
    """The health of the connected code hosts, by platform (spec 2.7)."""

    model_config = _example(
        code_hosting={
            "github": {"status": "ok"},
            "gitlab": {"status": "degraded", "host": "gitlab.com", "group": "acme"},
        }
    )

    code_hosting: dict[str, dict[str, str]]


class OnboardingBody(BaseModel):
    """An onboarded GitLab project, or why it is not (spec 4.6; the shape is our decision)."""

    model_config = _example(
        success=True, project_path="acme/tools", status="onboarded", webhook_configured=True, project_id=42
    )

    success: bool
    project_path: str
    status: str
    """`onboarded`, `already_connected` or `failed`."""
    webhook_configured: bool
    project_id: int = 0
    """The project's id; left out if it is not known."""
    error: str = ""
    """What failed; left out if nothing did."""
