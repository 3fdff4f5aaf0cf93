"""A GitHub on loopback, as far as its documentation goes for pull requests, statuses and reviews."""

import re
from typing import Any

from tests.service.forge.lookalike import LookAlike, RefusedError, Request

STATES = {"error", "failure", "pending", "success"}
EVENTS = {"APPROVE", "REQUEST_CHANGES", "COMMENT"}


class GitHubServer(LookAlike):
    """One repository, acme/api."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.reviews: list[dict[str, Any]] = []
        self.threads: list[dict[str, Any]] = []
        self.has_drafts = True

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
        if not isinstance(given.get("draft", False), bool):
            raise RefusedError(422, {"message": "Invalid request.\n\nFor 'properties/draft', must be a boolean."})
        if given.get("draft") and not self.has_drafts:
            raise RefusedError(422, {"message": "Draft pull requests are not supported in this repository."})
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
        if given.get("state") not in STATES:
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
        if given.get("event") not in EVENTS:
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
