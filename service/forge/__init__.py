"""The forge: pull requests, statuses and reviews on code hosts, made by the service on behalf of agents.

The code hosts share the values that they exchange, requests, and failures, which are here. Every method of theirs
may raise `ForgeError`; repeating a change does no harm.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

from service.errors import ServiceError
from service.hosts import LIMITED, AnswerTooLargeError, HostResponse, HostUnreachableError, ask

State = Literal["pending", "success", "failure", "error"]
PullState = Literal["open", "closed", "merged"]
_FAULTS: Final = range(500, 600)
_MAY_CHANGE: Final = frozenset({401, 403, 404, 408, 409, 423, 425, 429})
"""Statuses that an operator's act or a later attempt may fix; any other 4xx is final."""
_FIXES: Final = {
    401: "; check the token of the connected host",
    403: "; the token of the connected host lacks a permission",
    404: "; the token of the connected host may not see it, or it is gone",
}
_PAGE: Final = 50
_MAX_PAGES: Final = 40
_MAX_ANSWER_BYTES: Final = 8 << 20
"""The largest answer in bytes: fifty pull requests with long texts."""
_HUNK: Final = re.compile(r"@@ -[0-9,]+ \+([0-9]+)")


class ForgeError(ServiceError):
    """A request to the forge failed; the text has the reason and the fix."""

    def __init__(
        self,
        text: str,
        *,
        status: int | None = None,
        is_final: bool = False,
        is_unreachable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        """The answer's status; None: no usable answer came."""
        self.is_final = is_final
        """Whether another attempt would fail as well."""
        self.is_unreachable = is_unreachable
        """Whether the forge did not answer at all."""
        self.retry_after_s = retry_after_s
        """The wait that the forge asked for; None: it asked for none."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request (GitHub) or merge request (GitLab)."""

    number: int
    url: str
    state: PullState
    body: str
    head: str
    """The commit at its head."""
    branch: str
    base: str
    is_fork: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReviewComment:
    """A comment on an added line of a pull request's diff: the forges refuse lines that the diff does not show."""

    path: str
    line: int
    body: str
    start_line: int | None = None
    """The first line, if the comment covers several."""


@dataclass(frozen=True, slots=True)
class PostedText:
    """A text about a whole pull request, or a comment on an issue: the body of a review, a comment, or a note."""

    path: str
    """Its path in the API."""
    body: str
    author: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A discussion at a line of the diff."""

    id: str
    path: str
    line: int | None
    """The line; None: it is no longer in the diff."""
    body: str
    """The text of its first comment."""
    author: str
    is_resolved: bool
    resolved_by: str | None


class ForgeHttp:
    """Sends requests to one forge's API; a failure is a `ForgeError` that explains it."""

    def __init__(self, name: str, base: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._name = name
        self._base = base.rstrip("/")
        self._headers = headers
        self._timeout_s = timeout_s

    def document(self, method: str, path: str, document: object = None) -> Mapping[str, Any]:
        """Return the JSON object of a successful answer."""
        body = self.answer(method, path, document).body
        if not isinstance(body, dict):
            raise ForgeError(f"{self._name} answered something else than a JSON object; check the host's API address")
        return body

    def pages(self, path: str, **query: str) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, page by page; one without a last page is a failure."""
        seen = 0
        for page in range(1, _MAX_PAGES + 1):
            # Forgejo calls the size of a page its limit.
            parameters = urlencode({**query, "per_page": _PAGE, "limit": _PAGE, "page": page})
            answer = self.answer("GET", f"{path}?{parameters}")
            rows, headers = answer.body, answer.headers
            if not isinstance(rows, list):
                raise ForgeError(f"{self._name} answered something else than a list; check the host's API address")
            yield from (row for row in rows if isinstance(row, dict))
            seen += len(rows)
            has_next = 'rel="next"' in headers.get("link", "") or headers.get("x-next-page", "").isdecimal()
            # Some of Forgejo's lists come without links.
            total = headers.get("x-total-count", "")
            if not has_next and not (rows and total.isdecimal() and seen < int(total)):
                return
        raise ForgeError(f"{self._name} has more than {_MAX_PAGES * _PAGE} entries under {path}", is_final=True)

    def answer(self, method: str, path: str, document: object = None) -> HostResponse:
        url = f"{self._base}{path}" if path.startswith("/") else path
        try:
            answer = ask(
                url, self._timeout_s, headers=self._headers, method=method, document=document, largest=_MAX_ANSWER_BYTES
            )
        except AnswerTooLargeError as error:
            raise ForgeError(str(error), is_final=True) from error
        except HostUnreachableError as error:
            raise ForgeError(f"{self._name} cannot be reached: {error}", is_unreachable=True) from error
        if answer.is_success:
            return answer
        status, wait_s = answer.status, answer.wait_s
        is_limit = status in LIMITED and wait_s is not None
        fix = "; its rate limit is spent" if is_limit else _FIXES.get(status, "")
        text = f"{self._name} answered {status}{answer.reason}{fix}"
        is_final = status not in _MAY_CHANGE and status not in _FAULTS
        raise ForgeError(text, status=status, is_final=is_final, retry_after_s=wait_s)


def shown_lines(patch: str, *, with_context: bool) -> frozenset[int]:
    """Return the lines of the new file that a patch adds; `with_context`: all that it shows."""
    lines, line = set(), 0
    for text in patch.split("\n"):
        if hunk := _HUNK.match(text):
            line = int(hunk[1])
        elif text[:1] in {"+", " "}:
            if with_context or text[0] == "+":
                lines.add(line)
            line += 1
    return frozenset(lines)


def cut(text: str, limit: int) -> str:
    """Return the text, cut with an ellipsis if it is longer than the limit."""
    return text if len(text) <= limit else text[: limit - 2].rstrip() + " …"
