"""GitHub's deliveries, and those of Forgejo and Gitea, which send the same payloads with a few of their own."""

import re
from typing import Annotated, Any, ClassVar, Final

from pydantic import AliasPath, Field

from service.reference import PLATFORMS
from service.rules import CLOSED, HookEvent
from service.triggers import payloads
from service.triggers.payloads import Account, Issue, Label, Name, Number, Part, Payload, Repository, Sha, Time, Words

_FAILURES: Final = frozenset({"failure", "timed_out", "startup_failure"})
"""The conclusions of a check or workflow that failed; it also ends as cancelled, skipped or stale."""
_DRAFT: Final = re.compile(r"\s*(WIP:|\[WIP\]|Draft:)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"#([0-9]{1,9})", re.ASCII)


class _Fork(Part):
    id: int


class _Head(Part):
    ref: Name
    sha: Sha
    repo: _Fork | None = None
    """The head's repository; None: the fork was deleted."""


class _Linked(Part):
    """A pull request, as far as a check names it."""

    number: Number
    head: _Head
    base: _Head
    labels: tuple[Label, ...] = ()

    def about(self, repository: Repository) -> dict[str, Any]:
        head = self.head
        return {
            "number": self.number,
            "ref": PLATFORMS["github"].ref.format(self.number),
            "head": head.ref,
            "head_sha": head.sha,
            "base": self.base.ref,
            "is_fork": head.repo is None or head.repo.id != repository.id,
            "labels": payloads.names(self.labels),
        }


class _PullRequest(_Linked):
    state: Name = "open"
    draft: bool = False
    updated_at: Time


class _Delivery(Payload):
    action: str
    repository: Repository
    sender: Account


class _PullRequestDelivery(_Delivery):
    pull_request: _PullRequest

    def event(self, _mention: str) -> HookEvent | None:
        kind, request = payloads.KINDS.get(self.action), self.pull_request
        if kind is None or (kind != CLOSED and request.state != "open"):
            return None
        about = self.repository.done_by(self.sender) | request.about(self.repository)
        return HookEvent(kind=kind, **about, is_draft=request.draft, changed_at=payloads.micros(request.updated_at))


class _IssueDelivery(_Delivery):
    """A change of an issue; labels of pull requests come as events of those."""

    issue: Issue
    label: Label | None = None
    """The label that was set; Forgejo does not say which, nor who was assigned, so there all that it has count."""
    assignee: Account | None = None

    def event(self, mention: str) -> HookEvent | None:
        issue = self.issue
        if issue.pull_request is not None:
            return None
        change = payloads.KINDS.get(self.action, self.action)
        labels: payloads.Names = ()
        assignees: payloads.Names = ()
        if change == "labeled":
            labels = (self.label,) if self.label else issue.labels
        elif change == "assigned":
            assignees = (self.assignee,) if self.assignee else issue.assignees
        sender = self.repository.done_by(self.sender)
        is_authors = self.sender.is_one(issue.user)
        return issue.change_event(sender, mention, change, labels, assignees, is_authors=is_authors)


class _Comment(Part):
    id: int
    body: Words = ""
    user: Account | None = None
    created_at: Time
    path: Name = ""
    """The file that a comment on the diff is about."""
    line: int | None = None


class _CommentDelivery(_Delivery):
    is_comment: ClassVar[bool] = True
    issue: Issue | None = None
    """All that GitHub sends about the pull request with a comment on the whole."""
    pull_request: _PullRequest | None = None
    comment: _Comment

    def event(self, mention: str) -> HookEvent | None:
        comment, issue = self.comment, self.issue
        request = payloads.command_of(comment.body, mention)
        if request is None or self.action not in {"created", "edited"}:
            return None
        if comment.path:
            line = f", line {comment.line}" if comment.line else ""
            request["words"] = f"On {comment.path}{line}: {request['words']}"
        about = self.repository.done_by(self.sender) | request
        if self.pull_request is not None:
            subject = payloads.over(self.pull_request.state)
            about |= self.pull_request.about(self.repository)
        elif issue is None:
            return None
        elif issue.pull_request is not None:
            subject = payloads.over(issue.state)
            about |= {"number": issue.number, "labels": payloads.names(issue.labels)}
        else:
            about |= issue.about
            subject = about["fault"]
        is_edited = self.action == "edited"
        is_authors = self.sender.is_one(comment.user)
        fault = payloads.faults(comment.body, subject, is_edited=is_edited, is_authors=is_authors)
        return payloads.comment_event(about, comment.id, fault, comment.created_at)


class _Check(Part):
    name: Name | None = None
    head_sha: Sha
    conclusion: str | None = None
    completed_at: Time | None = None
    updated_at: Time | None = None
    pull_requests: tuple[_Linked, ...] = ()
    """The pull requests with this head; empty for forks."""


class _CheckDelivery(_Delivery):
    check_run: _Check | None = None
    workflow_run: _Check | None = None
    workflow: Label | None = None

    def event(self, _mention: str) -> HookEvent | None:
        check = self.check_run or self.workflow_run
        if check is None or self.action != "completed" or check.conclusion not in _FAILURES:
            return None
        pulls = [pull for pull in check.pull_requests if pull.base.repo and pull.base.repo.id == self.repository.id]
        at = check.completed_at or check.updated_at
        if not pulls or at is None:
            return None
        # Several pull requests can share a head; the run is about the head.
        linked = next((pull for pull in pulls if pull.head.sha == check.head_sha), pulls[0])
        about = self.repository.done_by(self.sender) | linked.about(self.repository)
        head = linked.head.sha
        about["fault"] = "" if head == check.head_sha else f"the pull request is at {head[:12]} by now"
        return payloads.check_event(
            about, check.name or (self.workflow.name if self.workflow else ""), check.head_sha, at
        )


PAYLOADS: Final[dict[str, type[Payload]]] = {
    "pull_request": _PullRequestDelivery,
    "issues": _IssueDelivery,
    "issue_comment": _CommentDelivery,
    "pull_request_review_comment": _CommentDelivery,
    "check_run": _CheckDelivery,
    "workflow_run": _CheckDelivery,
}


class _Retitled(Part):
    old: Annotated[Words, Field(validation_alias=AliasPath("title", "from"))] = ""


class _ForgejoPullRequestDelivery(_PullRequestDelivery):
    """A delivery from Forgejo, where only the title marks a draft."""

    changes: _Retitled = _Retitled()

    def event(self, mention: str) -> HookEvent | None:
        is_ready = self.action == "edited" and _DRAFT.match(self.changes.old) and not self.pull_request.draft
        delivery = self.model_copy(update={"action": "ready_for_review"}) if is_ready else self
        return _PullRequestDelivery.event(delivery, mention)


class _ForgejoRun(Part):
    workflow_id: Name = ""
    repository: Repository
    prettyref: Name
    """The branch, or `#` and the number of a pull request."""
    commit_sha: Sha
    status: str
    stopped: Time


class _ForgejoRunDelivery(Payload):
    """The end of a Forgejo Actions run."""

    run: _ForgejoRun

    def event(self, _mention: str) -> HookEvent | None:
        run = self.run
        match = _NUMBER.fullmatch(run.prettyref)
        about = run.repository.done_by(Account()) | ({"number": int(match[1])} if match else {"head": run.prettyref})
        if run.status == "failure":
            return payloads.check_event(about, run.workflow_id, run.commit_sha, run.stopped)
        return None


FORGEJO_PAYLOADS: Final[dict[str, type[Payload]]] = {
    "pull_request": _ForgejoPullRequestDelivery,
    "issues": _IssueDelivery,
    "issue_comment": _CommentDelivery,
    "action_run_failure": _ForgejoRunDelivery,
}
