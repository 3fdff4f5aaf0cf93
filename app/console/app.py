"""The console as a Textual app: it opens the engine behind the first picture, and passes its bell on to the screens."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen

from app.config import Profile, Settings
from app.console.base_screen import EngineEvent
from app.console.latest import Latest
from app.console.profiles.app import ProfilesApp
from app.console.tabs import OVERVIEW, TABS
from app.console.terminal.app import STILL_OPENING
from app.console.terminal.window import title_of
from app.console.themes import DEFAULT, FEW_COLOURS, NO_COLOURS, THEMES
from app.console.troubles import READ_ONLY, link_notice, storage_notice
from app.events import ActionChanged, Event, StorageFailed
from storage.errors import StorageError
from widgets.frame.freshness import PollTiming
from widgets.frame.header_bar import Vitals
from widgets.frame.notice import Notice
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from textual.await_remove import AwaitRemove
    from textual.command import Provider
    from textual.dom import DOMNode
    from textual.widget import Widget

    from app.console.terminal.last_frame import KeepFrame
    from app.engine import Engine
    from storage.cache.first_paint import FirstPaint

OpenEngine = Callable[[], Awaitable["Engine"]]
Clock = Callable[[], datetime]


def _nothing() -> None:
    """To be done where nothing was begun."""


def _commands() -> "type[Provider]":
    from app.console.keys.palette import ConsoleCommands

    return ConsoleCommands


class RunwardenApp(ProfilesApp):
    """One profile's console."""

    TITLE = "runwarden"
    DEFAULT_MODE = "runs"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    COMMANDS: ClassVar[set[Any]] = {_commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        *[Binding(tab.key, f"room('{tab.name}')", tab.title, show=False, id=f"room.{tab.name}") for tab in TABS],
        Binding("colon", "command_palette", "palette", key_display=":", id="app.palette"),
        Binding("q", "quit", "quit", show=False, id="app.quit"),
        Binding("question_mark", "help", "help", key_display="?", id="app.help"),
    ]

    keep_frame: "KeepFrame | None" = None
    """Keeps what is painted for the next start. None: there is no terminal to start on."""
    vitals: reactive[Vitals] = reactive(Vitals(""), init=False, always_update=True, repaint=False)
    """Whoever shows some of it watches it: a poll is no reason to paint the whole screen."""

    def __init__(
        self, settings: Settings, profile: Profile, open_engine: OpenEngine, first: "FirstPaint | None", clock: Clock
    ) -> None:
        """Nothing is opened yet.

        Args:
            settings: The configuration.
            profile: Which service.
            open_engine: Opens the engine and has it poll, once the first picture is on the screen.
            first: What was cached when the program started.
            clock: The time, aware UTC.
        """
        super().__init__(settings)
        self.clock = clock
        self.healthy_words = frozenset(settings.console.health_ok)
        self.engine: Engine | None = None
        self._unsubscribe: Callable[[], None] = _nothing
        self._keep_frame_now: Callable[[], None] = _nothing
        self._first_profile = profile.name
        self._begin_with(profile, first, open_engine)
        self._vitals_reader = Latest(self._read_vitals, self._in_background)
        self.set_reactive(RunwardenApp.vitals, self._vitals_of(first))
        for theme in THEMES:
            self.register_theme(theme)
        # Setting it the ordinary way would parse every style sheet twice before the first picture.
        self.set_reactive(RunwardenApp.theme, self._wanted_theme())
        self.stylesheet.set_variables(self.get_css_variables())
        self._add_rooms()

    def _begin_with(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        self.profile = profile
        self.first = first
        self.patience = PollTiming(self.clock(), profile.poll.runs_s)
        self.engine_opened = asyncio.Event()
        self._open_engine = open_engine
        self._storage_trouble: str | None = None
        self.not_open = STILL_OPENING

    def on_mount(self) -> None:
        """Paints what is cached, then opens the engine."""
        from app.console.terminal.signals import restore_on_signals

        restore_on_signals(self)
        self.take_terminal()
        self.add_mode("runs", self.get_default_screen)
        if self.keep_frame is not None:
            from app.console.terminal.last_frame import keep_frames

            self._keep_frame_now = keep_frames(self, self.keep_frame, self._profile_of_frame)
        self.call_after_refresh(lambda: self._in_background(self._open()))

    # What screens ask of it

    async def opened(self) -> "Engine":
        """The engine, as soon as it is open."""
        await self.engine_opened.wait()
        if self.engine is None:
            raise RuntimeError("The engine could not be opened.")
        return self.engine

    def trouble(self) -> Notice | None:
        """What is wrong with our own files or the link; None: nothing."""
        return self.storage_trouble or link_notice(self.vitals.runs_link, self.clock())

    @property
    def storage_trouble(self) -> Notice | None:
        """What is wrong with our own files; None: nothing."""
        return None if self._storage_trouble is None else storage_notice(self._storage_trouble)

    @property
    def standing(self) -> Notice | None:
        """What is always to be known of this profile; None: nothing."""
        return READ_ONLY if self.profile.read_only else None

    def storage_failed(self, message: str) -> None:
        """Our own files fail: every room says so from now on."""
        self._storage_trouble = message
        self.not_open = f"The console cannot use its own files. {message}"
        self.vitals = replace(self.vitals, files_fail=True)

    def action_room(self, name: str) -> None:
        """Goes to a room, once the engine that it needs is there."""
        if name == OVERVIEW and self.profile_engines is None:
            self.action_profiles()
            return
        if self.engine is None and name != "runs":
            self.say(self.not_open)
            return
        self.switch_mode(name)

    def action_help(self) -> None:
        """Shows every key of the screen."""
        from app.console.keys.help import KeyHelpScreen

        self.push_screen(KeyHelpScreen(self.screen))

    async def action_own_command(self, index: int) -> None:
        """Runs one of the user's own commands."""
        from app.console.keys.own_command_screen import run_own_command

        self.run_worker(run_own_command(self, self.settings.commands[index]), exclusive=True, group="own command")

    def watch_vitals(self, vitals: Vitals) -> None:
        """Says in the window's title what the header says."""
        self.window_title.say(title_of(vitals))

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End; the next start begins with the screen as it is now."""
        self._keep_frame_now()
        super().exit(*arguments, **options)

    def _profile_of_frame(self) -> str | None:
        """The profile on show; None: not the one that the next start begins with, or not its runs."""
        is_first = self.profile.name == self._first_profile
        shows_runs = is_first and self.current_mode == "runs" and len(self.screen_stack) == 1
        return self.profile.name if shows_runs and self.screen.query_one(RunTable).total else None

    # The engine behind it

    async def close_engine(self) -> None:
        """Closes what was opened; called once the screen is given back."""
        if self.engine is not None:
            await self.engine.close()
        if self.profile_engines is not None:
            await self.profile_engines.close()

    @property
    def is_settled(self) -> bool:
        """Whether the profile on show was opened, or could not be."""
        return self.engine is not None or self._storage_trouble is not None

    def leave_engine(self) -> None:
        """Hears nothing more of the profile on show; whoever opened it closes it."""
        self.end_following()
        self._unsubscribe()
        self._unsubscribe, self.engine = _nothing, None

    def take_up(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        """Shows another profile from now on; the rooms of the one before are gone already."""
        self._begin_with(profile, first, open_engine)
        self.vitals = self._vitals_of(first)
        self.add_mode("runs", self.get_default_screen)
        self._add_rooms()
        self._in_background(self._open())

    async def _open(self) -> None:
        try:
            engine = await self._open_engine()
        except StorageError as error:
            self.storage_failed(str(error))
            return
        self.engine = engine
        self._unsubscribe = engine.subscribe(self._ring)
        if self.profile_engines is not None:
            self.profile_engines.adopt(engine)
            self.vitals = replace(self.vitals, can_switch=len(self.profile_engines.profiles) > 1)
        self.engine_opened.set()
        self._vitals_reader.ask()
        self.begin_following(engine)

    def _ring(self, event: Event) -> None:
        self.post_message(EngineEvent(event))

    @on(EngineEvent)
    def _on_rang(self, message: EngineEvent) -> None:
        event = message.event
        if isinstance(event, StorageFailed):
            self.storage_failed(event.message)
        if not isinstance(event, ActionChanged):
            self._vitals_reader.ask()
        self.heard(event)
        for screen in self._all_screens():
            screen.post_message(EngineEvent(event))

    def _all_screens(self) -> list[Screen[Any]]:
        return [screen for stack in self._screen_stacks.values() for screen in stack if screen.is_running]

    async def _read_vitals(self) -> None:
        from app.console.vitals import read_vitals

        if self.engine is None:
            return
        try:
            self.vitals = await read_vitals(self.engine.cache, self.vitals, self.clock())
        except StorageError as error:
            self.storage_failed(str(error))

    def _prune(self, *nodes: "Widget", parent: "DOMNode | None" = None) -> "AwaitRemove":
        # What reads for a screen ends with it: Textual takes its parts away first, and a result would not find them.
        for node in nodes:
            self.workers.cancel_node(node)
        return super()._prune(*nodes, parent=parent)

    def _in_background(self, work: Any) -> object:
        return self.run_worker(work, exit_on_error=True)

    def _wanted_theme(self) -> str:
        if self.no_color:
            return NO_COLOURS
        wanted = self.settings.console.theme
        if wanted not in self.available_themes:
            wanted = DEFAULT
        return FEW_COLOURS if wanted == DEFAULT and self.console.color_system == "standard" else wanted

    def get_default_screen(self) -> Screen[Any]:
        """The Runs room; as a mode like the others it would have Textual parse every style sheet three times."""
        from app.console.runs.screen import RunsScreen

        return RunsScreen()

    def _add_rooms(self) -> None:
        self.add_mode("health", self._health)
        self.add_mode("organizations", self._organizations)
        self.add_mode("insights", self._insights)
        self.add_mode("activity", self._activity)
        self.add_mode(OVERVIEW, self._overview)

    def _health(self) -> Screen[Any]:
        from app.console.health.screen import HealthScreen

        return HealthScreen()

    def _organizations(self) -> Screen[Any]:
        from app.console.organizations.screen import OrganizationsScreen

        return OrganizationsScreen(self._engine_of_rooms())

    def _insights(self) -> Screen[Any]:
        from app.console.insights.screen import InsightsScreen

        return InsightsScreen(self._engine_of_rooms())

    def _activity(self) -> Screen[Any]:
        from app.console.activity.screen import ActivityScreen

        return ActivityScreen(self._engine_of_rooms())

    def _overview(self) -> Screen[Any]:
        from app.console.profiles.screen import ProfilesScreen

        if self.profile_engines is None:
            raise RuntimeError("Without profile engines there is one profile.")
        return ProfilesScreen(self.profile_engines)

    def _engine_of_rooms(self) -> "Engine":
        if self.engine is None:
            raise RuntimeError("No room but Runs is entered before the engine is open.")
        return self.engine

    def _vitals_of(self, first: "FirstPaint | None") -> Vitals:
        """What the header says before anything is read of the service."""
        vitals = Vitals(self.profile.name, self.profile.read_only)
        if self.profile_engines is not None:
            vitals = replace(vitals, can_switch=len(self.profile_engines.profiles) > 1)
        if first is None:
            return vitals
        link = next((link for link in first.links if link.subject == "runs"), None)
        return replace(vitals, runs_link=link, health=first.health)

    def _fatal_error(self) -> None:
        from app.console.terminal.crash import end_without_values

        end_without_values(self)
