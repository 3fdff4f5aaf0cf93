"""Rules: which changes of a pull request start which agent. A repository without rules starts none."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.triggers.events import PullRequestEvent

Kind = Literal["opened", "ready", "pushed", "reopened", "labeled"]
_Text = Annotated[str, Field(min_length=1, max_length=200)]


class TriggerRule(BaseModel):
    """One rule of a repository."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    agent: _Text
    instructions: Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S")]
    """What the agent is told. Nothing that people write into a pull request is added to it."""
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

    def mismatch(self, event: PullRequestEvent) -> str | None:
        """The reason why an event starts no run by this rule; None: it starts one."""
        reasons = (
            (event.kind not in self.on, f"not on {event.kind}"),
            (not any(fnmatchcase(event.base, one) for one in self.branches), f"not for the branch {event.base}"),
            (bool(self.labels) and not {*self.labels} & {*event.labels}, "without its label"),
            (event.is_draft and not self.drafts, "a draft"),
            (event.is_bot and not self.bots, "done by a bot"),
            (event.is_fork and self.forks == "no", "the head is in a fork"),
        )
        return next((text for holds, text in reasons if holds), None)
