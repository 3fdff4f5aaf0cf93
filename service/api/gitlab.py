"""POST /external/gitlab/projects: onboard a GitLab project (named in spec 4.6; the shape is our decision)."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from service.api.auth import Administrator
from service.api.bodies import ProjectOnboarding, ReadBody, schema_of
from service.api.context import Services
from service.api.failures import Failure, bad_request, documented
from service.hosts.gitlab import OnboardingError, find_project
from service.reference import checked_path
from service.store import hosts, repositories
from service.store.repositories import Repository

router = APIRouter()


@router.post(
    "/external/gitlab/projects", openapi_extra=schema_of(ProjectOnboarding), responses=documented(400, 413, 415)
)
def onboard_project(
    context: Services, caller: Administrator, wanted: Annotated[ProjectOnboarding, Depends(ReadBody(ProjectOnboarding))]
) -> dict[str, Any]:
    """Connect a project; asking again changes nothing and answers already_connected."""
    path = _checked(wanted)
    with context.database.read() as connection:
        host = next((host for host in hosts.of(connection, caller.organization.id) if host.platform == "gitlab"), None)
        known = [one for one in repositories.of(connection, caller.organization.id) if one.platform == "gitlab"]
    if host is None:
        raise Failure(
            400, "no_code_host", "no GitLab host is connected; connect one with runwarden service host connect"
        )
    for repository in known:
        same_id = wanted.project_id is not None and repository.project_id == wanted.project_id
        if same_id or (wanted.project_id is None and repository.path.lower() == (path or "").lower()):
            return _answer("already_connected", repository)
    try:
        project = find_project(host, wanted.project_id, path, context.settings.probing.timeout_s)
        found = Repository(project.path, "gitlab", project.path, project.url, project.id)
        with context.database.write() as connection:
            repositories.put(connection, caller.organization.id, found, context.clock())
    except (OnboardingError, ValueError) as error:
        failed = {"success": False, "project_path": path, "status": "failed", "webhook_configured": False}
        return failed | ({"project_id": wanted.project_id} if wanted.project_id else {}) | {"error": str(error)}
    return _answer("onboarded", found)


def _checked(wanted: ProjectOnboarding) -> str | None:
    if wanted.project_id is None and wanted.project_path is None:
        raise bad_request("invalid_request", "give project_id or project_path; when both are given, the id wins")
    if wanted.project_path is None:
        return None
    try:
        return checked_path("gitlab", wanted.project_path)
    except ValueError as error:
        raise bad_request("invalid_repository", f"project_path: {error}") from error


def _answer(status: str, repository: Repository) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "success": True,
        "project_path": repository.path,
        "status": status,
        "webhook_configured": repository.webhook_configured,
    }
    return answer | ({"project_id": repository.project_id} if repository.project_id else {})
