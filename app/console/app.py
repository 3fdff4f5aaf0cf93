"""The console as a Textual app: it opens the engine after the first frame and handles the screens' requests."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.config import Profile, Settings
from app.console.base.screen import OVERVIEW, TABS
from app.console.guard import BaseApp
from app.console.keys.navigation import NAVIGATION_BINDINGS, Navigation
from app.console.messages import FIRST_UNKNOWN, FollowRun, GoToTab, OpenRun, SwitchProfile
from app.console.profiles.between import BETWEEN, BetweenScreen
from app.console.runs.views import first_picture
from app.console.screens import make_screen
from app.console.session import Session
from app.console.terminal.terminal import TERMINAL_BINDINGS, Terminal
from app.console.themes import begin_with_theme
from storage.errors import StorageError
from widgets.follow import FollowStrip
from widgets.frame.bars import TabBar
from widgets.frame.header_bar import HeaderBar

if TYPE_CHECKING:
    from textual.command import Provider

    from app.console.follow.following import RunFollower
    from app.console.profiles.engines import ProfileEngines
    from app.engine import Engine
    from storage.cache.first_paint import FirstPaint


def _commands() -> "type[Provider]":
    from app.console.keys.palette import ConsoleCommands

    return ConsoleCommands


OpenEngine = Callable[[], Awaitable["Engine"]]
WRITING: Final = frozenset({"send", "import"})
"""Groups of workers that write to the service: one that is cancelled leaves its outcome unknown."""


class RunwardenApp(BaseApp[None]):
    """One profile's console at a time."""

    TITLE = "runwarden"
    DEFAULT_MODE = "runs"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    COMMANDS: ClassVar[set[Any]] = {_commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        *NAVIGATION_BINDINGS,
        Binding("colon", "command_palette", "palette", key_display=":", id="app.palette"),
        Binding("q", "quit", "quit", show=False, id="app.quit"),
        Binding("question_mark", "help", "help", key_display="?", id="app.help"),
        Binding("ctrl+o", "profiles", "switch profile", show=False, tooltip="To another service", id="app.profiles"),
        Binding("0", f"tab('{OVERVIEW}')", "all profiles", show=False, tooltip="Each at a glance", id="room.profiles"),
        Binding("F", "followed", "followed runs", show=False, tooltip="Those in the strip", id="app.followed"),
        *TERMINAL_BINDINGS,
    ]

    session: Session
    """The profile on show."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        open_engine: OpenEngine,
        first: "FirstPaint | None",
        clock: Callable[[], datetime],
        profile_engines: "ProfileEngines | None" = None,
    ) -> None:
        """Open nothing yet; `open_engine` is called after the first frame.

        Without `profile_engines` only this profile can be opened from here.
        """
        super().__init__()
        self.settings = settings
        self.clock = clock
        self.terminal = Terminal(lambda: self._driver, mouse=settings.console.mouse)
        self.engines = profile_engines
        self._is_switching = False
        self.navigation = Navigation(self)
        self.following: RunFollower | None = None
        """None: the engine is not open yet."""
        self._begin_with(profile, first, open_engine)
        begin_with_theme(self, settings)

    def _begin_with(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        """Begin a profile's session with what its cache held at first; its screens are made when they are shown."""
        self._open_engine = open_engine
        self.session = Session(self.settings, profile, self.clock, first, self, can_switch=self._can_switch)
        for name in (*(tab.name for tab in TABS), OVERVIEW):
            if name != self.DEFAULT_MODE:
                self.add_mode(name, partial(make_screen, name, self.session, self.engines))

    def on_mount(self) -> None:
        """Paint what is cached, then open the engine."""
        self.terminal.begin(self, lambda: self.session.profile.name)
        if self.settings.keys or any(command.key for command in self.settings.commands):
            from app.console.keys.keymap import use_own_keys

            use_own_keys(self, self.session)
        self._open_soon()

    def _open_soon(self) -> None:
        """Add the first tab, and open the engine once it is painted."""
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.session.vitals.changed.subscribe(self, self.terminal.show_vitals)
        self.call_after_refresh(self.run_worker, self._open)

    # Requests of the screens

    @on(OpenRun)
    @on(FollowStrip.Picked)
    def _open_run(self, message: OpenRun | FollowStrip.Picked) -> None:
        self.navigation.open_run(self.session, message.run_id)

    @on(FollowRun)
    def _follow_run(self, message: FollowRun) -> None:
        if self.following is None:
            self.session.notify(self.session.not_open)
        else:
            self.run_worker(partial(self.following.toggle, *message.run_ids))

    @on(GoToTab)
    @on(TabBar.Picked)
    async def _go_to_tab(self, message: GoToTab | TabBar.Picked) -> None:
        await self.action_tab(message.name, message.target if isinstance(message, GoToTab) else None)

    @on(SwitchProfile)
    def _switch_profile(self, message: SwitchProfile) -> None:
        self.switch_profile(message.name)

    @on(FollowStrip.ListRequested)
    def action_followed(self) -> None:
        """List the followed runs."""
        from app.console.follow.list_screen import FollowList

        if self.following is not None and not isinstance(self.screen, FollowList):
            self.push_screen(FollowList(self.session, self.following), partial(self.navigation.open_run, self.session))

    async def action_tab(self, name: str, target: str | None = None) -> None:
        """Go to a tab, and a target in it, once the engine is open."""
        if name == OVERVIEW and self.engines is None:
            self.action_profiles()
        else:
            await self.navigation.go(self.session, name, target)

    async def action_back(self) -> None:
        """Go back to the previous tab or run, as it was."""
        await self.navigation.back(self.session)

    @on(HeaderBar.ProfileClicked)
    def action_profiles(self) -> None:
        """Ask which profile to show."""
        from app.console.profiles.switcher import ProfileSwitcher

        if self.engines is None or not self._can_switch:
            self.session.notify("There is one profile. Another one is a [profiles.NAME] in the configuration.")
        else:
            self.push_screen(ProfileSwitcher(self.session, self.engines), self.switch_profile)

    def action_command_palette(self) -> None:
        """Open the palette."""
        from app.console.keys.palette import ConsolePalette

        if not isinstance(self.screen, ConsolePalette):
            self.push_screen(ConsolePalette(id="--command-palette"))

    def action_help(self) -> None:
        """Show every key of the screen."""
        from app.console.keys.help import KeyHelpScreen

        self.push_screen(KeyHelpScreen(self.screen))

    def action_own_command(self, index: int) -> None:
        """Run one of the user's own commands."""
        from app.console.keys.own_commands import run_own_command

        work = partial(run_own_command, self, self.session, self.terminal, self.settings.commands[index])
        self.run_worker(work, exclusive=True, group="own command")

    def action_mouse(self) -> None:
        """Leave the mouse to the terminal, for selecting text, or take it back."""
        self.session.notify(self.terminal.toggle_mouse())

    def action_suspend_process(self) -> None:
        """Stop until the shell's `fg`."""
        self.terminal.give_title_back()
        super().action_suspend_process()

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End the app; the next start begins with a picture of the current screen."""
        try:
            self.terminal.keep_frame_now()
        finally:
            super().exit(*arguments, **options)

    async def close_engine(self) -> None:
        """Close the engine; called after the screen was given back."""
        if self.session.engine is not None:
            await self.session.engine.close()
        if self.engines is not None:
            await self.engines.close()

    async def _open(self) -> None:
        session = self.session
        engine = await self._open_engine()
        if self.engines is not None:
            self.engines.adopt(engine)
        session.open(engine)
        from app.console.follow.following import RunFollower

        self.following = RunFollower(engine, session, self.terminal.write)
        session.engine_changed.subscribe(self, self.following.engine_changed)
        self.following.look()

    @property
    def _can_switch(self) -> bool:
        return self.engines is not None and len(self.engines.profiles) > 1

    def switch_profile(self, name: str | None) -> None:
        """Switch to another profile; None, or the profile on show: do nothing."""
        session = self.session
        if name is None or name == session.profile.name or self.engines is None:
            return
        if any(worker.group in WRITING and not worker.is_finished for worker in self.workers):
            session.notify("Something is being sent. Switch when its outcome is known.", severity="warning")
        elif self._is_switching or not session.is_settled:
            session.notify(session.not_open)
        else:
            self._is_switching = True
            self.run_worker(partial(self._switch, self.engines, name), group="switch")

    async def _switch(self, engines: "ProfileEngines", name: str) -> None:
        left, profile = self.session, engines.profile(name)
        try:
            self.add_mode(BETWEEN, lambda: BetweenScreen(name))
            await self.switch_mode(BETWEEN)
            # Close screens before the engine they read from.
            for mode in (*(tab.name for tab in TABS), OVERVIEW):
                await self.remove_mode(mode)
            self.following = None
            self.navigation.forget()
            left.vitals.changed.unsubscribe(self)  # A reading under way is about the profile that is left.
            left.leave()
            try:
                await engines.let_go(left.profile.name)
            except StorageError as error:
                # A toast outlives the screens; the banner would blame the other profile's files.
                left.notify(f"{left.profile.name} was not closed properly: {error}", severity="error")
            first = await asyncio.to_thread(first_picture, self.settings, profile, self.clock())
            self._begin_with(profile, first, lambda: engines.at_work(name))
            self._open_soon()
            self.terminal.show_vitals(self.session.vitals.now)
            await self.switch_mode(self.DEFAULT_MODE)
            await self.remove_mode(BETWEEN)
        finally:
            self._is_switching = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the key for unknown outcomes only while there are some."""
        if action == "tab" and FIRST_UNKNOWN in parameters:
            return bool(self.session.vitals.now.unknown)
        return super().check_action(action, parameters)

    def get_default_screen(self) -> Screen[Any]:
        """Return the Runs screen: as a mode added before mounting, Textual parses every style sheet thrice."""
        return make_screen(self.DEFAULT_MODE, self.session, self.engines)
