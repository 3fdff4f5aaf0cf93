"""The common parts of all code hosts' payloads, and their conversion to events."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final

from markdown_it import MarkdownIt
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, model_validator

from service.clock import EPOCH, MICROSECOND
from service.rules import CLOSED, COMMENT, CONFIDENTIAL, FAILED, ISSUE, HookEvent, IssueText
from service.text import one_line, printable

_BOT: Final = re.compile(r".*\[bot\]|(forgejo|gitea)-actions|(project|group)_[0-9]+_bot(_.*)?")
_MAX_WORDS: Final = 20_000
_HIDDEN: Final = re.compile(
    r"""
    <!--(?:-?>|.*?(?:-->|\Z)) | <\?.*?(?:\?>|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <![a-z][^>]*(?:>|\Z)
    | ^[ \t>*+.)\d-]*\[(?!\^)(?:\\.|[^\[\]\\]){1,999}\]:\s*(?:<[^<>\n]*>|[^\s<]\S*)  # the definition of a link
      (?:\s+(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)))?[ \t]*$
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
"""HTML and Markdown that code hosts do not show, so nobody who reads the issue would see it."""
_MARKDOWN: Final = MarkdownIt("commonmark")
_CODE: Final = frozenset({"fence", "code_block"})
_OPEN: Final = ("open", "opened")
KINDS: Final = {
    "ready_for_review": "ready",
    **dict.fromkeys(("opened", "open"), "opened"),
    **dict.fromkeys(("reopened", "reopen"), "reopened"),
    **dict.fromkeys(("synchronize", "synchronized"), "pushed"),
    **dict.fromkeys(("labeled", "label_updated"), "labeled"),
    **dict.fromkeys(("closed", "close", "merge", "deleted", "transferred"), CLOSED),
}
"""The actions of GitHub, GitLab and Forgejo, and the change that each means; GitLab's `update` means one of several."""
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
Number = Annotated[int, Field(ge=1, lt=1 << 31)]
Name = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")]
"""A name of any kind: text that a database can store, no longer than code hosts allow."""
Words = Annotated[str, Field(pattern=r"^[^\x00]*$")]
# RFC 3339, or GitLab's form: 2026-01-31 08:00:00 UTC, or +0100 in the zone that it is set to.
Time = Annotated[
    datetime,
    BeforeValidator(lambda at: re.sub(r" (?=[+-])", "", at.replace(" UTC", "Z")) if isinstance(at, str) else at),
]


class Part(BaseModel):
    """A part of a payload; fields that are not declared are ignored, and one that is null counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def drop_nulls(cls, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        return {name: value for name, value in part.items() if value is not None}


class Payload(Part):
    """A whole payload."""

    is_comment: ClassVar[bool] = False

    def event(self, mention: str) -> HookEvent | None:
        """Return the payload's event; None if rules have no name for it."""
        raise NotImplementedError


class Label(Part):
    """A label; GitLab's has a title."""

    name: Annotated[Name, Field(validation_alias=AliasChoices("title", "name"))] = ""


class Account(Part):
    """A user account on the code host."""

    id: int | None = None
    name: Annotated[Name, Field(validation_alias=AliasChoices("login", "username"))] = ""
    type: str = "User"

    def is_one(self, other: "Account | None") -> bool:
        return other is not None and other.name == self.name


Names = Sequence[Label] | Sequence[Account]


class Repository(Part):
    """A repository on GitHub, or a project on GitLab."""

    id: int | None = None
    path: Annotated[Name, Field(validation_alias=AliasChoices("full_name", "path_with_namespace"))]
    default_branch: Name | None = None

    def done_by(self, sender: Account) -> dict[str, Any]:
        """Return the repository's fields of an event."""
        is_bot = sender.type == "Bot" or _BOT.fullmatch(sender.name) is not None
        return {"path": self.path, "default_branch": self.default_branch, "sender": sender.name, "is_bot": is_bot}


class Issue(Part):
    """An issue; on GitLab also a task or incident."""

    number: Annotated[Number, Field(validation_alias=AliasChoices("number", "iid"))]
    title: Name
    body: Annotated[Words, Field(validation_alias=AliasChoices("body", "description"))] = ""
    state: Name = "open"
    locked: Annotated[bool, Field(validation_alias=AliasChoices("locked", "is_locked", "discussion_locked"))] = False
    confidential: bool = False
    user: Account | None = None
    author_id: int | None = None
    labels: tuple[Label, ...] = ()
    assignees: tuple[Account, ...] = ()
    pull_request: object = None
    """What makes it a pull request; None: it is none."""
    action: str = ""
    """The action of a change on GitLab."""
    updated_at: Time

    @property
    def about(self) -> dict[str, Any]:
        text = self.body.replace("\r", "")
        safe = printable(_without_hidden_parts(text[:_MAX_WORDS]))
        if len(text) > _MAX_WORDS:
            safe += f"\n[{len(text) - _MAX_WORDS} more characters are left out]"
        reasons = ((self.confidential, "confidential"), (self.locked, "locked"), (self.state not in _OPEN, self.state))
        fault = next((f"the issue is {word}" for holds, word in reasons if holds), "")
        return {"number": self.number, "issue": IssueText(one_line(self.title), safe), "fault": fault}

    def change_event(
        self, sender: dict[str, Any], mention: str, change: str, labels: Names, assignees: Names, *, is_authors: bool
    ) -> HookEvent | None:
        """Return the event for a change that adds the `labels` and the `assignees`."""
        about = sender | self.about | {"changed_at": micros(self.updated_at)}
        if change in {CLOSED, CONFIDENTIAL}:
            return HookEvent(kind=CLOSED, **about, occasion=change)
        text = about["issue"].text
        request = command_of(text, mention) if change == "opened" else None
        if request is not None:
            # The author's words are instructions, so they are not repeated as the issue's text.
            fault = faults(text, about["fault"], is_edited=False, is_authors=is_authors)
            about |= request | {"issue": replace(about["issue"], text=""), "fault": fault}
        elif not labels and not assignees:
            return None
        about |= {"labels": names(labels), "assignees": names(assignees)}
        return HookEvent(kind=ISSUE, **about, occasion=f"issue at {about['changed_at']}")


def _without_hidden_parts(text: str) -> str:
    """Return Markdown with its hidden comments replaced; code blocks have none."""
    lines = re.split(r"(?<=\n)", text)  # as the parser counts them
    parts, end = list[str](), 0
    for begin, after in [token.map for token in _MARKDOWN.parse(text) if token.type in _CODE and token.map]:
        parts += [_HIDDEN.sub("[hidden comment]", "".join(lines[end:begin])), *lines[begin:after]]
        end = after
    return "".join([*parts, _HIDDEN.sub("[hidden comment]", "".join(lines[end:]))])


def names(parts: Names) -> tuple[str, ...]:
    return tuple(part.name for part in parts)


def command_of(body: str, mention: str) -> dict[str, str] | None:
    """Return the `command` and the further `words` of a comment that begins with the mention; None: it does not.

    Four blanks, or a tab, make it a block of code.
    """
    begun = rf"(?:[^\S\n]*\n)* {{0,3}}@{re.escape(mention)}(?![\w-])"
    match = re.match(rf"{begun}\s*([\w-]*)\s*(.*)", body, re.IGNORECASE | re.DOTALL)
    if match is None:
        return None
    return {"command": match[1].lower()[:100], "words": match[2].strip()}


def over(state: str) -> str:
    """Return why a comment on a pull request in this state starts nothing; empty if it can start a run."""
    return "" if state in _OPEN else f"the pull request is {state}"


def faults(body: str, subject: str, *, is_edited: bool, is_authors: bool) -> str:
    """Return why a comment starts nothing; empty if it can. `subject`: the problem with the commented subject."""
    reasons = (
        ("<!-- runwarden" in body, "the service wrote it"),
        (is_edited, "the comment was edited: only a new one counts"),
        (not is_authors, "it was sent by another than its author"),
        (len(body) > _MAX_WORDS, f"it is longer than {_MAX_WORDS} characters"),
        (bool(subject), subject),
    )
    return next((text for holds, text in reasons if holds), "")


def comment_event(about: dict[str, Any], number: int, fault: str, at: datetime) -> HookEvent:
    about |= {"fault": fault, "changed_at": micros(at)}
    return HookEvent(kind=ISSUE if "issue" in about else COMMENT, **about, occasion=f"comment {number}")


def check_event(about: dict[str, Any], name: str, commit: str, at: datetime) -> HookEvent:
    """Return the event of a failed check; its sender is ignored, being the pusher or the checking program."""
    about |= {"is_bot": False, "head_sha": commit, "changed_at": micros(at), "check": name}
    return HookEvent(kind=FAILED, **about, occasion=f"{commit} {name}")


def micros(at: datetime) -> int:
    """Return a time in microseconds since 1970; without a zone it is UTC."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
