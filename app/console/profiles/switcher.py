"""The sheet that switches to another profile."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList

from app.config import CACHE_FILE, Profile, Settings, data_folder
from app.console.fuzzy import fuzzy
from app.console.profiles.engines import ProfileEngines
from app.console.profiles.overview import initial_facts
from app.console.session import Session
from app.console.sheets import PickerScreen
from app.times import ago
from storage.records import RunFilter, RunSort
from widgets.badges import Badge
from widgets.forms.inputs import LineInput
from widgets.frame.freshness import PollTiming, trouble_word
from widgets.profiles import Criteria, ProfileFacts, ProfileList


class ProfileSwitcher(PickerScreen[str]):
    """Closes with the name of the profile to show; None: no change."""

    TITLE_TEXT = "Switch profile"
    HINT = "enter opens · 0 in any tab compares them all"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "move(1)", "down", show=False, priority=True, id="picker.down"),
        Binding("up,ctrl+p", "move(-1)", "up", show=False, priority=True, id="picker.up"),
        Binding("ctrl+o", "leave", "cancel", show=False, priority=True, id="profiles.leave"),
    ]

    def __init__(self, session: Session, profile_engines: ProfileEngines) -> None:
        super().__init__()
        self._session = session
        self._profiles = profile_engines.profiles
        self._facts = tuple(initial_facts(each, session.profile.name) for each in self._profiles)

    def compose_choice(self) -> ComposeResult:
        """Compose the search and its matches."""
        yield LineInput(placeholder="type to find", compact=True)
        yield ProfileList("line")

    def on_mount(self) -> None:
        """List the names at once, and the states once they are read."""
        self._find("")
        self.query_one(LineInput).focus()
        self.run_worker(self._read())

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

    async def _read(self) -> None:
        session = self._session
        notes = await asyncio.to_thread(
            lambda: {each.name: _as_seen(session.settings, each, session.clock()) for each in self._profiles}
        )
        self._facts = tuple(
            replace(each, vitals=session.vitals.now) if each.is_current else replace(each, note=notes[each.name])
            for each in self._facts
        )
        self._find(self.query_one(LineInput).value.strip())

    def _find(self, text: str) -> None:
        session = self._session
        criteria = Criteria(
            PollTiming(session.clock(), session.profile.poll.runs_s), session.healthy_words, session.clock()
        )
        self.query_one(ProfileList).show(tuple(self._found(text)), criteria)

    def _found(self, text: str) -> Iterator[ProfileFacts]:
        if not text:
            yield from self._facts
            return
        matches = [(match[0], each) for each in self._facts if (match := fuzzy(text, each.name)) is not None]
        yield from (each for _, each in sorted(matches, key=lambda pair: -pair[0]))


def _as_seen(settings: Settings, profile: Profile, now: datetime) -> Badge:
    """The state in the cache, without a request."""
    from storage.cache.first_paint import peek

    first = peek(data_folder(settings, profile) / CACHE_FILE, RunFilter(), RunSort(), 0)
    link = next((link for link in first.links if link.subject == "runs"), None) if first is not None else None
    if link is None or (link.last_ok_at is None and not link.is_failing):
        return Badge("·", "not opened yet", "quiet")
    seen = f"seen {ago(link.last_ok_at, now)}" if link.last_ok_at is not None else ""
    if link.is_failing:
        trouble = trouble_word(link.error_kind)
        return Badge("◌", f"{seen}, {trouble}" if link.last_ok_at is not None else trouble, "warn")
    return Badge("·", seen, "quiet")
