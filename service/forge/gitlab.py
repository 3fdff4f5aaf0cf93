"""GitLab: merge requests, commit statuses and discussions with its REST API, version 4."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import takewhile
from typing import Any, Final
from urllib.parse import quote

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
from service.text import table

_STATES: Final = {"pending": "running", "success": "success", "failure": "failed", "error": "canceled"}
_MAX_DESCRIPTION: Final = 255


_PULL_STATES: Final[Mapping[str, PullState]] = {"merged": "merged", "closed": "closed"}
"""Any other state, such as `locked`, counts as open."""


class GitLab:
    """One project on GitLab."""

    def __init__(self, api_url: str, path: str, token: str, timeout_s: float) -> None:
        self._http = ForgeHttp("GitLab", api_url, {"PRIVATE-TOKEN": token}, timeout_s)
        self._site = f"{api_url.rstrip('/').removesuffix('/api/v4')}/{path}"
        self._project = f"/projects/{quote(path, safe='')}"

    def account(self) -> str:
        return str(self._http.document("GET", "/user").get("username"))

    def pull_requests(self, branch: str) -> list[PullRequest]:
        query = {"source_branch": branch, "state": "all", "order_by": "created_at", "sort": "desc"}
        documents = self._http.pages(f"{self._project}/merge_requests", **query)
        # A fork may have a branch with the same name.
        same_project = (row for row in documents if row.get("source_project_id") == row.get("target_project_id"))
        return [_merge_request(document) for document in same_project]

    def pull_request(self, number: int) -> PullRequest:
        return _merge_request(self._http.document("GET", f"{self._project}/merge_requests/{number}"))

    def open(self, branch: str, base: str, title: str, body: str, *, is_draft: bool) -> PullRequest:
        title = f"{'Draft: ' if is_draft else ''}{title}"
        document = {"source_branch": branch, "target_branch": base, "title": title, "description": body}
        try:
            created = self._http.document("POST", f"{self._project}/merge_requests", document)
        except ForgeError as error:
            for existing in self.pull_requests(branch) if error.status == HTTPStatus.CONFLICT else []:
                if existing.state == "open":
                    return existing
            raise
        return _merge_request(created)

    def update(self, number: int, body: str) -> None:
        self._http.document("PUT", f"{self._project}/merge_requests/{number}", {"description": body})

    def set_status(self, sha: str, branch: str, context: str, state: State, text: str, url: str | None = None) -> None:
        document = {"state": _STATES[state], "ref": branch, "name": context, "description": text[:_MAX_DESCRIPTION]}
        document |= {"target_url": url} if url else {}
        try:
            self._http.document("POST", f"{self._project}/statuses/{sha}", document)
        except ForgeError as error:
            if error.status != HTTPStatus.BAD_REQUEST or "Cannot transition status" not in str(error):
                raise
            statuses = self._http.pages(f"{self._project}/repository/commits/{sha}/statuses", name=context)
            latest = next((entry.get("status") for entry in statuses if entry.get("name") == context), None)
            if latest != document["state"]:
                raise

    def reviews(self, number: int) -> list[PostedText]:
        """Return all notes on the whole merge request, except GitLab's own."""
        return self._notes(f"merge_requests/{number}")

    def threads(self, number: int) -> list[Thread]:
        discussions = self._http.pages(f"{self._project}/merge_requests/{number}/discussions")
        return [
            Thread(
                id=str(entry["id"]),
                path=str(position.get("new_path") or ""),
                line=position.get("new_line"),
                body=str(first.get("body") or ""),
                author=_name(first.get("author")),
                is_resolved=bool(first.get("resolved")),
                resolved_by=_name(first.get("resolved_by")) or None,
            )
            for entry in discussions
            for first in (entry.get("notes") or [])[:1]
            if (position := first.get("position"))
        ]

    def diff_lines(self, number: int) -> dict[str, frozenset[int]]:
        """Return the added lines; comments elsewhere, or in renamed files, need more than a path and a line."""
        files = self._http.pages(f"{self._project}/merge_requests/{number}/diffs")
        files_in_place = (file for file in files if file.get("new_path") == file.get("old_path"))
        return {
            str(file["new_path"]): shown_lines(str(file.get("diff") or ""), with_context=False)
            for file in files_in_place
        }

    def post_review(self, number: int, commit: str, body: str, comments: Sequence[ReviewComment]) -> None:
        """Post the comments, then the note that is the review's text: GitLab has no way to post them as one."""
        endpoint = f"{self._project}/merge_requests/{number}"
        refs = self._http.document("GET", endpoint).get("diff_refs") or {}
        if refs.get("head_sha") != commit:
            text = f"the merge request is at {refs.get('head_sha')}, not at {commit}"
            raise ForgeError(text, status=HTTPStatus.CONFLICT)
        for comment in comments:
            position = {key: refs[key] for key in ("base_sha", "start_sha", "head_sha")} | {"position_type": "text"}
            position |= {"new_path": comment.path, "old_path": comment.path, "new_line": comment.line}
            self._http.document("POST", f"{endpoint}/discussions", {"body": comment.body, "position": position})
        if body:
            self._http.document("POST", f"{endpoint}/notes", {"body": body})

    def comments(self, issue: int, since: str = "") -> list[PostedText]:
        """Return the notes on an issue, oldest first, except GitLab's own; `since`: only those made since then."""
        return self._notes(f"issues/{issue}", since)

    def comment(self, issue: int, body: str) -> PostedText:
        path = f"issues/{issue}"
        return self._posted_text(path, self._http.document("POST", f"{self._project}/{path}/notes", {"body": body}))

    def edit(self, posted: PostedText, body: str) -> None:
        self._http.document("PUT", posted.path, {"body": body})

    def resolve(self, number: int, thread: Thread, *, is_resolved: bool = True) -> None:
        path = f"{self._project}/merge_requests/{number}/discussions/{thread.id}"
        self._http.document("PUT", path, {"resolved": is_resolved})

    def _notes(self, path: str, since: str = "") -> list[PostedText]:
        notes = self._http.pages(f"{self._project}/{path}/notes", sort="desc", order_by="created_at")
        new = takewhile(lambda note: str(note.get("created_at")) >= since, notes)
        comments = [note for note in new if not note.get("system") and note.get("type") != "DiffNote"]
        return [self._posted_text(path, note) for note in reversed(comments)]

    def _posted_text(self, where: str, note: Mapping[str, Any]) -> PostedText:
        path, url = f"{self._project}/{where}/notes/{note.get('id')}", f"{self._site}/-/{where}#note_{note.get('id')}"
        return PostedText(path, str(note.get("body") or ""), _name(note.get("author")), url)


def _merge_request(document: Mapping[str, Any]) -> PullRequest:
    try:
        return PullRequest(
            number=int(document["iid"]),
            url=str(document["web_url"]),
            state=_PULL_STATES.get(str(document["state"]), "open"),
            body=str(document.get("description") or ""),
            head=str(document.get("sha") or ""),
            branch=str(document.get("source_branch") or ""),
            base=str(document.get("target_branch") or ""),
            is_fork=document.get("source_project_id") != document.get("target_project_id"),
            labels=tuple(map(str, document.get("labels") or ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ForgeError(f"GitLab described a merge request without {error}") from error


def _name(user: object) -> str:
    return str(table(user).get("username") or "")
