"""A GitHub, a GitLab and a Forgejo on loopback, which refuse what the real ones refuse.

Forgejo's follows the API description and the routes of Forgejo 16.0.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

from service.forge.handlers import FORGES
from service.forge.handlers import Forge as Client
from tests.lab import Received, Respond, Server, Step

Hook = Callable[[Received], Step | None]
PROJECT = {"id": 42, "path_with_namespace": "acme/web", "http_url_to_repo": "http://gitlab.example/acme/web.git"}
_PARENT = {"base_sha": "a" * 40, "start_sha": "a" * 40}


class RefusedError(Exception):
    """The forge's own refusal: status and message."""


@dataclass
class Change:
    """A pull or merge request."""

    number: int
    url: str
    branch: str
    base: str
    title: str
    body: str
    head: str
    draft: bool = False
    state: str = "open"
    """Or closed, or merged; its head then no longer changes."""
    is_fork: bool = False


@dataclass
class Note:
    """The text of a review, a comment on an issue, or the comment that begins a thread at a line."""

    id: int
    subject: int
    """The number of the change or the issue."""
    body: str
    author: str
    path: str = ""
    line: int = 0
    resolved_by: str | None = None
    at: str = "9999-01-01T00:00:00Z"


class Forge(Server):
    """Answers as a forge does; `before` and `after` may kill the caller, or replace the answer.

    A subclass has `account_of` (a request's headers) and `do`, which answers a method and path parts.
    """

    platform: ClassVar[str]
    path: ClassVar[str]
    """The name of its repository."""
    site: ClassVar[str]
    """The web address of its repository."""
    root: ClassVar = ""
    exists_status: ClassVar[int]
    """The answer to a second change of a branch."""
    states: ClassVar = {"error", "failure", "pending", "success"}
    longest_description: ClassVar[int]
    page_size = 100

    def __init__(self) -> None:
        super().__init__()
        self.accounts = {"bot-token": "runwarden-bot", "person-token": "ann"}
        """The accounts by their tokens."""
        self.branches = {"main": "a" * 40, "agent/fix-1": "b" * 40}
        self.diff: dict[str, set[int]] = {"src/app.py": {1, 2, 3}}
        """The lines that every change adds, by path."""
        self.changes: list[Change] = []
        self.statuses: list[tuple[str, str, dict[str, Any]]] = []
        """Commit, context and the request, oldest first."""
        self.reviews: list[Note] = []
        self.threads: list[Note] = []
        self.issues = {7}
        self.comments: list[Note] = []
        """The comments on issues."""
        self.before: Hook = lambda _: None
        """Called before anything is done; a returned step is the answer, and nothing is done."""
        self.after: Hook = lambda _: None
        """Called when all is done; a returned step replaces the answer."""
        self.otherwise = self.serve
        self._numbers = (number for number in range(1, 1_000_000) if number not in self.issues)
        self.start()

    @property
    def url(self) -> str:
        return f"{self.origin}{self.root}"

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def client(self, token: str = "bot-token") -> Client:
        return FORGES[self.platform](self.url, self.path, token, 120)

    def patch_of(self, path: str) -> str:
        """Return a patch that adds the lines of one file's diff in an API's form, without the file's names."""
        return "\n".join(f"@@ -{line},0 +{line},1 @@ def\n+added" for line in sorted(self.diff[path]))

    def number(self) -> int:
        return next(self._numbers)

    def shown(self, sha: str) -> dict[str, str]:
        """Return the statuses next to a commit: the newest of each context."""
        return {context: status["state"] for commit, context, status in self.statuses if commit == sha}

    def serve(self, received: Received) -> Step:
        early = self.before(received)
        if early is not None:
            return early
        for change in self.changes:
            if change.state == "open":
                change.head = self.branches.get(change.branch, change.head)
        parts = [unquote(part) for part in received.path.removeprefix(self.root).strip("/").split("/")]
        fields = (received.json() if received.body else {}) | received.query
        try:
            document = self.do(self.account_of(received.headers), fields, received.method, *parts)
            answer = Respond(200, *self.page(received, document))
        except RefusedError as refusal:
            status, message = refusal.args
            answer = Respond(status, {"message": message})
        return self.after(received) or answer

    def page(self, received: Received, document: Any, size_name: str = "per_page") -> tuple[Any, dict[str, str]]:
        """Return the requested page of a list, and the headers that lead to the next one."""
        if received.method != "GET" or not isinstance(document, list):
            return document, {}
        size = min(self.page_size, int(received.query.get(size_name, "30")))
        page = int(received.query.get("page", "1"))
        following = page + 1 if page * size < len(document) else None
        link = f'<{self.origin}{received.path}?page={following}>; rel="next"' if following else ""
        headers = {"Link": link, "X-Next-Page": str(following or "")}
        return document[(page - 1) * size : page * size], headers

    def of_branch(self, branch: str) -> list[Change]:
        """Changes of a branch of any repository, newest first; the caller must exclude forks."""
        return [change for change in reversed(self.changes) if change.branch == branch]

    def change(self, number: str) -> Change:
        change: Change = find(self.changes, lambda known: str(known.number) == number)
        return change

    def add(self, branch: str, base: str, title: str, body: str = "", **more: Any) -> Change:
        """Add a change, by the service, by a user, or from a fork."""
        number, head = self.number(), self.branches.get(branch, "f" * 40)
        self.changes.append(Change(number, f"{self.site}/{number}", branch, base, title, body, head, **more))
        return self.changes[-1]

    def opened(self, branch: str, base: str, title: str, body: str, *, draft: bool = False) -> Change:
        if not title or branch not in self.branches or base not in self.branches:
            raise RefusedError(422, "Source branch or target branch does not exist")
        if any(change.state == "open" and not change.is_fork for change in self.of_branch(branch)):
            raise RefusedError(self.exists_status, f"A request already exists for {branch}")
        if self.branches[branch] == self.branches[base]:
            raise RefusedError(422, f"No commits between {base} and {branch}")
        return self.add(branch, base, title, body, draft=draft or title.startswith(("Draft: ", "WIP: ")))

    def note(self, to: list[Note], subject: int, body: str, account: str, path: str = "", line: int = 0) -> Note:
        if not body:
            raise RefusedError(422, "Validation Failed: body is missing")
        to.append(Note(self.number(), subject, body, account, path, line))
        return to[-1]

    def notes_of(self, number: str, since: str = "") -> list[Note]:
        """Texts about an issue or a whole change."""
        find([*self.issues, *(change.number for change in self.changes)], lambda known: str(known) == number)
        return [note for note in (*self.comments, *self.reviews) if str(note.subject) == number and note.at >= since]

    def comment(self, number: str, body: str, account: str) -> Note:
        """Comment on an issue or a whole change, as the service or as a user."""
        self.notes_of(number)
        return self.note(self.comments if int(number) in self.issues else self.reviews, int(number), body, account)

    def edit(self, number: str, body: str) -> None:
        notes = [*self.reviews, *self.threads, *self.comments]
        find(notes, lambda note: str(note.id) == number).body = body

    def set_status(self, sha: str, context: str, fields: dict[str, Any]) -> None:
        if sha not in self.branches.values():
            raise RefusedError(422, f"No commit found for SHA: {sha}")
        if fields["state"] not in self.states or len(fields["description"]) > self.longest_description:
            raise RefusedError(422, "Validation Failed")
        self.statuses.append((sha, context, fields))


class GitHubServer(Forge):
    """A GitHub with one repository, acme/api."""

    platform = "github"
    path = "acme/api"
    site = "https://github.example/acme/api"
    exists_status = 422
    longest_description = 140

    def account_of(self, headers: dict[str, str]) -> str:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.accounts:
            raise RefusedError(401, "Bad credentials")
        return self.accounts[token]

    def do(self, account: str, fields: dict[str, Any], *call: str) -> Any:
        match call:
            case ("GET", "user"):
                return {"login": account}
            case ("POST", "graphql"):
                return self._graphql(fields["query"], fields["variables"], account)
            case (method, "repos", owner, name, *rest) if f"{owner}/{name}".lower() == self.path.lower():
                return self.repository(account, fields, method, *rest)
        raise RefusedError(404, "Not Found")

    def repository(self, account: str, fields: dict[str, Any], *call: str) -> Any:
        match call:
            case ("GET", "pulls"):
                return [self.pull(change) for change in self.of_branch(fields["head"].partition(":")[2])]
            case ("POST", "pulls"):
                names = ("head", "base", "title", "body")
                return self.pull(self.opened(*(fields[name] for name in names), draft=fields["draft"]))
            case ("GET" | "PATCH", "pulls", number):
                change = self.change(number)
                change.body = fields.get("body", change.body)
                return self.pull(change)
            case ("GET", "issues", number, "comments"):
                return [self._comment(note) for note in self.notes_of(number, fields.get("since", ""))]
            case ("POST", "issues", number, "comments"):
                return self._comment(self.comment(number, fields["body"], account))
            case ("PATCH", "issues", "comments", number) | ("PUT", "pulls", _, "reviews", number):
                return self.edit(number, fields["body"]) or {}
            case ("GET", "commits", sha, "statuses"):
                statuses = reversed([*enumerate(self.statuses)])
                return [status | {"id": at} for at, (commit, _, status) in statuses if commit == sha]
            case ("POST", "statuses", sha):
                return self.set_status(sha, fields["context"], fields) or {}
            case ("GET", "pulls", number, "files"):
                return [{"filename": path, "patch": self.patch_of(path)} for path in self.diff]
            case ("GET", "pulls", number, "reviews"):
                return [self._comment(note) for note in self.notes_of(number)]
            case ("POST", "pulls", number, "reviews"):
                return self._review(self.change(number), fields, account)
        raise RefusedError(404, "Not Found")

    def pull(self, change: Change) -> dict[str, Any]:
        owner, _, name = self.path.partition("/")
        head = {"full_name": f"{'mallory' if change.is_fork else owner}/{name}"}
        return {
            "number": change.number,
            "html_url": change.url,
            "title": change.title,
            "body": change.body,
            "draft": change.draft,
            "state": "open" if change.state == "open" else "closed",
            "merged_at": "2026-01-31T08:00:00Z" if change.state == "merged" else None,
            "head": {"ref": change.branch, "sha": change.head, "repo": head},
            "base": {"ref": change.base, "sha": "a" * 40, "repo": {"full_name": self.path}},
        }

    def _comment(self, note: Note) -> dict[str, Any]:
        where = f"https://github.example/#{note.id}"
        return {"id": note.id, "body": note.body, "user": {"login": note.author}, "html_url": where}

    def _review(self, pull: Change, fields: dict[str, Any], account: str) -> dict[str, Any]:
        comments = fields["comments"]
        for comment in comments:
            lines = self.diff.get(comment["path"], set())
            if not {comment["line"], comment.get("start_line", comment["line"])} <= lines:
                raise RefusedError(422, "Unprocessable Entity: line could not be resolved")
        if fields["commit_id"] not in self.branches.values() or fields["event"] != "COMMENT":
            raise RefusedError(422, "No commit found")
        for comment in comments:
            self.note(self.threads, pull.number, comment["body"], account, comment["path"], comment["line"])
        return {"id": self.note(self.reviews, pull.number, fields["body"], account).id}

    def _graphql(self, query: str, variables: dict[str, Any], account: str) -> dict[str, Any]:
        if changed := re.search(r"\b(un)?resolveReviewThread\(", query):
            thread = find(self.threads, lambda thread: f"PRRT_{thread.id}" == variables["id"])
            thread.resolved_by = account if changed[1] is None else None
            return {"data": {"resolveReviewThread": {"thread": {"id": variables["id"]}}}}
        assert (variables["owner"], variables["name"]) == ("acme", "api")
        threads = [self._thread(thread) for thread in self.threads if thread.subject == variables["number"]]
        start, size = int(variables["after"] or 0), int(re.findall(r"first: (\d+)", query)[0])
        page = {"hasNextPage": len(threads) > start + size, "endCursor": str(start + size)}
        shown = {"pageInfo": page, "nodes": threads[start : start + size]}
        return {"data": {"repository": {"pullRequest": {"reviewThreads": shown}}}}

    def _thread(self, thread: Note) -> dict[str, Any]:
        first = {"databaseId": thread.id, "body": thread.body, "author": {"login": thread.author}}
        resolved_by = {"login": thread.resolved_by} if thread.resolved_by else None
        shown = {"id": f"PRRT_{thread.id}", "path": thread.path, "line": thread.line, "comments": {"nodes": [first]}}
        return shown | {"isResolved": resolved_by is not None, "resolvedBy": resolved_by}


@dataclass
class Review:
    """A review on Forgejo, with the numbers of its comments at lines; only its author sees a pending one."""

    id: int
    subject: int
    author: str
    state: str
    comments: list[int]


class ForgejoServer(GitHubServer):
    """A Forgejo with one repository, Acme/API, below a path."""

    platform = "forgejo"
    path = "Acme/API"
    site = "https://git.example/git/Acme/API"
    root = "/git/api/v1"
    exists_status = 409
    longest_description = 1000
    page_size = 50

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[Review] = []
        self.breaks_at = ""
        """The comment with this text aborts the request that posts it."""
        self.resolves = True
        """Whether a call resolves comments, as after 16.0."""

    def page(self, received: Received, document: Any, size_name: str = "limit") -> tuple[Any, dict[str, str]]:
        if not isinstance(document, list):
            return document, {}
        total = {"X-Total-Count": str(len(document))}
        if "issues" in received.path:
            return document, total
        shown, headers = super().page(received, document, size_name)
        return shown, total if "reviews" in received.path else total | {"Link": headers["Link"]}

    def repository(self, account: str, fields: dict[str, Any], *call: str) -> Any:
        match call:
            case ("GET", "pulls"):
                pulls = [self.pull(change) for change in reversed(self.changes)]
                return [pull for pull in pulls if pull["state"] == fields["state"]]
            case ("GET", "pulls", name) if name.endswith(".diff"):
                files = [f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n" for path in self.diff]
                text = "\n".join(head + self.patch_of(path) for head, path in zip(files, self.diff, strict=True))
                return text.encode()
            case ("GET", "commits", *_):
                # Those of one second come in any order.
                statuses = super().repository(account, fields, *call)
                return [status | {"status": status["state"], "state": None} for status in reversed(statuses)]
            case (method, "pulls", number, "reviews", *place):
                return self._reviews(self.change(number), fields, account, method, *place)
        return super().repository(account, fields, *call)

    def _reviews(self, change: Change, fields: dict[str, Any], account: str, *call: str) -> Any:
        own = [review for review in self.submitted if review.subject == change.number]
        visible = [review for review in own if review.state != "PENDING" or review.author == account]
        match call:
            case ("GET",):
                return [
                    {"id": review.id, "state": review.state, "comments_count": len(review.comments)}
                    for review in visible
                ]
            case ("POST",):
                return self._posted(change, visible, fields, account)
            case ("DELETE", key):
                self.submitted.remove(gone := find(visible, lambda review: str(review.id) == key))
                self.threads = [thread for thread in self.threads if thread.id not in gone.comments]
                return b""
            case ("GET", key, "comments"):
                numbers = find(visible, lambda review: str(review.id) == key).comments
                return [self._at_line(thread) for thread in self.threads if thread.id in numbers]
            case ("POST", _, "comments", comment, "resolve" | "unresolve" as word) if self.resolves:
                thread = find(self.threads, lambda thread: str(thread.id) == comment)
                thread.resolved_by = account if word == "resolve" else None
                return {}
        raise RefusedError(404, "The target couldn't be found.")

    def _posted(self, change: Change, visible: list[Review], fields: dict[str, Any], account: str) -> dict[str, Any]:
        # Comments join a pending review, and a failing one leaves it pending.
        review = next((review for review in visible if review.state == "PENDING"), None)
        if review is None:
            review = Review(self.number(), change.number, account, "PENDING", [])
            self.submitted.append(review)
        for comment in fields["comments"]:
            is_broken = self.breaks_at and self.breaks_at in comment["body"]
            if is_broken or fields["commit_id"] not in self.branches.values():
                raise RefusedError(500, "")
            # A line outside the diff is accepted, and then shown without code.
            at = comment["path"], comment["new_position"]
            review.comments.append(self.note(self.threads, change.number, comment["body"], account, *at).id)
        review.state = fields["event"]
        return {"id": review.id}

    def _at_line(self, thread: Note) -> dict[str, Any]:
        resolver = {"login": thread.resolved_by} if thread.resolved_by else None
        return self._comment(thread) | {"resolver": resolver, "path": thread.path, "position": thread.line}


class GitLabForge(Forge):
    """A GitLab with one public project, 42 at acme/web; only a Maintainer sees its webhooks."""

    platform = "gitlab"
    path = "acme/web"
    site = "https://gitlab.example/acme/web"
    root = "/api/v4"
    exists_status = 409
    states: ClassVar = {"pending", "running", "success", "failed", "canceled"}
    longest_description = 255

    def __init__(self) -> None:
        super().__init__()
        self.projects: list[dict[str, Any]] = [dict(PROJECT)]
        self.maintainers = {"runwarden-bot"}
        self.hooks: list[dict[str, Any]] = []
        self.before_add = threading.Barrier(1)
        """A request that adds a webhook waits here; with two parties, until another one does too."""
        self._lock = threading.Lock()

    def account_of(self, headers: dict[str, str]) -> str:
        token = headers.get("private-token")
        if token is not None and token not in self.accounts:
            raise RefusedError(401, "401 Unauthorized")
        return "" if token is None else self.accounts[token]

    def do(self, account: str, fields: dict[str, Any], *call: str) -> Any:
        if call[1:] == ("user",):
            return {"username": account}
        if call[1] != "projects":
            raise RefusedError(404, "404 Not Found")
        method, _, key, *rest = call
        project = find(self.projects, lambda project: key in {str(project["id"]), project["path_with_namespace"]})
        match (method, *rest):
            case ("GET",):
                return project
            case (_, "hooks", *place):
                if account not in self.maintainers:
                    raise RefusedError(403 if account else 401, "not allowed")
                return self._hooks(method, place, fields)
            case ("GET", "merge_requests"):
                return [self._merge_request(change) for change in self.of_branch(fields["source_branch"])]
            case ("POST", "merge_requests"):
                names = ("source_branch", "target_branch", "title", "description")
                return self._merge_request(self.opened(*(fields[name] for name in names)))
            case ("GET" | "PUT", "merge_requests", number):
                change = self.change(number)
                change.body = fields.get("description", change.body)
                return self._merge_request(change)
            case ("GET", "merge_requests", _, "diffs"):
                return [{"old_path": path, "new_path": path, "diff": self.patch_of(path)} for path in self.diff]
            case (_, "merge_requests", number, "discussions", *place):
                return self._discussions(method, self.change(number), place, fields, account)
            case ("GET", "issues" | "merge_requests", number, "notes"):
                threads = [thread for thread in self.threads if str(thread.subject) == number]
                return [_note(note) for note in reversed([*self.notes_of(number), *threads])]
            case ("POST", "issues" | "merge_requests", number, "notes"):
                return _note(self.comment(number, fields["body"], account))
            case ("PUT", "issues" | "merge_requests", _, "notes", note):
                return self.edit(note, fields["body"]) or {}
            case ("POST", "statuses", sha):
                state, name = fields["state"], fields["name"]
                if self.shown(sha).get(name) == state:
                    reason = "Reason(s): Status cannot transition"
                    raise RefusedError(400, f"Cannot transition status via :{state} from :{state} ({reason})")
                self.set_status(sha, name, fields)
                others = [status for status in self.statuses[:-1] if status[:2] != (sha, name)]
                self.statuses = [*others, self.statuses[-1]]
                return {}
            case ("GET", "repository", "commits", sha, "statuses"):
                return [{"name": name, "status": state} for name, state in self.shown(sha).items()]
        raise RefusedError(404, "404 Not Found")

    def _discussions(self, method: str, change: Change, place: list[str], fields: dict[str, Any], account: str) -> Any:
        if method == "GET":
            threads = [thread for thread in self.threads if thread.subject == change.number]
            return [{"id": f"{thread.id:040x}", "notes": [_note(thread)]} for thread in threads]
        if method == "PUT":
            thread = find(self.threads, lambda thread: f"{thread.id:040x}" == place[0])
            thread.resolved_by = account if fields["resolved"] else None
            return {}
        at = fields["position"]
        path, line = at["new_path"], at["new_line"]
        refs = _PARENT | {"head_sha": change.head, "position_type": "text"}
        if refs.items() - at.items() or line not in self.diff.get(path, ()):
            raise RefusedError(400, "400 Bad request - Note {:line_code=>[must be valid]}")
        return _note(self.note(self.threads, change.number, fields["body"], account, path, line))

    def _merge_request(self, change: Change) -> dict[str, Any]:
        return {
            "iid": change.number,
            "web_url": change.url,
            "title": change.title,
            "description": change.body,
            "draft": change.draft,
            "source_project_id": 666 if change.is_fork else 42,
            "target_project_id": 42,
            "source_branch": change.branch,
            "target_branch": change.base,
            "state": "opened" if change.state == "open" else change.state,
            "sha": change.head,
            "diff_refs": _PARENT | {"head_sha": change.head},
        }

    def _hooks(self, method: str, place: list[str], fields: dict[str, Any]) -> Any:
        # GitLab never shows the secret.
        if method == "GET":
            return [{name: value for name, value in hook.items() if name != "token"} for hook in self.hooks]
        if method == "POST":
            self.before_add.wait(300)
            if "refused" in fields["url"]:
                raise RefusedError(422, "Invalid url given")
        with self._lock:
            if method == "POST":
                self.hooks.append({"id": 100 + self.number(), **fields})
                return {"id": self.hooks[-1]["id"]}
            hook = find(self.hooks, lambda hook: str(hook["id"]) == place[0])
            if method == "DELETE":
                self.hooks.remove(hook)
            else:
                hook.update(fields)
            return {}


def _note(note: Note) -> dict[str, Any]:
    document = {"id": note.id, "body": note.body, "author": {"username": note.author}, "system": False, "type": None}
    at = {"type": "DiffNote", "position": {"new_path": note.path, "new_line": note.line}} if note.path else {}
    resolved_by = {"username": note.resolved_by} if note.resolved_by else None
    return document | at | {"created_at": note.at, "resolved": resolved_by is not None, "resolved_by": resolved_by}


def find(items: list[Any], matches: Callable[[Any], bool]) -> Any:
    """The first item that matches; otherwise the forge answers 404."""
    for item in items:
        if matches(item):
            return item
    raise RefusedError(404, "404 Not Found")
