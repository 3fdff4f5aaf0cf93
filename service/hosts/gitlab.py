"""GitLab for onboarding: its API for projects and webhooks, and git for hosts that are connected without the API."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from service.errors import ServiceError
from service.execution.git import GitCommandError, GitRunner, login
from service.hosts.http import HostResponse, HostUnreachableError, ask, token_of
from service.reference import Location, checked_path, location
from service.store.hosts import Host

_SUCCESS: Final = range(200, 300)
_PAGE: Final = 100
_MOST_PAGES: Final = 20
_NOT_FOUND: Final = 404


class GitLabError(ServiceError):
    """GitLab refused a request, or its answer cannot be used."""

    def __init__(self, answer: HostResponse) -> None:
        super().__init__(f"GitLab answered {answer.status}{_message(answer.body)}")
        self.status = answer.status


class GitLabApi:
    """The API of one connected host; every method may also raise `HostUnreachableError`."""

    def __init__(self, host: Host, timeout_s: float) -> None:
        self._base = (host.api_url or "").rstrip("/")
        self._token = token_of(host)
        self._timeout_s = timeout_s

    @property
    def has_token(self) -> bool:
        """Whether the host has a token; without one GitLab shows public projects only."""
        return self._token is not None

    def project(self, key: int | str) -> Mapping[str, Any]:
        """Return the project with an id or a path.

        Raises:
            GitLabError: There is none, or it is not shown to this token.
        """
        return self._document("GET", f"/projects/{quote(str(key), safe='')}")

    def hooks(self, project_id: int) -> Iterator[Mapping[str, Any]]:
        """Yield a project's webhooks.

        Raises:
            GitLabError: The token may not see them.
        """
        page = "1"
        for _ in range(_MOST_PAGES):
            answer = self._ask("GET", f"/projects/{project_id}/hooks?per_page={_PAGE}&page={page}")
            yield from (one for one in _list(answer) if isinstance(one, dict))
            page = answer.headers.get("x-next-page", "")
            if not page.isdecimal():
                return

    def add_hook(self, project_id: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make a webhook.

        Raises:
            GitLabError: The token may not, or GitLab does not accept the address.
        """
        return self._document("POST", f"/projects/{project_id}/hooks", fields)

    def change_hook(self, project_id: int, hook_id: int, fields: Mapping[str, Any]) -> None:
        """Give a webhook these fields.

        Raises:
            GitLabError: The token may not, or GitLab does not accept the address.
        """
        self._ask("PUT", f"/projects/{project_id}/hooks/{hook_id}", fields)

    def remove_hook(self, project_id: int, hook_id: int) -> None:
        """Remove a webhook.

        Raises:
            GitLabError: The token may not, or it is gone.
        """
        self._ask("DELETE", f"/projects/{project_id}/hooks/{hook_id}")

    def _document(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._ask(method, path, fields)
        if not isinstance(answer.body, dict):
            raise GitLabError(answer)
        return answer.body

    def _ask(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> HostResponse:
        headers = {"PRIVATE-TOKEN": self._token} if self._token else {}
        answer = ask(f"{self._base}{path}", self._timeout_s, headers=headers, method=method, document=fields)
        if answer.status not in _SUCCESS:
            raise GitLabError(answer)
        return answer


def _list(answer: HostResponse) -> list[object]:
    if not isinstance(answer.body, list):
        raise GitLabError(answer)
    return answer.body


def _message(body: object) -> str:
    said = body.get("message", body.get("error")) if isinstance(body, dict) else None
    text = "".join(mark for mark in str(said or "")[:200] if mark.isprintable())
    return f" ({text})" if text else ""


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
        body = GitLabApi(host, timeout_s).project(path or "" if project_id is None else project_id)
    except HostUnreachableError as error:
        raise OnboardingError(f"GitLab cannot be reached: {error}") from error
    except GitLabError as error:
        if error.status == _NOT_FOUND:
            named = project_id or path
            raise OnboardingError(f"GitLab knows no project {named}, or the token may not see it") from error
        raise OnboardingError(f"{error}; check the host's API URL and token") from error
    return _project(host, body)


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
