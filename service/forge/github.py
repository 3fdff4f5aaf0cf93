"""GitHub: pull requests, commit statuses and reviews with its REST API, threads with GraphQL.

Forgejo, and Gitea, from which it comes, have GitHub's API with differences, here as in Forgejo 16.0.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from service.forge import (
    ForgeError,
    ForgeHttp,
    PostedText,
    PullRequest,
    PullState,
    ReviewComment,
    State,
    Thread,
    shown_lines,
)
from service.hosts import GITHUB_VERSION
from service.text import items, table

_MAX_DESCRIPTION: Final = 140
_MAX_PAGES: Final = 40
_THREADS: Final = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    reviewThreads(first: 50, after: $after) {
      pageInfo { hasNextPage endCursor }
      nodes {
        id isResolved path line resolvedBy { login }
        comments(first: 1) { nodes { body author { login } } }
      }
    }
  } }
}"""
_MAX_CLOSED: Final = 200
"""How many of Forgejo's closed pull requests are read."""
_CONFLICT: Final = 409
_NO_CALL: Final = frozenset({404, 405})
"""The answers of a version of Forgejo that has no such call."""
_RESOLVED: Final = "*Resolved: the last review did not find this any more.*\n\n"
_ADDED: Final = re.compile(r'\+\+\+ (?:b/([^\t\n]+)|"b/((?:[^"\\\n]|\\.)+)")')
_RESOLVE: Final = "mutation($id: ID!) { %sReviewThread(input: {threadId: $id}) { thread { id } } }"


class GitHub:
    """One repository on GitHub."""

    title: ClassVar = "GitHub"
    exists_status: ClassVar = 422
    """The answer to a second pull request of a branch."""
    state_name: ClassVar = "state"
    """The name of the state in a listed status."""

    def __init__(self, api_url: str, path: str, token: str, timeout_s: float) -> None:
        self._owner, _, self._name = path.partition("/")
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        self.http = ForgeHttp(self.title, api_url, headers | GITHUB_VERSION, timeout_s)
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
        documents = self.http.pages(f"{self.repository}/pulls", **query)
        # GitHub ignores the filter if it cannot parse the head.
        return [_pull_request(document) for document in documents if self._is_of(document, branch)]

    def pull_request(self, number: int) -> PullRequest:
        return _pull_request(self.http.document("GET", f"{self.repository}/pulls/{number}"))

    def open(self, branch: str, base: str, title: str, body: str, *, is_draft: bool) -> PullRequest:
        """Open a pull request, ready if drafts are refused; if the branch has an open one, return that."""
        document = {"title": title, "head": branch, "base": base, "body": body, "draft": is_draft}
        try:
            created = self.http.document("POST", f"{self.repository}/pulls", document)
        except ForgeError as error:
            if error.status != self.exists_status:
                raise
            for existing in self.pull_requests(branch):
                if existing.state == "open":
                    return existing
            if is_draft and "draft" in str(error).lower():
                return self.open(branch, base, title, body, is_draft=False)
            raise
        return _pull_request(created)

    def update(self, number: int, body: str) -> None:
        self.http.document("PATCH", f"{self.repository}/pulls/{number}", {"body": body})

    def set_status(self, sha: str, _branch: str, context: str, state: State, text: str, url: str | None = None) -> None:
        """Set a commit's status, unless the newest status of its context, which is the one shown, is equal."""
        document = {"state": state, "context": context, "description": text[:_MAX_DESCRIPTION]}
        document |= {"target_url": url} if url else {}
        statuses = self.http.pages(f"{self.repository}/commits/{sha}/statuses")
        same = (entry for entry in statuses if entry.get("context") == context)
        newest = max(same, key=lambda entry: int(entry.get("id") or 0), default={})
        newest = {**newest, "state": newest.get(self.state_name)}
        if any(newest.get(name) != value for name, value in document.items()):
            self.http.document("POST", f"{self.repository}/statuses/{sha}", document)

    def reviews(self, number: int) -> list[PostedText]:
        path = f"{self.repository}/pulls/{number}/reviews"
        return [_posted_text(path, document) for document in self.http.pages(path)]

    def threads(self, number: int) -> list[Thread]:
        nodes: list[Mapping[str, Any]] = []
        after = None
        for _ in range(_MAX_PAGES):
            variables = {"owner": self._owner, "name": self._name, "number": number, "after": after}
            answer = self._query(_THREADS, variables)
            try:
                page = answer["repository"]["pullRequest"]["reviewThreads"]
                nodes += page["nodes"]
                if not page["pageInfo"]["hasNextPage"]:
                    break
                after = page["pageInfo"]["endCursor"]
            except (KeyError, TypeError) as error:
                raise ForgeError(f"GitHub shows no threads of pull request {number}") from error
        else:
            raise ForgeError(f"pull request {number} has more than {_MAX_PAGES * 50} threads", is_final=True)
        return [
            Thread(
                id=str(node["id"]),
                path=str(node.get("path") or ""),
                line=node.get("line"),
                body=str(first.get("body") or ""),
                author=_login(first.get("author")),
                is_resolved=bool(node.get("isResolved")),
                resolved_by=_login(node.get("resolvedBy")) or None,
            )
            for node in nodes
            for first in ((node.get("comments") or {}).get("nodes") or [])[:1]
        ]

    def diff_lines(self, number: int) -> dict[str, frozenset[int]]:
        """Return the lines that the diff shows; of a large file GitHub shows none."""
        files = self.http.pages(f"{self.repository}/pulls/{number}/files")
        return {str(file["filename"]): shown_lines(str(file.get("patch") or ""), with_context=True) for file in files}

    def post_review(self, number: int, commit: str, body: str, comments: Sequence[ReviewComment]) -> None:
        """Post one review with all its comments: it appears whole or not at all."""
        documents: list[dict[str, object]] = []
        for comment in comments:
            documents.append({"path": comment.path, "line": comment.line, "side": "RIGHT", "body": comment.body})
            if comment.start_line is not None and comment.start_line < comment.line:
                documents[-1] |= {"start_line": comment.start_line, "start_side": "RIGHT"}
        # A review of a comment's kind needs a text, even with comments.
        review = {"commit_id": commit, "event": "COMMENT", "body": body or "More findings:", "comments": documents}
        self.http.document("POST", f"{self.repository}/pulls/{number}/reviews", review)

    def comments(self, issue: int, since: str = "1970-01-01T00:00:00Z") -> list[PostedText]:
        """Return the comments on an issue, oldest first; `since`: only those made or changed since then."""
        documents = self.http.pages(f"{self.repository}/issues/{issue}/comments", since=since)
        return [_posted_text(f"{self.repository}/issues/comments", document) for document in documents]

    def comment(self, issue: int, body: str) -> PostedText:
        created = self.http.document("POST", f"{self.repository}/issues/{issue}/comments", {"body": body})
        return _posted_text(f"{self.repository}/issues/comments", created)

    def edit(self, posted: PostedText, body: str) -> None:
        is_review = posted.path.startswith(f"{self.repository}/pulls/")
        self.http.document("PUT" if is_review else "PATCH", posted.path, {"body": body})

    def resolve(self, _number: int, thread: Thread, *, is_resolved: bool = True) -> None:
        self._query(_RESOLVE % ("resolve" if is_resolved else "unresolve"), {"id": thread.id})

    def _is_of(self, document: Mapping[str, Any], branch: str) -> bool:
        head = document.get("head") or {}
        repository = (head.get("repo") or {}).get("full_name") or ""
        return head.get("ref") == branch and repository.lower() == f"{self._owner}/{self._name}".lower()

    def _query(self, text: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self.http.document("POST", self._graphql, {"query": text, "variables": variables})
        # GraphQL answers 200 to every request.
        if errors := answer.get("errors"):
            kind = next((table(error).get("type") for error in items(errors)), None)
            lacks = "; the token of the connected host lacks a permission (Contents: write)"
            text = f"GitHub's GraphQL refused: {kind or 'an error'}{lacks if kind == 'FORBIDDEN' else ''}"
            raise ForgeError(text, retry_after_s=60.0 if kind == "RATE_LIMITED" else None)
        return table(answer.get("data"))


class Forgejo(GitHub):
    """One repository on Forgejo or Gitea."""

    title: ClassVar = "Forgejo"
    exists_status: ClassVar = _CONFLICT
    state_name: ClassVar = "status"

    def pull_requests(self, branch: str) -> list[PullRequest]:
        """Return the pull requests of a branch of this repository, newest first.

        The API cannot filter by branch, so of the closed ones only those that changed last are read.
        """
        documents = [*self.http.pages(f"{self.repository}/pulls", state="open")]
        closed = self.http.pages(f"{self.repository}/pulls", state="closed", sort="recentupdate")
        documents += islice(closed, _MAX_CLOSED)
        pulls = [_pull_request(document) for document in documents if self._is_of(document, branch)]
        return sorted(pulls, key=lambda pull_request: pull_request.number, reverse=True)

    def open(self, branch: str, base: str, title: str, body: str, *, is_draft: bool) -> PullRequest:
        """Open a pull request, a draft by the prefix of its title; if the branch has an open one, return that."""
        return super().open(branch, base, f"{'WIP: ' if is_draft else ''}{title}", body, is_draft=False)

    def reviews(self, number: int) -> list[PostedText]:
        """Return all comments on the whole; the API cannot change the body of a review."""
        return self.comments(number)

    def threads(self, number: int) -> list[Thread]:
        """Return all comments at lines, outdated ones as well."""
        threads = []
        reviews = f"{self.repository}/pulls/{number}/reviews"
        for review in self.http.pages(reviews):
            if not review.get("comments_count") or review.get("state") == "PENDING":
                continue
            for comment in self.http.pages(f"{reviews}/{review['id']}/comments"):
                author = _login(comment.get("user"))
                body = str(comment.get("body") or "")
                resolver = _login(comment.get("resolver")) or (author if body.startswith(_RESOLVED) else None)
                thread = Thread(
                    id=f"{review['id']}/comments/{comment['id']}",
                    path=str(comment.get("path") or ""),
                    line=comment.get("position") or None,
                    body=body,
                    author=author,
                    is_resolved=resolver is not None,
                    resolved_by=resolver,
                )
                threads.append(thread)
        return threads

    def diff_lines(self, number: int) -> dict[str, frozenset[int]]:
        """Return the lines that the diff shows; none of a diff that is too large."""
        try:
            answer = self.http.answer("GET", f"{self.repository}/pulls/{number}.diff")
        except ForgeError as error:
            if error.status is None and error.is_final:
                return {}
            raise
        lines_of = {}
        for text in re.split(r"(?m)^diff --git ", answer.raw.decode("utf-8", "replace")):
            head, _, hunks = text.partition("\n@@")
            if (match := _ADDED.search(head)) is not None:
                name, quoted = match.groups("")
                # git quotes other characters as C does, byte by byte.
                name = name or quoted.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
                lines_of[name] = shown_lines(f"@@{hunks}", with_context=True)
        return lines_of

    def post_review(self, number: int, commit: str, body: str, comments: Sequence[ReviewComment]) -> None:
        """Post a review with the comments, and the text as a separate comment, which can be changed later.

        A failure within a review leaves it pending, seen by nobody else; the next attempt starts it again.
        """
        if self.pull_request(number).head != commit:
            raise ForgeError(f"pull request {number} is not at {commit} by now", status=_CONFLICT)
        endpoint = f"{self.repository}/pulls/{number}/reviews"
        if comments:
            for review in self.http.pages(endpoint):
                if review.get("state") == "PENDING":
                    self.http.answer("DELETE", f"{endpoint}/{review['id']}")
            documents = [{"path": note.path, "new_position": note.line, "body": note.body} for note in comments]
            self.http.document("POST", endpoint, {"commit_id": commit, "event": "COMMENT", "comments": documents})
        if body:
            self.comment(number, body)

    def resolve(self, number: int, thread: Thread, *, is_resolved: bool = True) -> None:
        """Mark a comment as resolved, or as open again: in its text if this version has no call for it."""
        pulls = f"{self.repository}/pulls"
        word = "resolve" if is_resolved else "unresolve"
        plain = thread.body.removeprefix(_RESOLVED)
        comment_id = thread.id.rpartition("/")[2]
        if plain == thread.body:
            # Forgejo after 16.0, then Gitea from 1.26 on.
            for path in (f"{number}/reviews/{thread.id}/{word}", f"comments/{comment_id}/{word}"):
                try:
                    self.http.answer("POST", f"{pulls}/{path}")
                except ForgeError as error:
                    if error.status not in _NO_CALL:
                        raise
                else:
                    return
        text = f"{_RESOLVED if is_resolved else ''}{plain}"
        self.http.document("PATCH", f"{self.repository}/issues/comments/{comment_id}", {"body": text})


def _pull_request(document: Mapping[str, Any]) -> PullRequest:
    try:
        head, base = document["head"], document.get("base") or {}
        state: PullState = "open" if document["state"] == "open" else "closed"
        if document.get("merged_at"):
            state = "merged"
        return PullRequest(
            number=int(document["number"]),
            url=str(document["html_url"]),
            state=state,
            body=str(document.get("body") or ""),
            head=str(head["sha"]),
            branch=str(head.get("ref") or ""),
            base=str(base.get("ref") or ""),
            is_fork=(head.get("repo") or {}).get("full_name") != (base.get("repo") or {"full_name": ""})["full_name"],
            labels=tuple(str(label["name"]) for label in document.get("labels") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ForgeError(f"the code host described a pull request without {error}") from error


def _posted_text(path: str, document: Mapping[str, Any]) -> PostedText:
    text, url = str(document.get("body") or ""), document.get("html_url")
    return PostedText(f"{path}/{document.get('id')}", text, _login(document.get("user")), str(url) if url else None)


def _login(user: object) -> str:
    return str(table(user).get("login") or "")
