"""GitLab's API, as far as onboarding needs it: projects and their webhooks."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from service.hosts.access import token_of
from service.hosts.http import Answer, ask
from service.store.hosts import Host

_SUCCESS: Final = range(200, 300)
_PAGE: Final = 100
_MOST_PAGES: Final = 20


class GitLabRefusalError(Exception):
    """GitLab answered, and not with what was asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"GitLab answered {answer.status}{_message(answer.body)}")
        self.status = answer.status


class GitLabApi:
    """The API of one connected host; every method may also raise `UnreachableError`."""

    def __init__(self, host: Host, timeout_s: float) -> None:
        self._base = (host.api_url or "").rstrip("/")
        self._token = token_of(host)
        self._timeout_s = timeout_s

    @property
    def has_token(self) -> bool:
        """Whether the host's token is there; without it GitLab shows public projects only."""
        return self._token is not None

    def project(self, key: int | str) -> Mapping[str, Any]:
        """Return the project with an id or a path.

        Raises:
            GitLabRefusalError: There is none, or it is not shown to this token.
        """
        return self._document("GET", f"/projects/{quote(str(key), safe='')}")

    def hooks(self, project_id: int) -> Iterator[Mapping[str, Any]]:
        """Walk through a project's webhooks.

        Raises:
            GitLabRefusalError: The token may not see them.
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
            GitLabRefusalError: The token may not, or GitLab does not accept the address.
        """
        return self._document("POST", f"/projects/{project_id}/hooks", fields)

    def change_hook(self, project_id: int, hook_id: int, fields: Mapping[str, Any]) -> None:
        """Give a webhook these fields.

        Raises:
            GitLabRefusalError: The token may not, or GitLab does not accept the address.
        """
        self._ask("PUT", f"/projects/{project_id}/hooks/{hook_id}", fields)

    def remove_hook(self, project_id: int, hook_id: int) -> None:
        """Remove a webhook.

        Raises:
            GitLabRefusalError: The token may not, or it is gone.
        """
        self._ask("DELETE", f"/projects/{project_id}/hooks/{hook_id}")

    def _document(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer = self._ask(method, path, fields)
        if not isinstance(answer.body, dict):
            raise GitLabRefusalError(answer)
        return answer.body

    def _ask(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> Answer:
        headers = {"PRIVATE-TOKEN": self._token} if self._token else {}
        answer = ask(f"{self._base}{path}", self._timeout_s, headers=headers, method=method, document=fields)
        if answer.status not in _SUCCESS:
            raise GitLabRefusalError(answer)
        return answer


def _list(answer: Answer) -> list[object]:
    if not isinstance(answer.body, list):
        raise GitLabRefusalError(answer)
    return answer.body


def _message(body: object) -> str:
    said = body.get("message", body.get("error")) if isinstance(body, dict) else None
    text = "".join(mark for mark in str(said or "")[:200] if mark.isprintable())
    return f" ({text})" if text else ""
