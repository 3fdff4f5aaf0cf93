"""A GitHub and a GitLab on loopback, as far as their documentation goes for changes, statuses and reviews."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from service.forge.github import GitHub
from service.forge.gitlab import GitLab
from tests.lab import Received, Respond, Server, Step

_PROJECT = 42
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


class GitHubServer(LookAlike):
    """One repository, acme/api."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.reviews: list[dict[str, Any]] = []
        self.threads: list[dict[str, Any]] = []

    def account_of(self, headers: dict[str, str]) -> str:
        if "user-agent" not in headers:
            raise RefusedError(403, {"message": "Request forbidden by administrative rules."})
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in {"bearer", "token"} or token not in self.accounts:
            raise RefusedError(401, {"message": "Bad credentials"})
        return self.accounts[token]

    def page_links(self, request: Request, page: int, *, has_next: bool) -> dict[str, str]:
        return {"Link": f'<{self.url}{request.path}?page={page + 1}>; rel="next"'} if has_next else {}

    def answer(self, request: Request, account: str) -> tuple[int, Any]:
        match (request.method, *request.segments):
            case ("GET", "user"):
                return 200, {"login": account}
            case ("POST", "graphql"):
                return 200, self._graphql(request.document, account)
            case (method, "repos", "acme", "api", *rest):
                return self._repository(method, rest, request, account)
        raise RefusedError(404, {"message": "Not Found"})

    def _repository(self, method: str, rest: list[str], request: Request, account: str) -> tuple[int, Any]:
        given = request.document
        match (method, *rest):
            case ("GET", "pulls"):
                return 200, self._listed(request.query)
            case ("POST", "pulls"):
                return 201, self._opened(given, account)
            case ("PATCH", "pulls", "comments", number):
                return 200, self._edited(number, given)
            case ("GET", "pulls", number):
                return 200, self._pull(number)
            case ("PATCH", "pulls", number):
                pull = self._pull(number)
                pull.update({key: given[key] for key in ("title", "body", "state", "base") if key in given})
                return 200, pull
            case ("GET", "commits", sha, "statuses"):
                return 200, [one for one in reversed(self.statuses) if one["sha"] == sha]
            case ("POST", "statuses", sha):
                return 201, self._status(sha, given, account)
            case ("GET", "pulls", number, "files"):
                self._pull(number)
                return 200, [{"filename": path, "patch": self.patch_of(path)} for path in self.diff]
            case ("GET", "pulls", number, "reviews"):
                return 200, [one for one in self.reviews if one["number"] == self._pull(number)["number"]]
            case ("POST", "pulls", number, "reviews"):
                return 200, self._review(self._pull(number), given, account)
            case ("PUT", "pulls", _, "reviews", review):
                found = next(one for one in self.reviews if str(one["id"]) == review)
                found["body"] = _text(given, "body", "PullRequestReview")
                return 200, found
        raise RefusedError(404, {"message": "Not Found"})

    def _listed(self, query: dict[str, str]) -> list[dict[str, Any]]:
        state, head = query.get("state", "open"), query.get("head", "")
        found = [one for one in self.pulls if state in {"all", one["state"]}]
        if ":" in head:
            # Without its owner the real one ignores a head.
            owner, _, branch = head.partition(":")
            found = [
                one for one in found if one["head"]["ref"] == branch and one["head"]["label"].startswith(f"{owner}:")
            ]
        return sorted(found, key=lambda one: int(one["number"]), reverse=query.get("direction", "desc") == "desc")

    def _opened(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        title, branch, base = (_text(given, name, "PullRequest") for name in ("title", "head", "base"))
        branch = branch.removeprefix("acme:")
        for name, value in (("head", branch), ("base", base)):
            if value not in self.branches:
                raise _invalid({"resource": "PullRequest", "field": name, "code": "invalid"})
        if any(one["state"] == "open" and one["head"]["ref"] == branch for one in self.pulls):
            text = f"A pull request already exists for acme:{branch}."
            raise _invalid({"resource": "PullRequest", "code": "custom", "message": text})
        if self.branches[branch] == self.branches[base]:
            text = f"No commits between {base} and {branch}"
            raise _invalid({"resource": "PullRequest", "code": "custom", "message": text})
        return self.add_pull(branch, base, title, given.get("body"), account, draft=given.get("draft", False))

    def add_pull(
        self, branch: str, base: str, title: str, body: Any, account: str, *, draft: bool = False, owner: str = "acme"
    ) -> dict[str, Any]:
        """Add one, also as a person would do it, or from a fork of another owner."""
        number = self.number()
        made = {
            "number": number,
            "html_url": f"https://github.example/acme/api/pull/{number}",
            "state": "open",
            "merged_at": None,
            "title": title,
            "body": body,
            "draft": draft,
            "user": {"login": account},
            "head": {
                "ref": branch,
                "sha": self.branches.get(branch, "f" * 40),
                "label": f"{owner}:{branch}",
                "repo": {"full_name": f"{owner}/api"},
            },
            "base": {"ref": base},
        }
        self.pulls.append(made)
        return made

    def _pull(self, number: str) -> dict[str, Any]:
        for one in self.pulls:
            if str(one["number"]) == number:
                one["head"]["sha"] = self.branches.get(one["head"]["ref"], one["head"]["sha"])
                return one
        raise RefusedError(404, {"message": "Not Found"})

    def _status(self, sha: str, given: dict[str, Any], account: str) -> dict[str, Any]:
        if sha not in self.branches.values():
            raise RefusedError(422, {"message": f"No commit found for SHA: {sha}"})
        if given.get("state") not in {"error", "failure", "pending", "success"}:
            raise _invalid({"resource": "Status", "field": "state", "code": "invalid"})
        if len(given.get("description") or "") > 140:
            text = "description is too long (maximum is 140 characters)"
            raise _invalid({"resource": "Status", "field": "description", "code": "custom", "message": text})
        kept = {key: given.get(key) for key in ("state", "description", "target_url")}
        made = {**kept, "sha": sha, "context": given.get("context") or "default", "creator": {"login": account}}
        self.statuses.append(made)
        return made

    def shown(self, sha: str) -> dict[str, str]:
        """Return what is shown beside a commit: of each context the newest."""
        return {one["context"]: one["state"] for one in self.statuses if one["sha"] == sha}

    def _review(self, pull: dict[str, Any], given: dict[str, Any], account: str) -> dict[str, Any]:
        if given.get("event") != "COMMENT":
            raise RefusedError(422, {"message": "Variable $event of type PullRequestReviewEvent was invalid"})
        comments = given.get("comments") or []
        if not given.get("body") and not comments:
            raise RefusedError(422, {"message": "Unprocessable Entity", "errors": ["Body can't be blank"]})
        for one in comments:
            _text(one, "path", "PullRequestReviewComment")
            _text(one, "body", "PullRequestReviewComment")
            lines = self.diff.get(one["path"])
            if lines is None:
                raise RefusedError(422, {"message": "Unprocessable Entity", "errors": ["Path could not be resolved"]})
            if not {one.get("line"), one.get("start_line", one.get("line"))} <= lines:
                raise RefusedError(422, {"message": "Unprocessable Entity", "errors": ["Line could not be resolved"]})
        made = {
            "id": self.number(),
            "number": pull["number"],
            "body": given.get("body") or "",
            "user": {"login": account},
            "commit_id": given.get("commit_id") or pull["head"]["sha"],
            "state": "COMMENTED",
        }
        self.reviews.append(made)
        self.threads += [self._thread(pull, one, account) for one in comments]
        return made

    def _thread(self, pull: dict[str, Any], comment: dict[str, Any], account: str) -> dict[str, Any]:
        number = self.number()
        first = {"databaseId": number, "body": comment["body"], "author": {"login": account}}
        return {
            "id": f"PRRT_{number}",
            "pull": pull["number"],
            "isResolved": False,
            "resolvedBy": None,
            "path": comment["path"],
            "line": comment["line"],
            "comments": {"nodes": [first]},
        }

    def _edited(self, number: str, given: dict[str, Any]) -> dict[str, Any]:
        for thread in self.threads:
            comment = thread["comments"]["nodes"][0]
            if str(comment["databaseId"]) == number:
                comment["body"] = _text(given, "body", "PullRequestReviewComment")
                return {"id": comment["databaseId"], "body": comment["body"]}
        raise RefusedError(404, {"message": "Not Found"})

    def _graphql(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        text, variables = given.get("query", ""), given.get("variables", {})
        if text.count("{") != text.count("}"):
            return {"errors": [{"message": "Parse error on }"}]}
        if changed := re.search(r"\b(un)?resolveReviewThread\(", text):
            thread = next((one for one in self.threads if one["id"] == variables.get("id")), None)
            if thread is None:
                return {"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a node"}]}
            thread["isResolved"] = changed[1] is None
            thread["resolvedBy"] = {"login": account} if thread["isResolved"] else None
            return {"data": {"resolveReviewThread": {"thread": {"id": thread["id"]}}}}
        if "reviewThreads(" not in text or (variables.get("owner"), variables.get("name")) != ("acme", "api"):
            return {"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a Repository"}]}
        found = [one for one in self.threads if one["pull"] == variables.get("number")]
        start, size = int(variables.get("after") or 0), int((re.search(r"first: (\d+)", text) or ["", "0"])[1])
        page = {"hasNextPage": len(found) > start + size, "endCursor": str(start + size)}
        threads = {"pageInfo": page, "nodes": found[start : start + size]}
        return {"data": {"repository": {"pullRequest": {"reviewThreads": threads}}}}


def _text(given: dict[str, Any], name: str, resource: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise _invalid({"resource": resource, "field": name, "code": "missing_field"})
    return value


def _invalid(error: dict[str, str]) -> RefusedError:
    return RefusedError(422, {"message": "Validation Failed", "errors": [error]})


class GitLabForge(LookAlike):
    """One project, 42 at acme/web."""

    root = "/api/v4"

    def __init__(self) -> None:
        super().__init__()
        self.merge_requests: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.discussions: list[dict[str, Any]] = []

    def account_of(self, headers: dict[str, str]) -> str:
        token = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.accounts:
            raise RefusedError(401, {"message": "401 Unauthorized"})
        return self.accounts[token]

    def page_links(self, request: Request, page: int, *, has_next: bool) -> dict[str, str]:
        return {"X-Next-Page": str(page + 1) if has_next else "", "X-Page": str(page)}

    def answer(self, request: Request, account: str) -> tuple[int, Any]:
        match request.segments:
            case ["user"]:
                return 200, {"username": account}
            case ["projects", "42" | "acme/web", *rest]:
                return self._project(rest, request, account)
        raise RefusedError(404, {"message": "404 Project Not Found"})

    def _project(self, rest: list[str], request: Request, account: str) -> tuple[int, Any]:
        match (request.method, *rest):
            case ("GET", "merge_requests"):
                return 200, self._listed(request.query)
            case ("POST", "merge_requests"):
                return 201, self._opened(request.document, account)
            case ("POST", "statuses", sha):
                return 201, self._status(sha, request.document)
            case ("GET", "repository", "commits", sha, "statuses"):
                return 200, [one for one in self.statuses if one["sha"] == sha]
            case (method, "merge_requests", number, *place):
                return self._of_merge_request(method, self._merge_request(number), place, request, account)
        raise RefusedError(404, {"error": "404 Not Found"})

    def _of_merge_request(
        self, method: str, found: dict[str, Any], place: list[str], request: Request, account: str
    ) -> tuple[int, Any]:
        given = request.document
        match (method, *place):
            case ("GET",):
                return 200, found
            case ("PUT",):
                found.update({key: given[key] for key in ("title", "description") if key in given})
                return 200, found
            case ("GET", "notes"):
                firsts = [note for one in self.discussions for note in one["notes"] if one["iid"] == found["iid"]]
                return 200, [one for one in self.notes if one["iid"] == found["iid"]] + firsts
            case ("POST", "notes"):
                self.notes.append(self._note(given, account) | {"iid": found["iid"], "type": None})
                return 201, self.notes[-1]
            case ("PUT", "notes", number):
                note = next(one for one in self.notes if str(one["id"]) == number)
                note["body"] = _required(given, "body")
                return 200, note
            case ("GET", "diffs"):
                return 200, [{"old_path": path, "new_path": path, "diff": self.patch_of(path)} for path in self.diff]
            case ("GET", "discussions"):
                return 200, [one for one in self.discussions if one["iid"] == found["iid"]]
            case ("POST", "discussions"):
                return 201, self._discussed(found, given, account)
            case ("PUT", "discussions", key, *note):
                return 200, self._changed(key, note, given, account)
        raise RefusedError(404, {"error": "404 Not Found"})

    def _listed(self, query: dict[str, str]) -> list[dict[str, Any]]:
        state, branch = query.get("state", "all"), query.get("source_branch")
        found = [one for one in self.merge_requests if state == "all" or one["state"] == state]
        found = [one for one in found if branch is None or one["source_branch"] == branch]
        return sorted(found, key=lambda one: int(one["iid"]), reverse=query.get("sort", "desc") == "desc")

    def _opened(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        title, branch, base = (_required(given, name) for name in ("title", "source_branch", "target_branch"))
        if branch not in self.branches or base not in self.branches:
            raise RefusedError(409, {"message": ["Source branch or target branch does not exist"]})
        if branch == base:
            raise RefusedError(422, {"message": ["You can't use same project/branch for source and target"]})
        for one in self.merge_requests:
            if one["state"] == "opened" and one["source_branch"] == branch and one["source_project_id"] == _PROJECT:
                text = f"Another open merge request already exists for this source branch: !{one['iid']}"
                raise RefusedError(409, {"message": [text]})
        return self.add(branch, base, title, given.get("description"), account)

    def add(
        self, branch: str, base: str, title: str, body: Any, account: str, *, source: int = _PROJECT
    ) -> dict[str, Any]:
        """Add one, also as a person would do it, or from a fork."""
        number = self.number()
        head = self.branches.get(branch, "f" * 40)
        made = {
            "iid": number,
            "web_url": f"https://gitlab.example/acme/web/-/merge_requests/{number}",
            "state": "opened",
            "title": title,
            "description": body,
            "draft": title.startswith("Draft: "),
            "author": {"username": account},
            "source_branch": branch,
            "target_branch": base,
            "source_project_id": source,
            "target_project_id": _PROJECT,
            "sha": head,
            "diff_refs": {"base_sha": "a" * 40, "start_sha": "a" * 40, "head_sha": head},
        }
        self.merge_requests.append(made)
        return made

    def _merge_request(self, number: str) -> dict[str, Any]:
        for one in self.merge_requests:
            if str(one["iid"]) == number:
                head = self.branches.get(one["source_branch"], one["sha"])
                one["sha"] = one["diff_refs"]["head_sha"] = head
                return one
        raise RefusedError(404, {"message": "404 Not found"})

    def _status(self, sha: str, given: dict[str, Any]) -> dict[str, Any]:
        if sha not in self.branches.values():
            raise RefusedError(404, {"message": "404 Commit Not Found"})
        state = given.get("state")
        if state not in {"pending", "running", "success", "failed", "canceled"}:
            raise RefusedError(400, {"error": "state does not have a valid value"})
        if len(given.get("description") or "") > 255:
            raise RefusedError(400, {"message": {"description": ["is too long (maximum is 255 characters)"]}})
        name = given.get("name") or given.get("context") or "default"
        held = next((one for one in self.statuses if (one["sha"], one["name"]) == (sha, name)), None)
        if held is not None and held["status"] == state:
            text = f"Cannot transition status via :{state} from :{state} (Reason(s): Status cannot transition)"
            raise RefusedError(400, {"message": text})
        made = {
            "sha": sha,
            "name": name,
            "status": state,
            "ref": given.get("ref"),
            "target_url": given.get("target_url"),
        }
        if held is not None:
            self.statuses.remove(held)
        self.statuses.append(made)
        return made

    def shown(self, sha: str) -> dict[str, str]:
        """Return what is shown beside a commit, by name."""
        return {one["name"]: one["status"] for one in self.statuses if one["sha"] == sha}

    def _note(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        return {
            "id": self.number(),
            "body": _required(given, "body"),
            "author": {"username": account},
            "system": False,
            "resolved": False,
            "resolved_by": None,
        }

    def _discussed(self, found: dict[str, Any], given: dict[str, Any], account: str) -> dict[str, Any]:
        note = self._note(given, account)
        position = given.get("position") or {}
        shas = {key: position.get(key) for key in ("base_sha", "start_sha", "head_sha")}
        is_known = position.get("new_line") in self.diff.get(position.get("new_path", ""), ())
        if shas != found["diff_refs"] or position.get("position_type") != "text" or not is_known:
            text = '400 Bad request - Note {:line_code=>["can\'t be blank", "must be a valid line code"]}'
            raise RefusedError(400, {"message": text})
        note |= {"type": "DiffNote", "position": position}
        made = {"id": f"{note['id']:040x}", "iid": found["iid"], "notes": [note]}
        self.discussions.append(made)
        return made

    def _changed(self, key: str, place: list[str], given: dict[str, Any], account: str) -> dict[str, Any]:
        found = next((one for one in self.discussions if one["id"] == key), None)
        if found is None:
            raise RefusedError(404, {"message": "404 Discussion Not Found"})
        if place:
            found["notes"][0]["body"] = _required(given, "body")
        elif not isinstance(given.get("resolved"), bool):
            raise RefusedError(400, {"error": "resolved is missing"})
        else:
            resolved_by = {"username": account} if given["resolved"] else None
            found["notes"][0] |= {"resolved": given["resolved"], "resolved_by": resolved_by}
        return dict(found)


def _required(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedError(400, {"error": f"{name} is missing"})
    return value


Forge = GitHubServer | GitLabForge


def client_of(server: Forge, token: str = "bot-token") -> GitHub | GitLab:
    """Return a client of a forge."""
    if isinstance(server, GitHubServer):
        return GitHub(server.url, "acme/api", token, 120)
    return GitLab(server.url, "acme/web", token, 120)
