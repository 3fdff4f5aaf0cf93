"""Forgejo, and Gitea, from which it comes: GitHub's API with differences, as in Forgejo 16.0."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Final

from service.forge.client import ForgeError, NewPullRequest, PostedText, PullRequest, ReviewComment, Thread, shown_lines
from service.forge.github import GitHub, login_of, pull_request_of

_MOST_CLOSED: Final = 200
_CONFLICT: Final = 409
_NO_CALL: Final = frozenset({404, 405})
"""The answers of a version that has no such call."""
_RESOLVED: Final = "*Resolved: the last review did not find this any more.*\n\n"
_ADDED: Final = re.compile(r'\+\+\+ (?:b/([^\t\n]+)|"b/((?:[^"\\\n]|\\.)+)")')


class Forgejo(GitHub):
    """One repository on Forgejo or Gitea."""

    title: ClassVar = "Forgejo"
    exists_status: ClassVar = _CONFLICT
    state_name: ClassVar = "status"

    def pull_requests(self, branch: str) -> list[PullRequest]:
        """Return the pull requests of a branch of this repository, newest first.

        The API cannot filter by branch, so of the closed ones only those that changed last are read.
        """
        found = [*self.http.pages(f"{self.repository}/pulls", state="open")]
        closed = self.http.pages(f"{self.repository}/pulls", state="closed", sort="recentupdate")
        found += islice(closed, _MOST_CLOSED)
        own = [pull_request_of(one) for one in found if self.is_of(one, branch)]
        return sorted(own, key=lambda one: one.number, reverse=True)

    def open(self, proposal: NewPullRequest) -> PullRequest:
        """Open a pull request, a draft by the prefix of its title; if the branch has an open one, return that."""
        title = f"{'WIP: ' if proposal.is_draft else ''}{proposal.title}"
        return super().open(replace(proposal, title=title, is_draft=False))

    def reviews(self, number: int) -> list[PostedText]:
        """Return all comments on the whole; the API cannot change the body of a review."""
        return self.comments(number)

    def threads(self, number: int) -> list[Thread]:
        """Return all comments at lines, outdated ones as well."""
        reviews = f"{self.repository}/pulls/{number}/reviews"
        return [
            _thread(review["id"], one)
            for review in self._reviews(number)
            if review.get("comments_count") and review.get("state") != "PENDING"
            for one in self.http.pages(f"{reviews}/{review['id']}/comments")
        ]

    def diff_lines(self, number: int) -> dict[str, frozenset[int]]:
        """Return the lines that the diff shows; none of a diff that is too large."""
        try:
            answer = self.http.answer("GET", f"{self.repository}/pulls/{number}.diff")
        except ForgeError as error:
            if error.status is None and error.is_final:
                return {}
            raise
        files = re.split(r"(?m)^diff --git ", answer.raw.decode("utf-8", "replace"))
        parts = (text.partition("\n@@") for text in files)
        return {
            name: shown_lines(f"@@{hunks}", with_context=True)
            for head, _, hunks in parts
            if (name := _new_name(head)) is not None
        }

    def post_review(self, number: int, commit: str, body: str, comments: Sequence[ReviewComment]) -> None:
        """Post a review with the comments, and the text as a comment of its own, which can be changed later.

        A failure within a review leaves it pending, seen by nobody else; the next attempt starts it again.
        """
        if self.pull_request(number).head != commit:
            raise ForgeError(f"pull request {number} is not at {commit} by now", status=_CONFLICT)
        endpoint = f"{self.repository}/pulls/{number}/reviews"
        if comments:
            for review in self._reviews(number):
                if review.get("state") == "PENDING":
                    self.http.ask("DELETE", f"{endpoint}/{review['id']}")
            made = [{"path": one.path, "new_position": one.line, "body": one.body} for one in comments]
            self.http.document("POST", endpoint, {"commit_id": commit, "event": "COMMENT", "comments": made})
        if body:
            self.comment(number, body)

    def update_review(self, number: int, review: PostedText, body: str) -> None:
        """Replace the text of one of the service's comments."""
        self.update_comment(number, review, body)

    def resolve(self, number: int, thread: Thread, *, is_resolved: bool = True) -> None:
        """Mark a comment as resolved, or as open again: in its text if this version has no call for it."""
        pulls, word = f"{self.repository}/pulls", "resolve" if is_resolved else "unresolve"
        plain = thread.body.removeprefix(_RESOLVED)
        if plain == thread.body:
            # Forgejo after 16.0, then Gitea from 1.26 on.
            for path in (f"{number}/reviews/{thread.id}/{word}", f"comments/{thread.comment_id}/{word}"):
                try:
                    self.http.ask("POST", f"{pulls}/{path}")
                except ForgeError as error:
                    if error.status not in _NO_CALL:
                        raise
                else:
                    return
        text = f"{_RESOLVED if is_resolved else ''}{plain}"
        self.http.document("PATCH", f"{self.repository}/issues/comments/{thread.comment_id}", {"body": text})

    def _reviews(self, number: int) -> Iterator[Mapping[str, Any]]:
        return self.http.pages(f"{self.repository}/pulls/{number}/reviews")


def _thread(review_id: object, comment: Mapping[str, Any]) -> Thread:
    author, body = login_of(comment.get("user")), str(comment.get("body") or "")
    resolver = login_of(comment.get("resolver")) or (author if body.startswith(_RESOLVED) else None)
    return Thread(
        id=f"{review_id}/comments/{comment['id']}",
        comment_id=str(comment["id"]),
        path=str(comment.get("path") or ""),
        line=comment.get("position") or None,
        body=body,
        author=author,
        is_resolved=resolver is not None,
        resolved_by=resolver,
    )


def _new_name(head: str) -> str | None:
    """Return the path of the new file, as a patch begins; None: there is none."""
    named = _ADDED.search(head)
    if named is None or named[1]:
        return named and named[1]
    # Git quotes other characters as C does, and the bytes of a character one by one.
    return named[2].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
