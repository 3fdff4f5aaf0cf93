"""GitHub: pull requests, commit statuses and reviews with its REST API, threads with GraphQL."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from service.forge.client import (
    CommitStatus,
    ForgeError,
    ForgeHttp,
    NewPullRequest,
    PostedText,
    PullRequest,
    ReviewComment,
    Thread,
    shown_lines,
)
from service.text import items, table

_LONGEST_DESCRIPTION: Final = 140
_MOST_PAGES: Final = 40
_THREADS: Final = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    reviewThreads(first: 50, after: $after) {
      pageInfo { hasNextPage endCursor }
      nodes {
        id isResolved path line resolvedBy { login }
        comments(first: 1) { nodes { databaseId body author { login } } }
      }
    }
  } }
}"""
_RESOLVE: Final = "mutation($id: ID!) { %sReviewThread(input: {threadId: $id}) { thread { id } } }"


class GitHub:
    """One repository on GitHub."""

    title: ClassVar = "GitHub"
    exists_status: ClassVar = 422
    """The answer to a second pull request of a branch."""
    state_name: ClassVar = "state"
    """What a listed status calls its state."""

    def __init__(self, api_url: str, path: str, token: str, timeout_s: float) -> None:
        self._owner, _, self._name = path.partition("/")
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self.http = ForgeHttp(self.title, api_url, headers, timeout_s)
        self.repository = f"/repos/{path}"
        # An Enterprise Server has its two APIs at /api/v3 and /api/graphql.
        base = api_url.rstrip("/")
        root = base.removesuffix("/v3") if urlsplit(base).path.endswith("/api/v3") else base
        self._graphql = f"{root}/graphql"

    def account(self) -> str:
        """Return the name of the token's account; the token of an App's installation may not ask for it."""
        return str(self.http.document("GET", "/user").get("login"))

    def pull_requests(self, branch: str) -> list[PullRequest]:
        """Return the pull requests of a branch of this repository, newest first."""
        query = {"head": f"{self._owner}:{branch}", "state": "all", "sort": "created", "direction": "desc"}
        found = self.http.pages(f"{self.repository}/pulls", **query)
        # GitHub ignores the filter if it cannot parse the head.
        return [pull_request_of(one) for one in found if self.is_of(one, branch)]

    def pull_request(self, number: int) -> PullRequest:
        """Return the pull request with a number."""
        return pull_request_of(self.http.document("GET", f"{self.repository}/pulls/{number}"))

    def open(self, proposal: NewPullRequest) -> PullRequest:
        """Open a pull request, ready if drafts are refused; if the branch has an open one, return that."""
        document = {"title": proposal.title, "head": proposal.branch, "base": proposal.base, "body": proposal.body}
        try:
            made = self.http.document("POST", f"{self.repository}/pulls", document | {"draft": proposal.is_draft})
        except ForgeError as error:
            if error.status != self.exists_status:
                raise
            found = [one for one in self.pull_requests(proposal.branch) if one.state == "open"]
            if found:
                return found[0]
            if proposal.is_draft and "draft" in str(error).lower():
                return self.open(replace(proposal, is_draft=False))
            raise
        return pull_request_of(made)

    def update(self, number: int, body: str) -> None:
        """Replace a pull request's text."""
        self.http.document("PATCH", f"{self.repository}/pulls/{number}", {"body": body})

    def set_status(self, commit: str, _branch: str, status: CommitStatus) -> None:
        """Set a commit's status, unless the newest status of its context, which is the one shown, is equal."""
        document = {
            "state": status.state,
            "context": status.context,
            "description": status.description[:_LONGEST_DESCRIPTION],
        }
        url = {"target_url": status.url} if status.url else {}
        held = self.http.pages(f"{self.repository}/commits/{commit}/statuses")
        same = (one for one in held if one.get("context") == status.context)
        newest = max(same, key=lambda one: int(one.get("id") or 0), default={})
        newest = {**newest, "state": newest.get(self.state_name)}
        if all(newest.get(name) == value for name, value in (document | url).items()):
            return
        self.http.document("POST", f"{self.repository}/statuses/{commit}", document | url)

    def reviews(self, number: int) -> list[PostedText]:
        """Return all reviews with their bodies."""
        found = self.http.pages(f"{self.repository}/pulls/{number}/reviews")
        return [posted_of(one) for one in found]

    def threads(self, number: int) -> list[Thread]:
        """Return all threads at lines."""
        nodes: list[Mapping[str, Any]] = []
        after, is_last = None, False
        for _ in range(_MOST_PAGES):
            variables = {"owner": self._owner, "name": self._name, "number": number, "after": after}
            found = self._query(_THREADS, variables)
            try:
                page = found["repository"]["pullRequest"]["reviewThreads"]
                nodes += page["nodes"]
                if is_last := not page["pageInfo"]["hasNextPage"]:
                    break
                after = page["pageInfo"]["endCursor"]
            except (KeyError, TypeError) as error:
                raise ForgeError(f"GitHub shows no threads of pull request {number}") from error
        if not is_last:
            raise ForgeError(f"pull request {number} has more than {_MOST_PAGES * 50} threads", is_final=True)
        return [
            Thread(
                id=str(node["id"]),
                comment_id=str(first["databaseId"]),
                path=str(node.get("path") or ""),
                line=node.get("line"),
                body=str(first.get("body") or ""),
                author=login_of(first.get("author")),
                is_resolved=bool(node.get("isResolved")),
                resolved_by=login_of(node.get("resolvedBy")) or None,
            )
            for node in nodes
            for first in ((node.get("comments") or {}).get("nodes") or [])[:1]
        ]

    def diff_lines(self, number: int) -> dict[str, frozenset[int]]:
        """Return the lines that the diff shows; of a large file GitHub shows none."""
        files = self.http.pages(f"{self.repository}/pulls/{number}/files")
        return {str(one["filename"]): shown_lines(str(one.get("patch") or ""), with_context=True) for one in files}

    def post_review(self, number: int, commit: str, body: str, comments: Sequence[ReviewComment]) -> None:
        """Post one review with all its comments: it appears whole or not at all."""
        # A review of a comment's kind needs a text, even with comments.
        said = body or "More findings:"
        posted: list[dict[str, object]] = []
        for one in comments:
            posted.append({"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body})
            if one.start_line is not None and one.start_line < one.line:
                posted[-1] |= {"start_line": one.start_line, "start_side": "RIGHT"}
        document = {"commit_id": commit, "event": "COMMENT", "body": said, "comments": posted}
        self.http.document("POST", f"{self.repository}/pulls/{number}/reviews", document)

    def update_review(self, number: int, review: PostedText, body: str) -> None:
        """Replace the text of one of the service's reviews."""
        self.http.document("PUT", f"{self.repository}/pulls/{number}/reviews/{review.id}", {"body": body})

    def comments(self, issue: int, since: str = "1970-01-01T00:00:00Z") -> list[PostedText]:
        """Return the comments on an issue, oldest first; `since`: only those made or changed since then."""
        return [posted_of(one) for one in self.http.pages(f"{self.repository}/issues/{issue}/comments", since=since)]

    def comment(self, issue: int, body: str) -> PostedText:
        """Comment on an issue."""
        return posted_of(self.http.document("POST", f"{self.repository}/issues/{issue}/comments", {"body": body}))

    def update_comment(self, _issue: int, comment: PostedText, body: str) -> None:
        """Replace the text of one of the service's comments."""
        self.http.document("PATCH", f"{self.repository}/issues/comments/{comment.id}", {"body": body})

    def resolve(self, _number: int, thread: Thread, *, is_resolved: bool = True) -> None:
        """Mark a thread as resolved, or as open again."""
        self._query(_RESOLVE % ("resolve" if is_resolved else "unresolve"), {"id": thread.id})

    def is_of(self, document: Mapping[str, Any], branch: str) -> bool:
        """Whether a pull request's head is a branch of this repository."""
        head = document.get("head") or {}
        repository = (head.get("repo") or {}).get("full_name") or ""
        return head.get("ref") == branch and repository.lower() == f"{self._owner}/{self._name}".lower()

    def _query(self, text: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        found = self.http.document("POST", self._graphql, {"query": text, "variables": variables})
        errors = found.get("errors")
        if errors:
            kind = next((table(one).get("type") for one in items(errors)), None)
            # GraphQL answers 200 to every request.
            wait_s = 60.0 if kind == "RATE_LIMITED" else None
            lacks = "; the token of the connected host lacks a permission (Contents: write)"
            cure = lacks if kind == "FORBIDDEN" else ""
            raise ForgeError(f"GitHub's GraphQL refused: {kind or 'an error'}{cure}", retry_after_s=wait_s)
        return table(found.get("data"))


def pull_request_of(document: Mapping[str, Any]) -> PullRequest:
    """Return a pull request from the API's answer.

    Raises:
        ForgeError: A field is missing.
    """
    try:
        head, base = document["head"], document.get("base") or {}
        return PullRequest(
            number=int(document["number"]),
            url=str(document["html_url"]),
            state="merged" if document.get("merged_at") else "open" if document["state"] == "open" else "closed",
            title=str(document["title"]),
            body=str(document.get("body") or ""),
            head=str(head["sha"]),
            is_draft=bool(document.get("draft")),
            branch=str(head.get("ref") or ""),
            base=str(base.get("ref") or ""),
            is_fork=(head.get("repo") or {}).get("full_name") != (base.get("repo") or {"full_name": ""})["full_name"],
            labels=tuple(str(one["name"]) for one in document.get("labels") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ForgeError(f"the code host described a pull request without {error}") from error


def posted_of(document: Mapping[str, Any]) -> PostedText:
    """Return a review or comment from the API's answer."""
    text, url = str(document.get("body") or ""), document.get("html_url")
    return PostedText(str(document.get("id")), text, login_of(document.get("user")), str(url) if url else None)


def login_of(user: object) -> str:
    """Return the name of an account in an answer; empty: there is none."""
    return str(table(user).get("login") or "")
