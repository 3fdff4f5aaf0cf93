"""The tab that compares all profiles."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList, Static

from app.console.base.screen import OVERVIEW, BaseScreen
from app.console.messages import GoToTab, SwitchProfile
from app.console.profiles.engines import ProfileEngines
from app.console.profiles.overview import GENTLE_S, ProfileOverview
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.events import Event
from widgets.after_refresh import after_refresh
from widgets.badges import STYLES
from widgets.frame.freshness import PollTiming
from widgets.profiles import NEEDS_A_LOOK, Criteria, ProfileFacts, ProfileList, worst

LOOK_S: Final = 5.0
"""Seconds between two readings of the caches; services are polled far less often."""


class ProfilesScreen(BaseScreen):
    """Lists every profile with its state."""

    TAB = OVERVIEW
    CSS = """
    #profiles-title { height: 1; padding: 0 2; margin: 0 0 1 0; }
    ProfileList { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.tab('runs')", "back", key_display="esc", id="profiles.back"),
        Binding("r", "refresh", "refresh", tooltip="Ask every service now", id="app.refresh"),
    ]

    def __init__(self, session: Session, profile_engines: ProfileEngines) -> None:
        super().__init__(session)
        self._engines = profile_engines
        self._reader = CoalescedTask(self._read, self.run_worker)
        self._overview: ProfileOverview | None = None
        self._opened_at: datetime | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Compose a title and the list."""
        yield Static(id="profiles-title")
        yield ProfileList("block")

    def on_mount(self) -> None:
        """Start to read the profiles."""
        self._opened_at = self.session.clock()
        self._overview = ProfileOverview(self._engines, self.session.profile.name, self.session.clock)
        self.query_one(ProfileList).focus()
        self._show()
        self.set_interval(LOOK_S, self._read_again)
        self._reader.ask()

    def on_screen_resume(self) -> None:
        """Read at once after another screen was on show."""
        if self._overview is not None:
            self._reader.ask()

    def on_resize(self) -> None:
        """Draw for the new width."""
        after_refresh(self, self._show)

    def engine_changed(self, event: Event) -> None:
        """Read again after an event of the profile on show."""
        del event
        if self.is_current:
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Move the ages."""
        del now
        self._show()

    def action_refresh(self) -> None:
        """Poll every service, the current one included."""
        if self._overview is not None:
            self._overview.make_due()
        self.session.poll_soon()
        self._reader.ask()

    @on(OptionList.OptionSelected)
    def _on_chosen(self, message: OptionList.OptionSelected) -> None:
        name = message.option_id or ""
        self.post_message(GoToTab("runs") if name == self.session.profile.name else SwitchProfile(name))

    def _read_again(self) -> None:
        if self.is_current:
            self._reader.ask()

    async def _read(self) -> None:
        if self._overview is not None:
            async for _ in self._overview.round():
                self._show()

    def _show(self) -> None:
        if self._overview is None:
            return
        facts, criteria = tuple(self._overview.facts.values()), self._criteria()
        self.query_one(ProfileList).show(facts, criteria)
        self.query_one("#profiles-title", Static).update(_title(facts, criteria))

    def _criteria(self) -> Criteria:
        now = self.session.clock()
        patience = PollTiming(self._opened_at or now, GENTLE_S)
        return Criteria(patience, self.session.healthy_words, now)


def _title(facts: tuple[ProfileFacts, ...], criteria: Criteria) -> Content:
    count = sum(worst(each, criteria).tone in NEEDS_A_LOOK for each in facts)
    well = f"all {len(facts)} are well" if len(facts) > 1 else "it is well"
    words = f"{count} of {len(facts)} need{'s' if count == 1 else ''} a look" if count else well
    if any(each.vitals is None and not each.problem for each in facts):
        words = "looking…"
    return Content.assemble(("All profiles  ", "bold"), (words, STYLES["quiet"]))
