"""What screens ask of the app: each message bubbles up from the screen that posts it."""

from dataclasses import dataclass

from textual.message import Message


@dataclass
class OpenRun(Message):
    """Show one run on the whole screen."""

    run_id: str


@dataclass
class FollowRun(Message):
    """Follow a run to its end; a followed one is unfollowed."""

    run_id: str


@dataclass
class GoToTab(Message):
    """Show another tab."""

    name: str


@dataclass
class SwitchProfile(Message):
    """Show another profile."""

    name: str
