"""GitLab's deliveries about merge requests, issues, notes and pipelines."""

import re
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

from pydantic import AliasChoices, Field

from service.reference import PLATFORMS
from service.rules import CLOSED, CONFIDENTIAL, HookEvent
from service.triggers import payloads
from service.triggers.payloads import Account, Issue, Label, Name, Number, Part, Payload, Repository, Sha, Time, Words

_MERGE_REQUEST: Final = re.compile(r"refs/merge-requests/([0-9]{1,9})/")
INTERNAL: Final = "the note is internal"
_Item = TypeVar("_Item", Label, Account)


class _Commit(Part):
    id: Sha


class _Request(Part):
    iid: Number
    source_branch: Name
    target_branch: Name
    source_project_id: int | None = None
    target_project_id: int
    last_commit: _Commit | None = None
    state: Name = "opened"
    labels: tuple[Label, ...] = ()
    """The labels of a note's merge request."""

    def about(self, labels: tuple[Label, ...]) -> dict[str, Any]:
        return {
            "number": self.iid,
            "ref": PLATFORMS["gitlab"].ref.format(self.iid),
            "head": self.source_branch,
            "head_sha": self.last_commit.id if self.last_commit else "",
            "fault": "" if self.last_commit else "the merge request has no commits",
            "base": self.target_branch,
            "is_fork": self.source_project_id != self.target_project_id,
            "labels": payloads.names(labels),
        }


class _Attributes(_Request):
    action: str = ""
    """The action; empty when GitLab only recomputed something."""
    oldrev: str | None = None
    """The head before a push; None: nothing was pushed."""
    draft: bool = False
    work_in_progress: bool = False
    updated_at: Time


class _Delivery(Payload):
    user: Account
    project: Repository


class _RequestDelivery(_Delivery):
    object_attributes: _Attributes
    labels: tuple[Label, ...] = ()
    changes: dict[str, object] = Field(default_factory=dict)

    def event(self, _mention: str) -> HookEvent | None:
        request = self.object_attributes
        kind = payloads.KINDS.get(self.object_attributes.action)
        if request.action == "update":
            was_draft = "draft" in self.changes and not request.draft
            changed = ((request.oldrev, "pushed"), (was_draft, "ready"), ("labels" in self.changes, "labeled"))
            kind = next((name for holds, name in changed if holds), None)
        if kind is None or (kind != CLOSED and request.state != "opened"):
            return None
        about = self.project.done_by(self.user) | request.about(self.labels)
        is_draft = request.draft or request.work_in_progress
        changed_at = payloads.micros(request.updated_at)
        return HookEvent(kind=kind, **about, is_draft=is_draft, changed_at=changed_at)


class _Change(Part, Generic[_Item]):
    previous: tuple[_Item, ...] = ()
    current: tuple[_Item, ...] = ()

    @property
    def new(self) -> tuple[_Item, ...]:
        return tuple(item for item in self.current if item not in self.previous)


class _IssueChanges(Part):
    labels: _Change[Label] = _Change[Label]()
    assignees: _Change[Account] = _Change[Account]()
    confidential: object = None


class _IssueDelivery(_Delivery):
    object_attributes: Issue
    labels: tuple[Label, ...] = ()
    assignees: tuple[Account, ...] = ()
    changes: _IssueChanges = _IssueChanges()

    def event(self, mention: str) -> HookEvent | None:
        issue = self.object_attributes
        change = payloads.KINDS.get(issue.action, issue.action)
        labels, assignees = self.changes.labels.new, self.changes.assignees.new
        if issue.confidential and self.changes.confidential:
            change = CONFIDENTIAL
        if change == "opened":
            labels, assignees = self.labels, self.assignees
        sender = self.project.done_by(self.user)
        is_authors = issue.author_id == self.user.id
        return issue.change_event(sender, mention, change, labels, assignees, is_authors=is_authors)


class _Note(Part):
    id: int
    note: Words = ""
    noteable_type: str = ""
    system: bool = False
    internal: Annotated[bool, Field(validation_alias=AliasChoices("internal", "confidential"))] = False
    action: str = ""
    """The action; empty in older versions of GitLab, which send edited notes as well."""
    author_id: int
    created_at: Time
    updated_at: Time


class _NoteDelivery(_Delivery):
    is_comment: ClassVar[bool] = True
    object_attributes: _Note
    merge_request: _Request | None = None
    issue: Issue | None = None

    def event(self, mention: str) -> HookEvent | None:
        note, pull = self.object_attributes, self.merge_request
        request = payloads.command_of(note.note, mention)
        if request is None or note.system:
            return None
        about = self.project.done_by(self.user) | request
        if note.noteable_type == "MergeRequest" and pull is not None:
            about |= pull.about(pull.labels)
            subject = payloads.over(pull.state) or about["fault"]
        elif note.noteable_type == "Issue" and self.issue is not None:
            about |= self.issue.about
            subject = about["fault"]
        else:
            return None
        is_edited = note.action != "create" if note.action else note.updated_at != note.created_at
        is_authors = note.author_id == self.user.id
        fault = payloads.faults(note.note, subject, is_edited=is_edited, is_authors=is_authors)
        return payloads.comment_event(about, note.id, INTERNAL if note.internal else fault, note.created_at)


class _Pipeline(Part):
    name: Name | None = None
    ref: Name
    sha: Sha
    status: str
    created_at: Time
    finished_at: Time | None = None


class _PipelineDelivery(Payload):
    user: Account = Account()
    project: Repository
    object_attributes: _Pipeline

    def event(self, _mention: str) -> HookEvent | None:
        run = self.object_attributes
        if run.status != "failed":
            return None
        # The pipeline of a push names no merge request, and one of a merge request may be about another commit.
        match = _MERGE_REQUEST.match(run.ref)
        about = self.project.done_by(self.user) | {"head": run.ref} | ({"number": int(match[1])} if match else {})
        return payloads.check_event(about, run.name or "pipeline", run.sha, run.finished_at or run.created_at)


PAYLOADS: Final[dict[str, type[Payload]]] = {
    "Merge Request Hook": _RequestDelivery,
    "Issue Hook": _IssueDelivery,
    "Confidential Issue Hook": _IssueDelivery,
    "Note Hook": _NoteDelivery,
    "Confidential Note Hook": _NoteDelivery,
    "Pipeline Hook": _PipelineDelivery,
}
