"""GitLab for onboarding: its API for projects and webhooks, and git for hosts that are connected without the API."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from service.errors import ServiceError
from service.execution.git import GitCommandError, GitRunner, login
from service.forge.client import ForgeError, ForgeHttp
from service.hosts.http import token_of
from service.reference import Location, checked_path, location
from service.store.hosts import Host

_NOT_FOUND: Final = 404


class OnboardingError(ServiceError):
    """The project cannot be connected; the text names the cure."""


@dataclass(frozen=True, slots=True)
class Project:
    """A GitLab project."""

    path: str
    url: str
    id: int | None


def find_project(host: Host, project_id: int | None, path: str | None, timeout_s: float) -> Project:
    """Look up a project by its id, or else by its path.

    Raises:
        OnboardingError: There is no such project, or the host cannot be asked.
    """
    if host.api_url is None:
        return _find_by_git(host, project_id, path, timeout_s)
    try:
        body = api_of(host, timeout_s).document("GET", f"/projects/{quote(str(project_id or path), safe='')}")
    except ForgeError as error:
        if error.status == _NOT_FOUND:
            named = project_id or path
            raise OnboardingError(f"GitLab knows no project {named}, or the token may not see it") from error
        cure = "" if error.status is None else "; check the host's API URL and token"
        raise OnboardingError(f"{error}{cure}") from error
    return _project(host, body)


def api_of(host: Host, timeout_s: float) -> ForgeHttp:
    """Return the API of a connected host; without a token GitLab shows public projects only."""
    token = token_of(host)
    return ForgeHttp("GitLab", host.api_url or "", {"PRIVATE-TOKEN": token} if token else {}, timeout_s)


def _project(host: Host, body: Mapping[str, Any]) -> Project:
    found, number = body.get("path_with_namespace"), body.get("id")
    try:
        path = checked_path("gitlab", found if isinstance(found, str) else "")
    except ValueError as error:
        raise OnboardingError(f"the project {found!r} cannot be named here: {error}") from error
    _check_group(host, path)
    url = host.clone_url_of(path) or _checked_address(host, path, body.get("http_url_to_repo"))
    return Project(path, url, number if isinstance(number, int) else None)


def _check_group(host: Host, path: str) -> None:
    if not host.owns(path):
        raise OnboardingError(f"the project {path} is outside the connected group {host.group}")


def _checked_address(host: Host, path: str, given: object) -> str:
    """Return the clone address that GitLab named, if it is that of this project on this host.

    Raises:
        OnboardingError: It leads elsewhere: to another host, another project, or a folder of this machine.
    """
    url = given if isinstance(given, str) else ""
    api = urlsplit(host.api_url or "")
    parts, where = urlsplit(url), location(url)
    # An address without TLS is accepted only if the operator connected the API without TLS.
    is_trusted = parts.scheme in {"https", "ssh", api.scheme} and not parts.password
    root = api.path.partition("/api/")[0].strip("/")
    expected = Location(host.host, f"{root}/{path}".strip("/"))
    if not is_trusted or where is None or (where.host, where.path.lower()) != (expected.host, expected.path.lower()):
        raise OnboardingError(
            (
                f"{url!r} is not the project {path} on {host.host}"
                if url
                else f"GitLab names no address to clone {path} from"
            )
            + "; correct GitLab's external URL, or connect the host with --clone-url"
        )
    return url


def _find_by_git(host: Host, project_id: int | None, path: str | None, timeout_s: float) -> Project:
    if path is not None:
        _check_group(host, path)
    url = None if path is None else host.clone_url_of(path)
    if path is None or url is None:
        raise OnboardingError("this GitLab host has no API URL, so a project needs its project_path and a clone URL")
    with tempfile.TemporaryDirectory(prefix="runwarden-onboarding-") as home:
        try:
            GitRunner(Path(home), timeout_s, login(url, token_of(host)))("ls-remote", "--", url, "HEAD")
        except GitCommandError as error:
            raise OnboardingError(f"the project {path} cannot be read: {error}") from error
    return Project(path, url, project_id)
