"""The screens' requests to the app: each message bubbles up from the screen that posts it."""

from dataclasses import dataclass
from typing import Final

from textual.message import Message

FOLLOWED: Final = "is:followed"
"""The target in Runs: the followed runs."""
FIRST_UNKNOWN: Final = "unknown"
"""The target in Activity: its first write of unknown outcome."""


@dataclass
class OpenRun(Message):
    """Show one run on the full screen."""

    run_id: str
    profile: str = ""
    """The profile whose run it is: the console switches to it. Empty: the one on show."""
    part: str = "conversation"
    """The part of its page to show."""


@dataclass
class FollowRun(Message):
    """Follow these runs; unfollow them if all are followed."""

    run_ids: tuple[str, ...]
    profile: str = ""
    """The profile whose runs they are. Empty: the one on show."""


@dataclass
class GoToTab(Message):
    """Show another tab and a target in it."""

    name: str
    target: str | None = None
    """The key of a row, or for runs a line of the query language; None: the tab as it was left."""


@dataclass
class SwitchProfile(Message):
    """Show another profile."""

    name: str
