"""The part of the app that is about profiles: which there are, and going from one to another."""

from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding, BindingType

from app.config import Profile
from app.console.follow.app import FollowingApp
from app.console.tabs import OVERVIEW

if TYPE_CHECKING:
    from app.console.app import RunwardenApp
    from app.console.profiles.engines import ProfileEngines

WRITING: Final = frozenset({"send", "import"})
"""Groups of workers that write to the service: ended in the middle, nobody would know what they did."""


class ProfilesApp(FollowingApp):
    """An app that shows one profile of several."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "profiles", "switch profile", show=False, tooltip="To another service", id="app.profiles"),
        Binding(
            "0",
            f"room('{OVERVIEW}')",
            "all profiles",
            show=False,
            tooltip="Each with its worst trouble",
            id="room.profiles",
        ),
    ]

    profile: Profile
    profile_engines: "ProfileEngines | None" = None
    """None: only the profile on show can be opened from here."""

    def action_profiles(self) -> None:
        """Asks for another profile."""
        from app.console.profiles.switcher import ProfileSwitcher

        if self.profile_engines is None or len(self.profile_engines.profiles) == 1:
            self.say("There is one profile. Another one is a [profiles.NAME] in the configuration.")
        else:
            self.push_screen(ProfileSwitcher(self.profile_engines, self.profile.name), self.switch_profile)

    def switch_profile(self, name: str | None) -> None:
        """Shows another profile; None, or the one on show: nothing happens."""
        if name is None or name == self.profile.name or self.profile_engines is None:
            return
        if any(worker.group in WRITING and not worker.is_finished for worker in self.workers):
            self.say("Something is being sent. Switch when its outcome is known.", severity="warning")
            return
        if not self.is_settled:
            self.say(self.not_open)
            return
        from app.console.profiles.switching import switch

        self.run_worker(
            switch(cast("RunwardenApp", self), self.profile_engines, name), group="switch", exit_on_error=True
        )

    @property
    def is_settled(self) -> bool:
        """Whether the profile on show was opened, or could not be."""
        raise NotImplementedError
