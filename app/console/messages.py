"""What screens ask of the app: each message bubbles up from the screen that posts it."""

from typing import Final

from textual.message import Message

from storage.lazy_dataclass import dataclass

UNKNOWN_PLACE: Final = "unknown"
"""The place in Activity of the first write whose outcome a person has to find out."""


@dataclass
class OpenRun(Message):
    """Show one run on the whole screen."""

    run_id: str


@dataclass
class FollowRun(Message):
    """Follow runs to their end; where all of them are followed, they are unfollowed."""

    run_ids: tuple[str, ...]


@dataclass
class GoToTab(Message):
    """Show another tab, and a place in it."""

    name: str
    place: str | None = None
    """The key of what the cursor goes to, or of the runs a line of the query language; None: all stays."""


@dataclass
class SwitchProfile(Message):
    """Show another profile."""

    name: str
