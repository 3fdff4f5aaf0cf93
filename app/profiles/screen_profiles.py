"""The sheet that switches to another profile, and the state of all profiles."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import ClassVar, Final

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input, OptionList

from app.api.errors import RateLimitedError
from app.console.base import ALL
from app.console.session import Session, read_vitals
from app.console.sheets import PickerScreen
from app.engine.engine import Engine
from app.profiles import Profile
from storage.errors import StorageError
from widgets.forms.inputs import LineInput
from widgets.frame import Vitals
from widgets.kit import after_refresh, hidden
from widgets.kit.choice_lists import fuzzy
from widgets.profiles import ProfileFacts, ProfileList

GENTLE_S: Final = 60.0
"""Seconds between two polls of a profile that is not on show."""
LONGEST_S: Final = 900.0
"""Seconds between two polls of a failing one, at most."""


class ProfileOverview:
    """The state of each profile, and when it is polled next."""

    def __init__(self, session: Session) -> None:
        """Start empty; the current profile polls by itself."""
        self._engines = session.engines
        self._clock = session.clock
        self._not_before: dict[str, datetime] = {}
        """When each profile may be polled again."""
        self.facts = initial_facts(session)

    def make_due(self) -> None:
        """Make every profile due at the user's request, except those whose service stated a longer wait."""
        now = self._clock()
        self._not_before = {
            name: until for name, until in self._not_before.items() if until > now + timedelta(seconds=LONGEST_S)
        }

    async def round(self) -> AsyncIterator[None]:
        """Read every profile, then poll those that are due; yields after each change."""
        engines: list[Engine] = []
        for profile in self._engines.profiles:
            engine = await self._read(profile)
            if engine is not None:
                engines.append(engine)
            yield
        for engine in engines:
            name, now = engine.profile.name, self._clock()
            vitals = self.facts[name].vitals
            if self.facts[name].is_current or vitals is None or now < self._not_before.get(name, now):
                continue
            link = vitals.runs_link
            last_ok_at = None if link is None or link.is_failing else link.last_ok_at
            # Another console or a bot may be polling it.
            if last_ok_at is not None and now - last_ok_at < timedelta(seconds=GENTLE_S):
                continue
            problem = await engine.refresh()
            wait_s = GENTLE_S
            if isinstance(problem, RateLimitedError) and problem.retry_after_s is not None:
                wait_s = max(GENTLE_S, problem.retry_after_s)
            elif problem is not None:
                failures = vitals.runs_link.failures if vitals.runs_link is not None else 0
                wait_s = min(LONGEST_S, GENTLE_S * 2.0 ** min(failures, 10))
            self._not_before[name] = self._clock() + timedelta(seconds=wait_s)
            await self._read(engine.profile)
            yield

    async def _read(self, profile: Profile) -> Engine | None:
        facts = self.facts[profile.name]
        try:
            engine = await self._engines.engine(profile.name)
            vitals = await read_vitals(engine, Vitals(profile.name, profile.read_only), self._clock())
        except StorageError as error:
            self.facts[profile.name] = replace(facts, problem=str(error))
            return None
        self.facts[profile.name] = replace(facts, vitals=vitals, problem="")
        return engine


def initial_facts(session: Session) -> dict[str, ProfileFacts]:
    """The facts of each profile that the configuration has, before anything is read."""
    current, color_of = session.profile.name, session.settings.color_of
    return {
        each.name: ProfileFacts(each.name, each.base_url, each.name == current, each.read_only, color_of(each.name))
        for each in session.engines.profiles
    }


LOOK_S: Final = 5.0
"""Seconds between two readings of the caches; services are polled far less often."""


class ProfileSwitcher(PickerScreen[str]):
    """Closes with the name of the profile to show; None: no change."""

    TITLE_TEXT = "Switch profile"
    HINT = "enter open"
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("down", "move(1)", "down", priority=True, id="picker.down"),
        hidden("up", "move(-1)", "up", priority=True, id="picker.up"),
        hidden("ctrl+o", "leave", "cancel", priority=True, id="profiles.leave"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        everything = ProfileFacts(ALL, "their runs in one list", is_current=False, read_only=False)
        self._facts = (*initial_facts(session).values(), everything)

    def compose_choice(self) -> ComposeResult:
        """Compose the search and its matches."""
        yield LineInput(placeholder="type to find", compact=True)
        yield ProfileList()

    def on_mount(self) -> None:
        """List the profiles."""
        self._find("")
        self.query_one(LineInput).focus()

    def on_resize(self) -> None:
        """Draw for the new width, the first one included."""
        after_refresh(self, lambda: self._find(self.query_one(LineInput).value.strip()))

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        profiles = self.query_one(ProfileList)
        profiles.action_cursor_down() if step > 0 else profiles.action_cursor_up()

    @on(Input.Changed)
    def _on_typed(self, message: Input.Changed) -> None:
        self._find(message.value.strip())

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        self.dismiss(self.query_one(ProfileList).name_at_cursor)

    @on(OptionList.OptionSelected)
    def _on_chosen(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(message.option_id)

    def _find(self, text: str) -> None:
        matches = [(match[0], each) for each in self._facts if (match := fuzzy(text, each.name)) is not None]
        ranked = [each for _, each in sorted(matches, key=lambda pair: -pair[0])] if text else self._facts
        self.query_one(ProfileList).show(ranked)
