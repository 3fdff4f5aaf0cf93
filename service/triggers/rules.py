"""Rules: which changes, comments and failed checks of a pull request start which agent; without rules none does."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.triggers.events import COMMENT, FAILED, PullRequestEvent

Kind = Literal["opened", "ready", "pushed", "reopened", "labeled", "comment", "failed"]
_Text = Annotated[str, Field(min_length=1, max_length=200)]


class TriggerRule(BaseModel):
    """One rule of a repository."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    agent: _Text
    instructions: Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S")]
    """The agent's task. Of foreign text, only a comment's words by an allowed author are added to it."""
    on: Annotated[tuple[Kind, ...], Field(min_length=1)] = ("opened", "ready", "pushed")
    branches: Annotated[tuple[_Text, ...], Field(min_length=1)] = ("*",)
    """Patterns of the branch that the pull request is to be merged into."""
    labels: tuple[_Text, ...] = ()
    """The pull request has one of them; without any, labels do not matter."""
    drafts: bool = False
    bots: bool = False
    """Whether changes made by bots start it, too."""
    forks: Literal["no", "approve", "without_secrets"] = "no"
    """Of heads in a fork: start nothing, wait for the operator, or start it without secrets and a way out."""

    authors: tuple[_Text, ...] = ()
    """The accounts whose comments start it."""
    command: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,99}$")] = "review"
    """The word after the mention in a comment that starts it."""
    checks: Annotated[tuple[_Text, ...], Field(min_length=1)] = ("*",)
    """Patterns of the checks, workflows or pipelines whose failure starts it."""
    own_commits: Annotated[int, Field(ge=0, le=20)] = 0
    """How often, in one pull request, it also starts when a check of a commit by the service failed."""

    @model_validator(mode="after")
    def _names_authors(self) -> Self:
        if COMMENT in self.on and not self.authors:
            raise ValueError('a rule on comments needs their authors, such as authors = ["dora"]')
        return self

    def mismatch(self, event: PullRequestEvent) -> str | None:
        """The reason why an event starts no run by this rule; None: it starts one."""
        reasons = (
            (event.kind not in self.on, f"not on {event.kind}"),
            (event.kind == COMMENT and event.command != self.command, f"not for the command {event.command!r}"),
            (
                event.kind == COMMENT and event.sender.lower() not in {name.lower() for name in self.authors},
                f"{event.sender} is not among its authors",
            ),
            (
                event.kind == FAILED and not any(fnmatchcase(event.check, one) for one in self.checks),
                f"not for the check {event.check}",
            ),
            (
                # As long as the pull request is not known, any branch may be its target.
                bool(event.base) and not any(fnmatchcase(event.base, one) for one in self.branches),
                f"not for the branch {event.base}",
            ),
            (bool(self.labels) and not {*self.labels} & {*event.labels}, "without its label"),
            (event.is_draft and not self.drafts, "a draft"),
            (event.is_bot and not self.bots, "done by a bot"),
            (event.is_fork and self.forks == "no", "the head is in a fork"),
        )
        return next((text for holds, text in reasons if holds), None)
