"""The console as a Textual app: it opens the engine after the first frame and handles the screens' requests."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.config import Profile, Settings
from app.console.base.screen import OVERVIEW
from app.console.guard import BaseApp
from app.console.keys.navigation import NAVIGATION_BINDINGS, Navigation
from app.console.messages import FIRST_UNKNOWN, FollowRun, GoToTab, OpenRun, SwitchProfile
from app.console.profiles.switching import PROFILE_BINDINGS, OpenEngine, ProfileSwitching
from app.console.screens import screens_of
from app.console.session import Session
from app.console.terminal.terminal import TERMINAL_BINDINGS, Terminal
from app.console.themes import begin_with_theme
from widgets.follow import FollowStrip
from widgets.frame.bars import TabBar
from widgets.frame.header_bar import HeaderBar

if TYPE_CHECKING:
    from textual.command import Provider

    from app.console.follow.following import RunFollower
    from app.console.profiles.engines import ProfileEngines
    from storage.cache.first_paint import FirstPaint


def _commands() -> "type[Provider]":
    from app.console.keys.palette import ConsoleCommands

    return ConsoleCommands


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
        *PROFILE_BINDINGS,
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
        self.profiles = ProfileSwitching(profile_engines, self, self._leave, self._take_up)
        self.navigation = Navigation(self, lambda: self.session)
        self.following: RunFollower | None = None
        """None: the engine is not open yet."""
        self._begin_with(profile, first, open_engine)
        begin_with_theme(self, settings)

    def _begin_with(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        self._open_engine = open_engine
        self.session = Session(
            self.settings,
            profile,
            self.clock,
            first,
            owner=self,
            toast=self.notify,
            copy_text=self.copy_to_clipboard,
            can_switch=self.profiles.is_possible,
        )
        self._tab_screens = screens_of(self.session, self.profiles.engines)
        for name in self._tab_screens.keys() - {self.DEFAULT_MODE}:
            self.add_mode(name, self._tab_screens[name])

    def on_mount(self) -> None:
        """Paint what is cached, then open the engine."""
        self.terminal.begin(self, lambda: self.session.profile.name)
        if self.settings.keys or any(command.key for command in self.settings.commands):
            from app.console.keys.keymap import use_own_keys

            use_own_keys(self, self.session)
        self.session.vitals.changed.subscribe(self, self.terminal.show_vitals)
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.call_after_refresh(self.run_worker, self._open)

    # Requests of the screens

    @on(OpenRun)
    @on(FollowStrip.Picked)
    def _open_run(self, message: OpenRun | FollowStrip.Picked) -> None:
        self.navigation.open_run(message.run_id)

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
        self.profiles.begin(self.session, message.name)

    @on(FollowStrip.ListRequested)
    def action_followed(self) -> None:
        """List the followed runs."""
        from app.console.follow.list_screen import FollowList

        if self.following is not None and not isinstance(self.screen, FollowList):
            self.push_screen(FollowList(self.session, self.following), self.navigation.open_run)

    async def action_tab(self, name: str, target: str | None = None) -> None:
        """Go to a tab, and a target in it, once the engine is open."""
        if name == OVERVIEW and self.profiles.engines is None:
            self.profiles.ask(self.session)
        else:
            await self.navigation.go(name, target)

    async def action_back(self) -> None:
        """Go back to the previous tab or run, as it was."""
        await self.navigation.back()

    @on(HeaderBar.ProfileClicked)
    def action_profiles(self) -> None:
        """Ask which profile to show."""
        self.profiles.ask(self.session)

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
        await self.profiles.close()

    async def _open(self) -> None:
        session = self.session
        engine = await self._open_engine()
        self.profiles.adopt(engine)
        session.open(engine)
        from app.console.follow.following import RunFollower

        self.following = RunFollower(engine, session, self.run_worker, self.bell, self.terminal.write)
        session.engine_changed.subscribe(self, self.following.engine_changed)
        self.following.look()

    def _leave(self) -> None:
        self.following = None
        self.navigation.forget()
        self.session.vitals.changed.unsubscribe(self)  # A reading under way is about the profile that is left.
        self.session.leave()

    def _take_up(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        self._begin_with(profile, first, open_engine)
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.session.vitals.changed.subscribe(self, self.terminal.show_vitals)
        self.terminal.show_vitals(self.session.vitals.now)
        self.call_after_refresh(self.run_worker, self._open)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the key for unknown outcomes only while there are some."""
        if action == "tab" and FIRST_UNKNOWN in parameters:
            return bool(self.session.vitals.now.unknown)
        return super().check_action(action, parameters)

    def get_default_screen(self) -> Screen[Any]:
        """Return the Runs screen: as a mode added before mounting, Textual parses every style sheet thrice."""
        return self._tab_screens["runs"]()
