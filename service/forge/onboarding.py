"""Onboarding: a GitLab project becomes an organization's repository, with a webhook. Repeating it does no harm."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from service.clock import Clock
from service.errors import ServiceError
from service.forge import ForgeError, ForgeHttp
from service.git import GitCommandError
from service.hosts.tokens import HostTokens, TokenError
from service.reference import checked_path, location
from service.settings import Settings
from service.store import audit, repositories
from service.store.database import Database, lock_subject
from service.store.hosts import Host
from service.store.repositories import Repository

_FIXES: Final = {
    401: "check the token of the GitLab host",
    403: "the token of the GitLab host needs the scope 'api' and the role Maintainer in the project",
    404: "the token of the GitLab host needs the role Maintainer in the project",
    422: "GitLab does not accept gitlab.webhook_url; it may refuse addresses in its network",
}


class OnboardingError(ServiceError):
    """The project cannot be connected; the text has the fix."""


def _find(tokens: HostTokens, host: Host, project_id: int | None, path: str | None, timeout_s: float) -> Repository:
    if host.api_url is None:
        return _find_by_git(tokens, host, project_id, path, timeout_s)
    try:
        body = _api(host, tokens.of(host), timeout_s).document(
            "GET", f"/projects/{quote(str(project_id or path), safe='')}"
        )
    except TokenError as error:
        raise OnboardingError(str(error)) from error
    except ForgeError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            text = f"GitLab knows no project {project_id or path}, or the token may not see it"
            raise OnboardingError(text) from error
        fix = "" if error.status is None else "; check the host's API URL and token"
        raise OnboardingError(f"{error}{fix}") from error
    full_path, number, address = (body.get(key) for key in ("path_with_namespace", "id", "http_url_to_repo"))
    try:
        path = checked_path("gitlab", full_path if isinstance(full_path, str) else "")
    except ValueError as error:
        raise OnboardingError(f"the project {full_path!r} cannot be named here: {error}") from error
    _check_group(host, path)
    url = host.clone_url_of(path)
    if url is None:
        url = _checked_address(host, host.api_url, path, address if isinstance(address, str) else "")
    return Repository(path, "gitlab", path, url, number if isinstance(number, int) else None)


def _find_by_git(
    tokens: HostTokens, host: Host, project_id: int | None, path: str | None, timeout_s: float
) -> Repository:
    """Find a project of a host without an API, which has to be readable at its clone URL."""
    if path is not None:
        _check_group(host, path)
    if path is None or (url := host.clone_url_of(path)) is None:
        text = "this GitLab host has no API URL, so a project needs its project_path and a clone URL"
        raise OnboardingError(text)
    try:
        tokens.read_head(host, url, timeout_s)
    except GitCommandError as error:
        raise OnboardingError(f"the project {path} cannot be read: {error}") from error
    return Repository(path, "gitlab", path, url, project_id)


def _checked_address(host: Host, api_url: str, path: str, url: str) -> str:
    """Return GitLab's address of a project; it may lead to another host, another project, or a folder here."""
    api, parts, place = urlsplit(api_url), urlsplit(url), location(url)
    # An address without TLS is accepted only if the operator connected the API without TLS.
    is_trusted = parts.scheme in {"https", "ssh", api.scheme} and not parts.password
    root = api.path.partition("/api/")[0].strip("/")
    expected = (host.host, f"{root}/{path}".strip("/").lower())
    if not is_trusted or place is None or (place.host, place.path.lower()) != expected:
        other = f"{url!r} is not the project {path} on {host.host}"
        problem = other if url else f"GitLab names no address to clone {path} from"
        raise OnboardingError(f"{problem}; correct GitLab's external URL, or connect the host with --clone-url")
    return url


def _api(host: Host, token: str | None, timeout_s: float) -> ForgeHttp:
    # Without a token GitLab shows public projects only.
    return ForgeHttp("GitLab", host.api_url or "", {"PRIVATE-TOKEN": token} if token else {}, timeout_s)


def _check_group(host: Host, path: str) -> None:
    if not host.owns(path):
        raise OnboardingError(f"the project {path} is outside the connected group {host.group}")


def _ensure_webhook(
    tokens: HostTokens, host: Host, project_id: int | None, settings: Settings, variable: str | None
) -> tuple[bool | None, str | None]:
    """Ensure that a project has exactly one webhook of this service, as configured.

    Return whether it is set up (None: GitLab could not be asked, so the webhook was not changed) and why there is none,
    or why that is not known, with the fix. `variable`: the one with its secret; None: it has none.
    """
    if host.api_url is None:
        return False, "the webhook needs GitLab's API: connect the host with --api-url"
    if project_id is None:
        return None, "the webhook could not be set: GitLab did not name the project's id"
    secret = os.environ.get(variable or "", "")
    if variable is not None and not secret:
        return False, f"the webhook needs its secret: {variable} is not set"
    try:
        if (token := tokens.of(host)) is None:
            return False, "the webhook needs a token: connect the GitLab host with --token-env"
        # GitLab switches push_events on unless a request says otherwise.
        fields = {"url": settings.gitlab.webhook_url, "enable_ssl_verification": True, "push_events": False}
        fields |= dict.fromkeys(settings.gitlab.webhook_events, True) | ({"token": secret} if secret else {})
        if "issues_events" in fields:
            # The same event reports that an issue became confidential, which cancels its waiting runs.
            fields["confidential_issues_events"] = True
        api = _api(host, token, settings.probing.timeout_s)
        hooks = f"/projects/{project_id}/hooks"
        present = _ours(api, hooks, fields)
        if not present:
            api.answer("POST", hooks, fields)
            # A concurrent onboarding may have created one as well: both keep the oldest.
            present = _ours(api, hooks, fields)
        else:
            # GitLab does not show a webhook's secret, so the webhook is always set again.
            api.answer("PUT", f"{hooks}/{present[0]}", fields)
        for superfluous in present[1:]:
            try:
                api.answer("DELETE", f"{hooks}/{superfluous}")
            except ForgeError as error:
                if error.status != HTTPStatus.NOT_FOUND:  # A concurrent onboarding removed it.
                    raise
    except (ForgeError, TokenError) as error:
        if isinstance(error, TokenError) or error.status is None:
            return None, f"the webhook could not be set: {error}"
        fix = _FIXES.get(error.status, "see GitLab's log")
        return False, f"the webhook could not be set: {error}; {fix}"
    return True, None


def _ours(api: ForgeHttp, hooks: str, fields: Mapping[str, Any]) -> list[int]:
    numbers = (hook.get("id") for hook in api.pages(hooks) if hook.get("url") == fields["url"])
    return sorted(number for number in numbers if isinstance(number, int))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an onboarding."""

    is_new: bool
    repository: Repository
    webhook_failure: str | None
    """Why there is no webhook although one is configured; None: there is one, or none is configured."""


def onboard(
    database: Database,
    tokens: HostTokens,
    organization_id: str,
    host: Host,
    settings: Settings,
    clock: Clock,
    actor: str,
    *,
    project_id: int | None,
    path: str | None,
) -> Outcome:
    """Connect a project of an organization's host; for one that is connected, only its webhook is checked.

    The id wins if both it and the path are given. `actor` is the author in the audit trail.

    Raises:
        OnboardingError: GitLab has no such project or cannot be asked.
    """
    with database.read() as connection:
        connected = repositories.of(connection, organization_id)
    existing = _of(connected, project_id, None if project_id else path)
    wants_webhook = settings.gitlab.webhook_url is not None
    if existing is not None and not wants_webhook:
        return Outcome(is_new=False, repository=existing, webhook_failure=None)
    project = existing
    if project is None or project.project_id is None:
        try:
            project = _find(tokens, host, project_id, path, settings.probing.timeout_s)
        except OnboardingError:
            # A repository stays connected even if GitLab does not show the project now.
            if project is None:
                raise
    # GitLab is asked before the database is locked, since it may answer slowly.
    same = _of(connected, project.project_id, project.path)
    has_webhook, failure = None, None
    if wants_webhook:
        variable = same.webhook_secret_env if same is not None else None
        variable = settings.gitlab.webhook_secret_env if variable is None else variable
        has_webhook, failure = _ensure_webhook(tokens, host, project.project_id, settings, variable)
    with database.write() as connection:
        lock_subject(connection, "repositories", organization_id)
        connected = repositories.of(connection, organization_id)
        same = _of(connected, project.project_id, project.path)
        if same is None:
            is_taken = any(other.name == project.path for other in connected)
            name = f"gitlab:{project.path}" if is_taken else project.path
            repository = Repository(name, "gitlab", project.path, project.url, project.project_id)
        elif same.path.lower() == project.path.lower():
            repository = replace(same, project_id=project.project_id or same.project_id)
        else:
            # The project was moved or renamed in GitLab; its id stays the same.
            repositories.remove(connection, organization_id, same.name)
            repository = replace(same, path=project.path, url=project.url)
        if has_webhook is not None:
            repository = replace(repository, webhook_configured=has_webhook)
        now, target = clock(), f"gitlab:{repository.path}"
        repositories.save(connection, organization_id, repository, now)
        if same is None:
            audit.record(connection, actor, "repository.onboard", now, target=target, organization_id=organization_id)
    return Outcome(is_new=same is None, repository=repository, webhook_failure=failure)


def _of(connected: Sequence[Repository], project_id: int | None, path: str | None) -> Repository | None:
    for repository in connected:
        is_same = project_id is not None and repository.project_id == project_id
        if repository.platform == "gitlab" and (is_same or repository.path.lower() == (path or "").lower()):
            return repository
    return None
