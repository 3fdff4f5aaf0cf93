"""GitLab projects: found through the host's API where it has one, through git where it has none."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from service.execution.git import Git, GitError, login
from service.hosts.access import token_of
from service.hosts.http import Answer, UnreachableError, ask
from service.store.hosts import Host

_OK: Final = 200
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
    key = str(project_id) if project_id is not None else quote(path or "", safe="")
    answer = _ask(host, f"/projects/{key}", timeout_s)
    body = answer.body if isinstance(answer.body, dict) else {}
    found = body.get("path_with_namespace")
    if answer.status == _NOT_FOUND:
        raise OnboardingError(f"GitLab knows no project {project_id or path}, or the token may not see it")
    if answer.status != _OK or not isinstance(found, str):
        raise OnboardingError(f"GitLab answered {answer.status}; check the host's API URL and token")
    url = host.clone_url_of(found) or body.get("http_url_to_repo")
    if not isinstance(url, str):
        raise OnboardingError("GitLab names no clone URL; connect the host with --clone-url")
    number = body.get("id")
    return Project(found, url, number if isinstance(number, int) else None)


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


def _ask(host: Host, path: str, timeout_s: float) -> Answer:
    token = token_of(host)
    url = f"{(host.api_url or '').rstrip('/')}{path}"
    try:
        return ask(url, timeout_s, headers={"PRIVATE-TOKEN": token} if token else None)
    except UnreachableError as error:
        raise OnboardingError(f"GitLab cannot be reached: {error}") from error
