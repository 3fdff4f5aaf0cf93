"""The screens' requests to the app: each message bubbles up from the screen that posts it."""

from typing import Final

from textual.message import Message

from storage.lazy_dataclass import dataclass

UNKNOWN_PLACE: Final = "unknown"
"""The place of the first write of unknown outcome in Activity."""


@dataclass
class OpenRun(Message):
    """Show one run on the full screen."""

    run_id: str


@dataclass
class FollowRun(Message):
    """Follow these runs; unfollow them if all are followed."""

    run_ids: tuple[str, ...]


@dataclass
class GoToTab(Message):
    """Show another tab and a place in it."""

    name: str
    place: str | None = None
    """The key of a row, or for runs a line of the query language; None: keep the place."""


@dataclass
class SwitchProfile(Message):
    """Show another profile."""

    name: str
