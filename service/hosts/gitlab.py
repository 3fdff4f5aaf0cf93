"""GitLab projects: found through the host's API where it has one, through git where it has none."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.execution.git import Git, GitError, login
from service.hosts.access import token_of
from service.hosts.gitlab_api import GitLabApi, GitLabRefusalError
from service.hosts.http import UnreachableError
from service.reference import checked_path
from service.store.hosts import Host

_NOT_FOUND: Final = 404


class OnboardingError(Exception):
    """The project cannot be connected; the text names the cure."""


@dataclass(frozen=True, slots=True)
class Project:
    """A GitLab project."""

    path: str
    url: str
    id: int | None


def find_project(host: Host, project_id: int | None, path: str | None, timeout_s: float) -> Project:
    """Look a project up by its id, else by its path.

    Raises:
        OnboardingError: There is no such project, or the host cannot be asked.
    """
    if host.api_url is None:
        return _find_by_git(host, project_id, path, timeout_s)
    try:
        body = GitLabApi(host, timeout_s).project(path or "" if project_id is None else project_id)
    except UnreachableError as error:
        raise OnboardingError(f"GitLab cannot be reached: {error}") from error
    except GitLabRefusalError as error:
        if error.status == _NOT_FOUND:
            named = project_id or path
            raise OnboardingError(f"GitLab knows no project {named}, or the token may not see it") from error
        raise OnboardingError(f"{error}; check the host's API URL and token") from error
    found = body.get("path_with_namespace")
    url = (host.clone_url_of(found) or body.get("http_url_to_repo")) if isinstance(found, str) else None
    if not isinstance(found, str) or not isinstance(url, str):
        raise OnboardingError(
            "GitLab names no path or clone URL; check --api-url, or connect the host with --clone-url"
        )
    number = body.get("id")
    try:
        return Project(checked_path("gitlab", found), url, number if isinstance(number, int) else None)
    except ValueError as error:
        raise OnboardingError(f"the project {found!r} cannot be named here: {error}") from error


def _find_by_git(host: Host, project_id: int | None, path: str | None, timeout_s: float) -> Project:
    url = None if path is None else host.clone_url_of(path)
    if path is None or url is None:
        raise OnboardingError("this GitLab host has no API URL, so a project needs its project_path and a clone URL")
    with tempfile.TemporaryDirectory(prefix="runwarden-onboarding-") as home:
        try:
            Git(Path(home), timeout_s, login(url, token_of(host)))("ls-remote", "--", url, "HEAD")
        except GitError as error:
            raise OnboardingError(f"the project {path} cannot be read: {error}") from error
    return Project(path, url, project_id)
