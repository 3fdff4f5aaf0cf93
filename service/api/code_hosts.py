"""Code hosts: their health (spec 2.7, 4.5), and onboarding of GitLab projects (spec 4.6; the shape is our decision)."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends

from service.api.auth import Administrator, AnyCaller, Caller
from service.api.bodies import ProjectOnboarding, ReadBody, schema_of
from service.api.context import Context, Services
from service.api.errors import ApiError, bad_request, documented
from service.hosts.gitlab import OnboardingError
from service.hosts.onboarding import Onboarding, Outcome, ProjectKey
from service.reference import checked_path
from service.store import hosts, repositories

router = APIRouter()


@router.get("/external/installation/health", responses=documented())
async def installation_health(context: Services, caller: AnyCaller) -> dict[str, object]:
    """Answer with a key for each connected platform; any valid token may ask."""
    return await context.outgoing.run(partial(_health, context, caller), caller.organization.id)


def _health(context: Context, caller: Caller) -> dict[str, object]:
    with context.database.read() as connection:
        connected = hosts.of(connection, caller.organization.id)
        known = repositories.of(connection, caller.organization.id)
    if not connected:
        raise ApiError(
            404, "no_code_host", "no code host is connected; connect one with runwarden service host connect"
        )
    found = context.probes.ask(connected, known)
    body: dict[str, dict[str, str]] = {}
    for host in connected:
        body[host.platform] = {"status": found[host.platform].status}
        if host.platform == "gitlab":
            body[host.platform] |= {"host": host.host} | ({"group": host.group} if host.group else {})
    return {"code_hosting": body}


@router.post(
    "/external/gitlab/projects", openapi_extra=schema_of(ProjectOnboarding), responses=documented(400, 404, 413, 415)
)
async def onboard_project(
    context: Services, caller: Administrator, wanted: Annotated[ProjectOnboarding, Depends(ReadBody(ProjectOnboarding))]
) -> dict[str, object]:
    """Connect a project; asking again changes nothing and answers already_connected."""
    return await context.outgoing.run(partial(_onboard, context, caller, wanted), caller.organization.id)


def _onboard(context: Context, caller: Caller, wanted: ProjectOnboarding) -> dict[str, object]:
    path = _checked(wanted)
    with context.database.read() as connection:
        host = next((host for host in hosts.of(connection, caller.organization.id) if host.platform == "gitlab"), None)
    if host is None:
        raise ApiError(
            404, "no_code_host", "no GitLab host is connected; connect one with runwarden service host connect"
        )
    owner = caller.organization.id
    onboarding = Onboarding(context.database, owner, host, context.settings, context.clock, caller.actor)
    try:
        outcome = onboarding.onboard(ProjectKey(wanted.project_id or None, path))
    except (OnboardingError, ValueError) as error:
        failed = {"success": False, "project_path": path or "", "status": "failed", "webhook_configured": False}
        return failed | ({"project_id": wanted.project_id} if wanted.project_id else {}) | {"error": str(error)}
    return _answer(outcome)


def _checked(wanted: ProjectOnboarding) -> str | None:
    if not wanted.project_id and wanted.project_path is None:
        raise bad_request("invalid_request", "give project_id or project_path; when both are given, the id wins")
    if wanted.project_path is None:
        return None
    try:
        return checked_path("gitlab", wanted.project_path)
    except ValueError as error:
        raise bad_request("invalid_repository", f"project_path: {error}") from error


def _answer(outcome: Outcome) -> dict[str, object]:
    repository = outcome.repository
    answer: dict[str, object] = {
        "success": True,
        "project_path": repository.path,
        "status": "onboarded" if outcome.is_new else "already_connected",
        "webhook_configured": repository.webhook_configured,
    }
    answer |= {"project_id": repository.project_id} if repository.project_id else {}
    return answer | ({"error": outcome.webhook_failure} if outcome.webhook_failure else {})
