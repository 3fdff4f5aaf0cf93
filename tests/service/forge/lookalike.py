"""What the look-alikes of forges share: a real HTTP server on loopback, accounts, pages, and a place to interfere."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.lab import Received, Respond, Server, Step

Hook = Callable[[Received], Step | None]


class RefusedError(Exception):
    """The forge's own refusal."""

    def __init__(self, status: int, document: Any) -> None:
        super().__init__(status)
        self.answer = Respond(status, document)


class Request:
    """A request, taken apart."""

    def __init__(self, received: Received, root: str) -> None:
        parts = urlsplit(received.target)
        self.method = received.method
        self.segments = [unquote(one) for one in parts.path.removeprefix(root).strip("/").split("/")]
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.headers = received.headers
        self.path = parts.path
        try:
            self.document: dict[str, Any] = json.loads(received.body or b"{}")
        except ValueError as error:
            raise RefusedError(400, {"message": "Problems parsing JSON"}) from error


class LookAlike:
    """Answers as a forge does; `before` and `after` may kill the caller, or answer in its place."""

    root = ""

    def __init__(self) -> None:
        self.accounts = {"bot-token": "runwarden-bot", "person-token": "ann"}
        """By their tokens."""
        self.branches = {"main": "a" * 40, "agent/fix-1": "b" * 40}
        """Where they are."""
        self.diff: dict[str, set[int]] = {"src/app.py": {1, 2, 3}}
        """Of every pull request: by path, the lines that it adds."""
        self.asked: list[str] = []
        """Method and path of each request, without the query."""
        self.before: Hook = lambda _: None
        """Called when nothing was done yet; a step is the answer, and nothing is done."""
        self.after: Hook = lambda _: None
        """Called when all was done; a step is the answer."""
        self.server = Server().start()
        self.server.otherwise = self._serve
        self.url = f"{self.server.origin}{self.root}"
        self._numbers = iter(range(1, 1_000_000))

    def close(self) -> None:
        self.server.close()

    def patch_of(self, path: str) -> str:
        """A patch that adds the lines of one file's diff, as an API shows it: without the file's names."""
        return "\n".join(f"@@ -{line},0 +{line},1 @@ def\n+added" for line in sorted(self.diff[path]))

    def number(self) -> int:
        return next(self._numbers)

    def account_of(self, headers: dict[str, str]) -> str:
        raise NotImplementedError

    def answer(self, request: Request, account: str) -> tuple[int, Any]:
        raise NotImplementedError

    def page_links(self, request: Request, page: int, *, has_next: bool) -> dict[str, str]:
        raise NotImplementedError

    def _serve(self, received: Received) -> Step:
        try:
            request = Request(received, self.root)
            self.asked.append(f"{request.method} {request.path}")
            early = self.before(received)
            if early is not None:
                return early
            status, document = self.answer(request, self.account_of(request.headers))
        except RefusedError as refusal:
            return self.after(received) or refusal.answer
        headers = {}
        if request.method == "GET" and isinstance(document, list):
            document, headers = self._page(request, document)
        return self.after(received) or Respond(status, document, headers)

    def _page(self, request: Request, found: list[Any]) -> tuple[list[Any], dict[str, str]]:
        size = min(100, int(request.query.get("per_page", "30")))
        page = int(request.query.get("page", "1"))
        has_next = page * size < len(found)
        return found[(page - 1) * size : page * size], self.page_links(request, page, has_next=has_next)
