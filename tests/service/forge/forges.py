"""A GitHub, a GitLab and a Forgejo on loopback, as far as their documentation goes: they refuse what the real ones do.

Forgejo's follows the API description and the routes of Forgejo 16.0.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

from service.forge.forgejo import Forgejo
from service.forge.github import GitHub
from service.forge.gitlab import GitLab
from tests.lab import Received, Respond, Server, Step

Hook = Callable[[Received], Step | None]
PROJECT = {"id": 42, "path_with_namespace": "acme/web", "http_url_to_repo": "http://gitlab.example/acme/web.git"}
_PARENT = {"base_sha": "a" * 40, "start_sha": "a" * 40}


class RefusedError(Exception):
    """The forge's own refusal: status and document."""


@dataclass
class Change:
    """A pull or merge request."""

    number: int
    url: str
    branch: str
    base: str
    title: str
    body: str
    author: str
    draft: bool
    head: str
    state: str = "open"
    """Or closed, or merged; its head stays as it is then."""
    is_fork: bool = False


@dataclass
class Note:
    """The text of a review, a comment on an issue, or the comment that begins a thread at a line."""

    id: int
    change: int
    """Its number, or the issue's."""
    body: str
    author: str
    path: str = ""
    line: int = 0
    resolved_by: str | None = None
    at: str = "9999-01-01T00:00:00Z"


class Forge(Server):
    """Answers as a forge does; `before` and `after` may kill the caller, or answer in its place."""

    root: ClassVar = ""
    address: ClassVar[str]
    """Where people see its changes."""
    exists_status: ClassVar[int]
    """What it answers where a branch has a change already."""
    page_size = 100

    def __init__(self) -> None:
        super().__init__()
        self.accounts = {"bot-token": "runwarden-bot", "person-token": "ann"}
        """By their tokens."""
        self.branches = {"main": "a" * 40, "agent/fix-1": "b" * 40}
        """Where they are."""
        self.diff: dict[str, set[int]] = {"src/app.py": {1, 2, 3}}
        """Of every change: by path, the lines that it adds."""
        self.changes: list[Change] = []
        self.statuses: list[tuple[str, str, dict[str, Any]]] = []
        """Commit, context and what was said, oldest first."""
        self.reviews: list[Note] = []
        self.threads: list[Note] = []
        self.issues = {7}
        """By their numbers."""
        self.comments: list[Note] = []
        """Those on issues."""
        self.before: Hook = lambda _: None
        """Called when nothing was done yet; a step is the answer, and nothing is done."""
        self.after: Hook = lambda _: None
        """Called when all was done; a step is the answer."""
        self.otherwise = self.serve
        self._numbers = (one for one in range(1, 1_000_000) if one not in self.issues)
        self.start()

    @property
    def url(self) -> str:
        return f"{self.origin}{self.root}"

    @property
    def asked(self) -> list[str]:
        """Method and path of each request, without the query."""
        return [f"{request.method} {request.path}" for request in self.requests]

    def patch_of(self, path: str) -> str:
        """A patch that adds the lines of one file's diff, as an API shows it: without the file's names."""
        return "\n".join(f"@@ -{line},0 +{line},1 @@ def\n+added" for line in sorted(self.diff[path]))

    def number(self) -> int:
        return next(self._numbers)

    def shown(self, sha: str) -> dict[str, str]:
        """Return what is shown beside a commit: of each context the newest."""
        return {context: said["state"] for commit, context, said in self.statuses if commit == sha}

    def add(self, branch: str, base: str, title: str, body: str, account: str, **more: Any) -> Change:
        """Add a change, also as a person would do it, or from a fork."""
        number, head = self.number(), self.branches.get(branch, "f" * 40)
        given = {"draft": False, "head": head} | more
        self.changes.append(
            Change(number, f"https://{self.address}/{number}", branch, base, title, body, account, **given)
        )
        return self.changes[-1]

    def account_of(self, headers: dict[str, str]) -> str:
        raise NotImplementedError

    def do(self, request: Received, account: str, given: dict[str, Any]) -> tuple[int, Any]:
        raise NotImplementedError

    def serve(self, received: Received) -> Step:
        early = self.before(received)
        if early is not None:
            return early
        for one in self.changes:
            if one.state == "open":
                one.head = self.branches.get(one.branch, one.head)
        headers = {}
        try:
            given = received.json() if received.body else {}
            status, document = self.do(received, self.account_of(received.headers), given)
        except RefusedError as refusal:
            status, document = refusal.args
        if received.method == "GET" and isinstance(document, list):
            document, headers = self.page(received, document)
        return self.after(received) or Respond(status, document, headers)

    def page(self, received: Received, document: list[Any], size_name: str = "per_page") -> tuple[Any, dict[str, str]]:
        """Return the page of a list that is asked for, and the headers that lead to the next one."""
        size = min(self.page_size, int(received.query.get(size_name, "30")))
        page = int(received.query.get("page", "1"))
        following = page + 1 if page * size < len(document) else None
        link = f'<{self.origin}{received.path}?page={following}>; rel="next"' if following else ""
        headers = {"Link": link, "X-Next-Page": str(following or "")}
        return document[(page - 1) * size : page * size], headers

    def segments(self, request: Received) -> list[str]:
        return [unquote(one) for one in request.path.removeprefix(self.root).strip("/").split("/")]

    def of_branch(self, branch: str) -> list[Change]:
        """Changes of a branch of any repository, newest first: the caller has to tell the forks from it."""
        return [one for one in reversed(self.changes) if one.branch == branch]

    def change(self, number: str) -> Change:
        made: Change = found(self.changes, lambda one: str(one.number) == number)
        return made

    def opened(self, account: str, title: str, branch: str, base: str, body: str, *, draft: bool) -> Change:
        if branch not in self.branches or base not in self.branches:
            raise RefusedError(self.exists_status, {"message": "Source branch or target branch does not exist"})
        if any(one.state == "open" and not one.is_fork for one in self.of_branch(branch)):
            raise RefusedError(self.exists_status, {"message": f"A request already exists for {branch}"})
        if self.branches[branch] == self.branches[base]:
            raise RefusedError(422, {"message": f"No commits between {base} and {branch}"})
        return self.add(branch, base, title, body, account, draft=draft)

    def note(self, change: Change, body: str, account: str, path: str = "", line: int = 0) -> Note:
        """Add a review, or with a path a thread."""
        made = Note(self.number(), change.number, body, account, path, line)
        (self.threads if path else self.reviews).append(made)
        return made

    def comments_of(self, number: str, since: str = "") -> list[Note]:
        issue = found([*self.issues], lambda one: str(one) == number)
        return [one for one in self.comments if one.change == issue and one.at >= since]

    def comment(self, number: str, body: str, account: str) -> Note:
        """Comment on an issue, also as a person would do it."""
        self.comments_of(number)
        self.comments.append(Note(self.number(), int(number), body, account))
        return self.comments[-1]

    def status(self, sha: str, state: str, states: set[str], text: str, longest: int) -> None:
        if sha not in self.branches.values():
            raise RefusedError(422, {"message": f"No commit found for SHA: {sha}"})
        if state not in states or len(text) > longest:
            raise RefusedError(422, {"message": f"Validation Failed: {state}, {len(text)} characters"})


class GitHubServer(Forge):
    """One repository, acme/api."""

    exists_status = 422
    address = "github.example/acme/api/pull"

    def account_of(self, headers: dict[str, str]) -> str:
        if "user-agent" not in headers:
            raise RefusedError(403, {"message": "Request forbidden by administrative rules."})
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in {"bearer", "token"} or token not in self.accounts:
            raise RefusedError(401, {"message": "Bad credentials"})
        return self.accounts[token]

    def do(self, request: Received, account: str, given: dict[str, Any]) -> tuple[int, Any]:
        match (request.method, *self.segments(request)):
            case ("GET", "user"):
                return 200, {"login": account}
            case ("POST", "graphql"):
                return 200, self._graphql(given, account)
            case (method, "repos", "acme", "api", *rest):
                return self._repository(method, rest, request, account, given)
        raise RefusedError(404, {"message": "Not Found"})

    def _repository(
        self, method: str, rest: list[str], request: Received, account: str, given: dict[str, Any]
    ) -> tuple[int, Any]:
        match (method, *rest):
            case ("GET", "pulls"):
                return 200, [self._shown(one) for one in self.of_branch(request.query["head"].partition(":")[2])]
            case ("POST", "pulls"):
                title, branch, base = (text(given, name) for name in ("title", "head", "base"))
                made = self.opened(
                    account, title, branch, base, given.get("body") or "", draft=given.get("draft", False)
                )
                return 201, self._shown(made)
            case ("GET", "issues", number, "comments"):
                return 200, [_comment(one) for one in self.comments_of(number, request.query["since"])]
            case ("POST", "issues", number, "comments"):
                return 201, _comment(self.comment(number, text(given, "body"), account))
            case ("PATCH", "issues", "comments", number):
                found(self.comments, lambda one: str(one.id) == number).body = text(given, "body")
                return 200, {}
            case ("GET", "pulls", number):
                return 200, self._shown(self.change(number))
            case ("PATCH", "pulls", number):
                self.change(number).body = text(given, "body")
                return 200, self._shown(self.change(number))
            case ("GET", "commits", sha, "statuses"):
                held = reversed([*enumerate(self.statuses)])
                return 200, [said | {"id": at} for at, (commit, _, said) in held if commit == sha]
            case ("POST", "statuses", sha):
                states = {"error", "failure", "pending", "success"}
                self.status(sha, given["state"], states, given.get("description") or "", 140)
                self.statuses.append((sha, given["context"], given))
                return 201, {}
            case ("GET", "pulls", number, "files"):
                return 200, [{"filename": path, "patch": self.patch_of(path)} for path in self.diff]
            case ("GET", "pulls", number, "reviews"):
                return 200, [_comment(one) for one in self.reviews if str(one.change) == number]
            case ("POST", "pulls", number, "reviews"):
                return 200, self._review(self.change(number), given, account)
            case ("PUT", "pulls", _, "reviews", review):
                found(self.reviews, lambda one: str(one.id) == review).body = text(given, "body")
                return 200, {}
        raise RefusedError(404, {"message": "Not Found"})

    def _shown(self, one: Change) -> dict[str, Any]:
        merged = {"merged_at": "now" if one.state == "merged" else None}
        head = {
            "ref": one.branch,
            "sha": one.head,
            "repo": {"full_name": f"{'mallory' if one.is_fork else 'acme'}/api"},
        }
        shown = {"number": one.number, "html_url": one.url, "title": one.title, "body": one.body, "draft": one.draft}
        base = {"ref": one.base, "sha": "a" * 40, "repo": {"full_name": "acme/api"}}
        return shown | merged | {"state": "open" if one.state == "open" else "closed", "head": head, "base": base}

    def _review(self, pull: Change, given: dict[str, Any], account: str) -> dict[str, Any]:
        comments = given.get("comments") or []
        if given.get("event") != "COMMENT" or not given.get("body"):
            raise RefusedError(422, {"message": "Unprocessable Entity"})
        for one in comments:
            lines = self.diff.get(text(one, "path"), set())
            if not text(one, "body") or not {one.get("line"), one.get("start_line", one.get("line"))} <= lines:
                raise RefusedError(422, {"message": "Unprocessable Entity", "errors": ["Line could not be resolved"]})
        if given["commit_id"] not in self.branches.values():
            raise RefusedError(422, {"message": "No commit found"})
        for one in comments:
            self.note(pull, one["body"], account, one["path"], one["line"])
        return {"id": self.note(pull, given.get("body") or "", account).id}

    def _graphql(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        query, variables = given.get("query", ""), given.get("variables", {})
        if query.count("{") != query.count("}"):
            return {"errors": [{"message": "Parse error on }"}]}
        if changed := re.search(r"\b(un)?resolveReviewThread\(", query):
            thread = next((one for one in self.threads if f"PRRT_{one.id}" == variables.get("id")), None)
            if thread is None:
                return {"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a node"}]}
            thread.resolved_by = account if changed[1] is None else None
            return {"data": {"resolveReviewThread": {"thread": {"id": variables["id"]}}}}
        if "reviewThreads(" not in query or (variables.get("owner"), variables.get("name")) != ("acme", "api"):
            return {"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a Repository"}]}
        threads = [self._thread(one) for one in self.threads if one.change == variables.get("number")]
        start, size = int(variables.get("after") or 0), int((re.search(r"first: (\d+)", query) or ["", "0"])[1])
        page = {"hasNextPage": len(threads) > start + size, "endCursor": str(start + size)}
        shown = {"pageInfo": page, "nodes": threads[start : start + size]}
        return {"data": {"repository": {"pullRequest": {"reviewThreads": shown}}}}

    def _thread(self, one: Note) -> dict[str, Any]:
        first = {"databaseId": one.id, "body": one.body, "author": {"login": one.author}}
        thread = {"id": f"PRRT_{one.id}", "path": one.path, "line": one.line, "comments": {"nodes": [first]}}
        resolved_by = {"login": one.resolved_by} if one.resolved_by else None
        return thread | {"isResolved": resolved_by is not None, "resolvedBy": resolved_by}


class GitLabForge(Forge):
    """One project, 42 at acme/web, visible to everybody; its webhooks to a Maintainer only."""

    root = "/api/v4"
    exists_status = 409
    address = "gitlab.example/acme/web/-/merge_requests"

    def __init__(self) -> None:
        super().__init__()
        self.projects: list[dict[str, Any]] = [dict(PROJECT)]
        self.maintainers = {"runwarden-bot"}
        self.hooks: list[dict[str, Any]] = []
        self.before_add = threading.Barrier(1)
        """Where a request that adds a webhook waits: with two parties, until another does so too."""
        self._lock = threading.Lock()

    def account_of(self, headers: dict[str, str]) -> str:
        token = headers.get("private-token")
        if token is not None and token not in self.accounts:
            raise RefusedError(401, {"message": "401 Unauthorized"})
        return "" if token is None else self.accounts[token]

    def do(self, request: Received, account: str, given: dict[str, Any]) -> tuple[int, Any]:
        match self.segments(request):
            case ["user"]:
                return 200, {"username": account}
            case ["projects", key]:
                return 200, self._project(key)
            case ["projects", key, "hooks", *place]:
                self._project(key)
                if account not in self.maintainers:
                    raise RefusedError(403 if account else 401, {"message": "not allowed"})
                return self._hooks(request.method, place, given)
            case ["projects", key, "merge_requests", number, *place]:
                self._project(key)
                return self._merge_request(request.method, self.change(number), place, given, account)
            case ["projects", key, *rest]:
                self._project(key)
                return self._of_project(rest, request, given, account)
        raise RefusedError(404, {"error": "404 Not Found"})

    def _project(self, key: str) -> Any:
        return found(self.projects, lambda one: key in {str(one["id"]), one["path_with_namespace"]})

    def _of_project(self, rest: list[str], request: Received, given: dict[str, Any], account: str) -> tuple[int, Any]:
        match (request.method, *rest):
            case ("GET", "merge_requests"):
                return 200, [self._shown(one) for one in self.of_branch(request.query["source_branch"])]
            case ("POST", "merge_requests"):
                title, branch, base = (text(given, name) for name in ("title", "source_branch", "target_branch"))
                is_draft = title.startswith("Draft: ")
                made = self.opened(account, title, branch, base, given.get("description") or "", draft=is_draft)
                return 201, self._shown(made)
            case ("GET", "issues", number, "notes"):
                return 200, [_note(one) for one in reversed(self.comments_of(number))]
            case ("POST", "issues", number, "notes"):
                return 201, _note(self.comment(number, text(given, "body"), account))
            case ("PUT", "issues", number, "notes", note):
                found(self.comments_of(number), lambda one: str(one.id) == note).body = text(given, "body")
                return 200, {}
            case ("POST", "statuses", sha):
                state, name = given["state"], given["name"]
                states = {"pending", "running", "success", "failed", "canceled"}
                self.status(sha, state, states, given.get("description") or "", 255)
                if self.shown(sha).get(name) == state:
                    reason = (
                        f"Cannot transition status via :{state} from :{state} (Reason(s): Status cannot transition)"
                    )
                    raise RefusedError(400, {"message": reason})
                self.statuses = [one for one in self.statuses if one[:2] != (sha, name)] + [(sha, name, given)]
                return 201, {}
            case ("GET", "repository", "commits", sha, "statuses"):
                return 200, [{"name": name, "status": state} for name, state in self.shown(sha).items()]
        raise RefusedError(404, {"error": "404 Not Found"})

    def _merge_request(
        self, method: str, change: Change, place: list[str], given: dict[str, Any], account: str
    ) -> tuple[int, Any]:
        match (method, *place):
            case ("GET",):
                return 200, self._shown(change)
            case ("PUT",):
                change.body = text(given, "description")
                return 200, self._shown(change)
            case ("GET", "notes"):
                notes = [one for one in (*self.reviews, *self.threads) if one.change == change.number]
                return 200, [_note(one) for one in reversed(notes)]
            case ("POST", "notes"):
                return 201, _note(self.note(change, text(given, "body"), account))
            case ("PUT", "notes", number):
                found(self.reviews, lambda one: str(one.id) == number).body = text(given, "body")
                return 200, {}
            case ("GET", "diffs"):
                return 200, [{"old_path": path, "new_path": path, "diff": self.patch_of(path)} for path in self.diff]
            case ("GET", "discussions"):
                threads = [one for one in self.threads if one.change == change.number]
                return 200, [{"id": f"{one.id:040x}", "notes": [_note(one)]} for one in threads]
            case ("POST", "discussions"):
                at = given.get("position") or {}
                is_known = at.get("new_line") in self.diff.get(at.get("new_path", ""), ())
                refs = _PARENT | {"head_sha": change.head, "position_type": "text"}
                if {key: at.get(key) for key in refs} != refs or not is_known:
                    raise RefusedError(400, {"message": "400 Bad request - Note {:line_code=>[must be valid]}"})
                return 201, _note(self.note(change, text(given, "body"), account, at["new_path"], at["new_line"]))
            case ("PUT", "discussions", key):
                thread = found(self.threads, lambda one: f"{one.id:040x}" == key)
                thread.resolved_by = account if given["resolved"] else None
                return 200, {}
        raise RefusedError(404, {"error": "404 Not Found"})

    def _shown(self, one: Change) -> dict[str, Any]:
        shown = {"iid": one.number, "web_url": one.url, "title": one.title, "description": one.body, "draft": one.draft}
        projects = {"source_project_id": 666 if one.is_fork else 42, "target_project_id": 42}
        refs = _PARENT | {"head_sha": one.head}
        state = "opened" if one.state == "open" else one.state
        branches = {"source_branch": one.branch, "target_branch": one.base}
        return shown | projects | branches | {"state": state, "sha": one.head, "diff_refs": refs}

    def _hooks(self, method: str, place: list[str], given: dict[str, Any]) -> tuple[int, Any]:
        # GitLab never shows the secret.
        if method == "GET":
            return 200, [{name: value for name, value in one.items() if name != "token"} for one in self.hooks]
        if method == "POST":
            self.before_add.wait(300)
            if "refused" in given["url"]:
                raise RefusedError(422, {"error": "Invalid url given"})
        with self._lock:
            if method == "POST":
                self.hooks.append({"id": 100 + self.number(), **given})
                return 201, {"id": self.hooks[-1]["id"]}
            hook = found(self.hooks, lambda one: str(one["id"]) == place[0])
            if method == "DELETE":
                self.hooks.remove(hook)
                return 204, b""
            hook.update(given)
            return 200, {}


def _comment(one: Note) -> dict[str, Any]:
    return {
        "id": one.id,
        "body": one.body,
        "user": {"login": one.author},
        "html_url": f"https://github.example/#{one.id}",
    }


@dataclass
class Review:
    """A review on Forgejo, with the numbers of its comments at lines; a pending one is seen by its author alone."""

    id: int
    change: int
    author: str
    state: str
    comments: list[int]


class ForgejoServer(Forge):
    """One repository, Acme/API, of an instance below a path; a token has scopes."""

    root = "/git/api/v1"
    exists_status = 409
    address = "git.example/git/Acme/API/pulls"
    page_size = 50

    def __init__(self) -> None:
        super().__init__()
        self.scopes = {"user", "repository", "issue"}
        self.submitted: list[Review] = []
        self.breaks_at = ""
        """The comment with this text breaks off the request that posts it."""
        self.resolves_at = "reviews"
        """Where comments are resolved: at their `reviews` (after 16.0), at `comments` (Gitea 1.26), nowhere (16.0)."""

    def account_of(self, headers: dict[str, str]) -> str:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in {"bearer", "token"} or token not in self.accounts:
            raise RefusedError(401, {"message": "user does not exist [uid: 0, name: ]"})
        return self.accounts[token]

    def page(self, received: Received, document: list[Any], size_name: str = "limit") -> tuple[Any, dict[str, str]]:
        total = {"X-Total-Count": str(len(document))}
        if "issues" in received.path:
            return document, total
        shown, headers = super().page(received, document, size_name)
        return shown, total if "reviews" in received.path else total | {"Link": headers["Link"]}

    def do(self, request: Received, account: str, given: dict[str, Any]) -> tuple[int, Any]:
        match (request.method, *self.segments(request)):
            case ("GET", "version"):
                return 200, {"version": "16.0.3+gitea-1.22.0"}
            case ("GET", "user"):
                self._needs("user")
                return 200, {"login": account}
            case (method, "repos", owner, name, *rest) if (owner.lower(), name.lower()) == ("acme", "api"):
                self._needs("issue" if rest[0] == "issues" else "repository")
                return self._repository(method, rest, request, account, given)
        raise RefusedError(404, {"message": "The target couldn't be found."})

    def _needs(self, scope: str) -> None:
        if scope not in self.scopes:
            reason = f"token does not have at least one of required scope(s): [write:{scope}]"
            raise RefusedError(403, {"message": reason})

    def _repository(
        self, method: str, rest: list[str], request: Received, account: str, given: dict[str, Any]
    ) -> tuple[int, Any]:
        match (method, *rest):
            case ("GET", "pulls"):
                wanted = request.query.get("state", "open")
                here = [one for one in reversed(self.changes) if wanted in {"all", self._state(one)}]
                return 200, [self._shown(one) for one in here]
            case ("POST", "pulls"):
                title, branch, base = (text(given, name) for name in ("title", "head", "base"))
                if not {branch, base} <= self.branches.keys():
                    raise RefusedError(404, {"message": "The target couldn't be found."})
                draft = title.startswith("WIP: ")
                return 201, self._shown(self.opened(account, title, branch, base, given.get("body", ""), draft=draft))
            case ("GET", "pulls", name) if name.endswith(".diff"):
                files = [f"diff --git a/{one} b/{one}\n--- a/{one}\n+++ b/{one}\n" for one in self.diff]
                return 200, "\n".join(head + self.patch_of(path) for head, path in zip(files, self.diff, strict=True))
            case ("GET", "pulls", number):
                return 200, self._shown(self.change(number))
            case ("PATCH", "pulls", number):
                self.change(number).body = text(given, "body")
                return 201, self._shown(self.change(number))
            case ("GET", "commits", sha, "statuses"):
                # Those of one second come in any order.
                held = [(at, said) for at, (commit, _, said) in enumerate(self.statuses) if commit == sha]
                names = {"state": "status"}
                return 200, [{"id": at} | {names.get(key, key): said[key] for key in said} for at, said in held]
            case ("POST", "statuses", sha):
                states = {"pending", "success", "error", "failure", "warning"}
                self.status(sha, given["state"], states, given.get("description") or "", 1000)
                self.statuses.append((sha, given["context"], given))
                return 201, {}
            case (_, "issues", *place):
                return self._comments(method, place, given | request.query, account)
            case (_, "pulls", number, "reviews", *place):
                return self._reviews(method, self.change(number), place, given, account)
            case ("POST", "pulls", "comments", comment, "resolve" | "unresolve" as word):
                return self._resolved(self.resolves_at == "comments", comment, word, account)
        raise RefusedError(404, {"message": "The target couldn't be found."})

    def _comments(self, method: str, place: list[str], given: dict[str, Any], account: str) -> tuple[int, Any]:
        match (method, *place):
            case ("GET", number, "comments") if int(number) in self.issues:
                return 200, [_comment(one) for one in self.comments_of(number, given["since"])]
            case ("POST", number, "comments") if int(number) in self.issues:
                return 201, _comment(self.comment(number, text(given, "body"), account))
            case ("GET", number, "comments"):
                return 200, [_comment(one) for one in self.reviews if one.change == self.change(number).number]
            case ("POST", number, "comments"):
                return 201, _comment(self.note(self.change(number), text(given, "body"), account))
            case ("PATCH", "comments", number):
                note = found([*self.reviews, *self.threads, *self.comments], lambda one: str(one.id) == number)
                note.body = text(given, "body")
                return 200, {}
        raise RefusedError(404, {"message": "The target couldn't be found."})

    def _reviews(
        self, method: str, change: Change, place: list[str], given: dict[str, Any], account: str
    ) -> tuple[int, Any]:
        own = [one for one in self.submitted if one.change == change.number]
        visible = [one for one in own if one.state != "PENDING" or one.author == account]
        match (method, *place):
            case ("GET",):
                return 200, [
                    {"id": one.id, "user": {"login": one.author}, "state": one.state, "body": ""}
                    | {"comments_count": len(one.comments)}
                    for one in visible
                ]
            case ("POST",):
                return 200, self._posted(change, visible, given, account)
            case ("DELETE", key):
                self.submitted.remove(gone := found(visible, lambda one: str(one.id) == key))
                self.threads = [one for one in self.threads if one.id not in gone.comments]
                return 204, b""
            case ("GET", key, "comments"):
                numbers = found(visible, lambda one: str(one.id) == key).comments
                return 200, [self._comment(one) for one in self.threads if one.id in numbers]
            case ("POST", key, "comments", comment, "resolve" | "unresolve" as word):
                found([one for one in visible if int(comment) in one.comments], lambda one: str(one.id) == key)
                return self._resolved(self.resolves_at == "reviews", comment, word, account)
        raise RefusedError(404, {"message": "The target couldn't be found."})

    def _posted(self, change: Change, visible: list[Review], given: dict[str, Any], account: str) -> dict[str, Any]:
        comments = given.get("comments") or []
        if given.get("event") != "COMMENT" or not (given.get("body") or comments):
            raise RefusedError(422, {"message": "review event COMMENT requires a body or a comment"})
        # Comments join a review that is still pending, and one that fails leaves it so.
        review = next((one for one in visible if one.state == "PENDING"), None)
        if review is None:
            review = Review(self.number(), change.number, account, "PENDING", [])
            self.submitted.append(review)
        for one in comments:
            assert one.keys() == {"path", "new_position", "body"}
            is_known = given["commit_id"] in self.branches.values()
            if not is_known or (self.breaks_at and self.breaks_at in one["body"]):
                raise RefusedError(500, {"message": ""})
            # A line outside the diff is accepted, and then shown without code.
            review.comments.append(self.note(change, text(one, "body"), account, one["path"], one["new_position"]).id)
        review.state = "COMMENT"
        return {"id": review.id}

    def _resolved(self, has_call: bool, comment: str, word: str, account: str) -> tuple[int, Any]:
        if not has_call:
            raise RefusedError(405, b"")
        thread = found(self.threads, lambda one: str(one.id) == comment)
        thread.resolved_by = account if word == "resolve" else None
        return 200, {}

    def _comment(self, one: Note) -> dict[str, Any]:
        resolver = {"login": one.resolved_by} if one.resolved_by else None
        shown = {"id": one.id, "body": one.body, "user": {"login": one.author}, "resolver": resolver}
        return shown | {"path": one.path, "position": one.line, "original_position": 0}

    def _state(self, one: Change) -> str:
        return "open" if one.state == "open" else "closed"

    def _shown(self, one: Change) -> dict[str, Any]:
        fork = "mallory" if one.is_fork else "Acme"
        return {
            "number": one.number,
            "html_url": one.url,
            "title": one.title,
            "body": one.body,
            "draft": one.draft,
            "state": self._state(one),
            "merged": one.state == "merged",
            "merged_at": "2026-01-31T08:00:00Z" if one.state == "merged" else None,
            "labels": [],
            "head": {"label": one.branch, "ref": one.branch, "sha": one.head, "repo": {"full_name": f"{fork}/API"}},
            "base": {"label": one.base, "ref": one.base, "sha": "a" * 40, "repo": {"full_name": "Acme/API"}},
        }


def _note(one: Note) -> dict[str, Any]:
    note = {"id": one.id, "body": one.body, "author": {"username": one.author}, "system": False, "type": None}
    note["created_at"] = one.at
    at = {"type": "DiffNote", "position": {"new_path": one.path, "new_line": one.line}} if one.path else {}
    resolved_by = {"username": one.resolved_by} if one.resolved_by else None
    return note | at | {"resolved": resolved_by is not None, "resolved_by": resolved_by}


def found(there: list[Any], is_it: Callable[[Any], bool]) -> Any:
    """Return the one that is asked for, or refuse as both forges do."""
    for one in there:
        if is_it(one):
            return one
    raise RefusedError(404, {"message": "404 Not Found"})


def text(given: dict[str, Any], name: str) -> str:
    """Return a field that has to be a text with something in it."""
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedError(422, {"message": f"Validation Failed: {name} is missing"})
    return value


def client_of(server: Forge, token: str = "bot-token") -> GitHub | GitLab:
    """Return a client of a forge."""
    if isinstance(server, ForgejoServer):
        return Forgejo(server.url, "Acme/API", token, 120)
    if isinstance(server, GitHubServer):
        return GitHub(server.url, "acme/api", token, 120)
    return GitLab(server.url, "acme/web", token, 120)
