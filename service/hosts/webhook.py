"""The webhook of a GitLab project: there once, however often it is asked for, and never claimed when it is not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.hosts.gitlab_api import GitLabApi, GitLabRefusalError
from service.hosts.http import UnreachableError
from service.settings import GitLab

_CURES: Final = {
    401: "check the token of the GitLab host",
    403: "the token of the GitLab host needs the scope 'api' and the role Maintainer in the project",
    404: "the token of the GitLab host needs the role Maintainer in the project",
    422: "GitLab does not accept gitlab.webhook_url; it may refuse addresses of its own network",
}


@dataclass(frozen=True, slots=True)
class Webhook:
    """What is known of a project's webhook after it was asked for."""

    configured: bool | None
    """None: GitLab could not be asked, so it is as it was."""
    failure: str | None = None
    """Why it is not there or not known to be, with the cure."""


def ensure_webhook(api: GitLabApi, project_id: int, settings: GitLab, environment: Mapping[str, str]) -> Webhook:
    """Make a project's webhook be there, once and as configured."""
    secret = environment.get(settings.webhook_secret_env or "", "")
    if settings.webhook_secret_env is not None and not secret:
        return Webhook(
            configured=False, failure=f"the webhook needs its secret: {settings.webhook_secret_env} is not set"
        )
    if not api.has_token:
        return Webhook(configured=False, failure="the webhook needs a token: connect the GitLab host with --token-env")
    try:
        _settle(api, project_id, _fields(settings, secret))
    except GitLabRefusalError as error:
        cure = _CURES.get(error.status, "see GitLab's log")
        return Webhook(configured=False, failure=f"the webhook could not be set: {error}; {cure}")
    except UnreachableError as error:
        return Webhook(configured=None, failure=f"the webhook could not be set: GitLab cannot be reached: {error}")
    return Webhook(configured=True)


def _fields(settings: GitLab, secret: str) -> dict[str, Any]:
    # push_events is on unless it is switched off.
    events = {"push_events": False} | dict.fromkeys(settings.webhook_events, True)
    fields = {"url": settings.webhook_url, "enable_ssl_verification": True} | events
    return fields | ({"token": secret} if secret else {})


def _settle(api: GitLabApi, project_id: int, fields: Mapping[str, Any]) -> None:
    present = _ours(api, project_id, fields)
    if not present:
        api.add_hook(project_id, fields)
        # Whoever onboarded at the same moment made one as well: all who look agree on the oldest.
        present = _ours(api, project_id, fields)
    else:
        # GitLab does not show the secret, so whether it is the right one cannot be seen.
        api.change_hook(project_id, present[0], fields)
    for superfluous in present[1:]:
        _remove(api, project_id, superfluous)


def _ours(api: GitLabApi, project_id: int, fields: Mapping[str, Any]) -> list[int]:
    found = (one.get("id") for one in api.hooks(project_id) if one.get("url") == fields["url"])
    return sorted(number for number in found if isinstance(number, int))


def _remove(api: GitLabApi, project_id: int, hook_id: int) -> None:
    try:
        api.remove_hook(project_id, hook_id)
    except GitLabRefusalError as error:
        if error.status != 404:  # noqa: PLR2004 — gone already: another was quicker
            raise
