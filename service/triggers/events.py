"""Deliveries: the proof that a code host sent one, and its content as a change of a pull request."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from service.clock import EPOCH, MICROSECOND
from service.errors import ServiceError, first_fault

_SIGNATURE: Final = re.compile(r"sha256=[0-9a-f]{64}")
_PROOFS: Final = {"github": "x-hub-signature-256", "gitlab": "x-gitlab-token"}
"""The headers with the proof that a code host sent a delivery."""
_DELIVERY: Final = re.compile(r"[A-Za-z0-9-]{8,100}", re.ASCII)
_GITLAB_BOT: Final = re.compile(r"(project|group)_[0-9]+_bot(_|\b)")
CLOSED: Final = "closed"
"""The change of a pull request that was closed or merged; no rule is about it."""
_KINDS: Final = {
    "opened": "opened",
    "synchronize": "pushed",
    "reopened": "reopened",
    "ready_for_review": "ready",
    "labeled": "labeled",
    "open": "opened",
    "reopen": "reopened",
    **dict.fromkeys(("closed", "close", "merge"), CLOSED),
}
"""The actions of GitHub and GitLab, and the change that each means; GitLab's `update` means one of several."""
_Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
_Number = Annotated[int, Field(ge=1, lt=1 << 31)]
_Name = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")]
"""A name of any kind: text that a database can store, no longer than code hosts allow."""


class PayloadError(ServiceError):
    """The body is not what the code host's documentation says; the text names the field."""


@dataclass(frozen=True, slots=True)
class PullRequestEvent:
    """A change of a pull request, on either platform."""

    kind: str
    path: str
    """The path of the repository that the pull request is to be merged into."""
    number: int
    ref: str
    """The ref under which that repository keeps the head, also the head of a fork."""
    head: str
    head_sha: str
    base: str
    default_branch: str | None
    is_fork: bool
    is_draft: bool
    labels: tuple[str, ...]
    sender: str
    is_bot: bool
    changed_at: int


class _Model(BaseModel):
    """A part of a payload; fields that are not declared are ignored."""


class _Named(_Model):
    name: _Name = ""
    title: _Name = ""


class _Repository(_Model):
    id: int
    full_name: _Name
    default_branch: _Name | None = None


class _Head(_Model):
    ref: _Name
    sha: _Sha
    repo: _Repository | None = None
    """None: the fork was deleted."""


class _PullRequest(_Model):
    number: _Number
    head: _Head
    base: _Head
    state: str = "open"
    draft: bool = False
    labels: list[_Named] = []
    updated_at: datetime


class _Sender(_Model):
    login: _Name
    type: str = "User"


class _GitHub(_Model):
    action: str
    pull_request: _PullRequest
    repository: _Repository
    sender: _Sender

    def event(self) -> PullRequestEvent | None:
        kind = _KINDS.get(self.action)
        pull_request = self.pull_request
        if kind is None or (kind != CLOSED and pull_request.state != "open"):
            return None
        head = pull_request.head
        return PullRequestEvent(
            kind=kind,
            path=self.repository.full_name,
            number=pull_request.number,
            ref=f"refs/pull/{pull_request.number}/head",
            head=head.ref,
            head_sha=head.sha,
            base=pull_request.base.ref,
            default_branch=self.repository.default_branch,
            is_fork=head.repo is None or head.repo.id != self.repository.id,
            is_draft=pull_request.draft,
            labels=tuple(label.name for label in pull_request.labels),
            sender=self.sender.login,
            is_bot=self.sender.type == "Bot" or self.sender.login.endswith("[bot]"),
            changed_at=_micros(pull_request.updated_at),
        )


class _Commit(_Model):
    id: _Sha


class _Attributes(_Model):
    iid: _Number
    action: str = ""
    """Empty when GitLab only recomputed something."""
    oldrev: str | None = None
    """The head before a push; None: nothing was pushed."""
    state: str = "opened"
    source_branch: _Name
    target_branch: _Name
    source_project_id: int | None = None
    target_project_id: int
    last_commit: _Commit
    draft: bool = False
    work_in_progress: bool = False
    updated_at: str


class _User(_Model):
    username: _Name


class _Project(_Model):
    path_with_namespace: _Name
    default_branch: _Name | None = None


class _GitLab(_Model):
    user: _User
    project: _Project
    object_attributes: _Attributes
    labels: list[_Named] = []
    changes: dict[str, object] = {}

    def event(self) -> PullRequestEvent | None:
        given = self.object_attributes
        kind = _KINDS.get(given.action) if given.action != "update" else self._update()
        if kind is None or (kind != CLOSED and given.state != "opened"):
            return None
        return PullRequestEvent(
            kind=kind,
            path=self.project.path_with_namespace,
            number=given.iid,
            ref=f"refs/merge-requests/{given.iid}/head",
            head=given.source_branch,
            head_sha=given.last_commit.id,
            base=given.target_branch,
            default_branch=self.project.default_branch,
            is_fork=given.source_project_id != given.target_project_id,
            is_draft=given.draft or given.work_in_progress,
            labels=tuple(label.title for label in self.labels),
            sender=self.user.username,
            is_bot=_GITLAB_BOT.match(self.user.username) is not None,
            changed_at=_micros(_gitlab_time(given.updated_at)),
        )

    def _update(self) -> str | None:
        if self.object_attributes.oldrev:
            return "pushed"
        if "draft" in self.changes and not self.object_attributes.draft:
            return "ready"
        return "labeled" if "labels" in self.changes else None


_PULL_REQUESTS: Final[Mapping[str, tuple[str, str, type[_GitHub] | type[_GitLab]]]] = {
    "github": ("x-github-event", "pull_request", _GitHub),
    "gitlab": ("x-gitlab-event", "Merge Request Hook", _GitLab),
}


def authentic(platform: str, headers: Mapping[str, str], raw: bytes, secrets: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the secrets with which a delivery is signed; header names are in lower case.

    GitHub's older header, with SHA-1, is not accepted.
    """
    given = headers.get(_PROOFS[platform], "")
    if platform == "github" and not _SIGNATURE.fullmatch(given):
        return frozenset()

    def proof(secret: str) -> bytes:
        if platform == "gitlab":
            return secret.encode()
        return b"sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest().encode()

    # All secrets are compared, each in constant time, so that the time taken says nothing about them.
    found = {name: hmac.compare_digest(proof(secret), given.encode()) for name, secret in secrets.items()}
    return frozenset(name for name, matches in found.items() if matches)


def may_be_authentic(platform: str, headers: Mapping[str, str], secrets: Mapping[str, str]) -> bool:
    """Whether the headers hold a possible proof; without one the body need not be read."""
    if platform == "gitlab":
        return bool(authentic(platform, headers, b"", secrets))
    return _SIGNATURE.fullmatch(headers.get(_PROOFS[platform], "")) is not None


def delivery_id(platform: str, headers: Mapping[str, str], raw: bytes) -> str:
    """Return the id of a delivery, which stays the same when the code host sends it again."""
    if platform == "github":
        given = headers.get("x-github-delivery", "")
        return given if _DELIVERY.fullmatch(given) else hashlib.sha256(raw).hexdigest()
    if _DELIVERY.fullmatch(given := headers.get("idempotency-key", "")):
        return given
    # GitLab before 17.4 has only this id, which related events share, so the body is added.
    return f"{headers.get('x-gitlab-event-uuid', '')[:40]}:{hashlib.sha256(raw).hexdigest()}"


def read(platform: str, headers: Mapping[str, str], raw: bytes) -> PullRequestEvent | None:
    """Return the change of a pull request that a delivery reports; None: it reports none that a rule can name.

    Raises:
        PayloadError: It is about a pull request, and cannot be read.
    """
    header, name, model = _PULL_REQUESTS[platform]
    if headers.get(header) != name:
        return None
    try:
        document = json.loads(raw)
        return model.model_validate(document).event()
    except ValidationError as error:
        raise PayloadError(first_fault(error)) from error
    except (ValueError, RecursionError) as error:
        raise PayloadError("the body is not JSON: choose the content type application/json for the webhook") from error


def _gitlab_time(text: str) -> datetime:
    # RFC 3339, or the form of older versions: 2026-01-31 08:00:00 UTC.
    return datetime.fromisoformat(text.replace(" UTC", "+00:00"))


def _micros(at: datetime) -> int:
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
