"""The console as a Textual app: it opens the engine after the first frame and handles the screens' requests."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingsMap, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.worker import Worker, WorkerFailed

from app.api.errors import ApiError
from app.config import Profile, Settings
from app.console.base_app import BaseApp
from app.console.base_screen import OVERVIEW, TABS
from app.console.keys.navigation import Navigation
from app.console.messages import UNKNOWN_PLACE, FollowRun, GoToTab, OpenRun, SwitchProfile
from app.console.profiles.switching import BETWEEN, OpenEngine, ProfileSwitching
from app.console.screens import screens_of
from app.console.session import Session
from app.console.terminal.terminal import Terminal, title_of
from app.console.themes import begin_with_theme
from storage.errors import StorageError
from widgets.follow import FollowStrip
from widgets.frame.bars import TabBar
from widgets.frame.header_bar import HeaderBar, Vitals

if TYPE_CHECKING:
    from textual.command import Provider

    from app.console.follow.following import Following
    from app.console.profiles.engines import ProfileEngines
    from app.console.terminal.last_frame import KeepFrame
    from app.events import Event
    from storage.cache.first_paint import FirstPaint

WRITING: Final = frozenset({"send", "import"})
"""Groups of workers that write to the service: if one is cancelled, the outcome of its write is unknown."""


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
        *[Binding(tab.key, f"tab('{tab.name}')", tab.title, show=False, id=f"room.{tab.name}") for tab in TABS],
        Binding("U", "unknown", "unknown outcome", tooltip="A write that a person has to resolve", id="app.unknown"),
        Binding("backspace", "back", "back", show=False, tooltip="To what you came from", id="app.back"),
        Binding("colon", "command_palette", "palette", key_display=":", id="app.palette"),
        Binding("q", "quit", "quit", show=False, id="app.quit"),
        Binding("question_mark", "help", "help", key_display="?", id="app.help"),
        Binding("ctrl+o", "profiles", "switch profile", show=False, tooltip="To another service", id="app.profiles"),
        Binding("0", f"tab('{OVERVIEW}')", "all profiles", show=False, tooltip="Each at a glance", id="room.profiles"),
        Binding("F", "followed", "followed runs", show=False, tooltip="Those in the strip", id="app.followed"),
        Binding("f8", "mouse", "mouse on/off", show=False, tooltip="Off: the terminal selects text", id="app.mouse"),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, tooltip="fg comes back", id="app.suspend"),
    ]

    keep_frame: "KeepFrame | None" = None
    """Keeps the last frame for the next start. None: there is no terminal."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        open_engine: OpenEngine,
        first: "FirstPaint | None",
        clock: Callable[[], datetime],
        profile_engines: "ProfileEngines | None" = None,
        modes_before: list[Any] | None = None,
    ) -> None:
        """Open nothing yet; `open_engine` is called once the first picture is on the screen.

        Without `profile_engines` only this profile can be opened from here. `modes_before` are the terminal's modes
        from before an early picture; None: Textual is the first to change them.
        """
        super().__init__()
        self.settings = settings
        self.clock = clock
        self.terminal = Terminal(lambda: self._driver, mouse=settings.console.mouse)
        self.profiles: ProfileSwitching | None = None
        """None: only the profile on show can be opened from here."""
        if profile_engines is not None:
            self.profiles = ProfileSwitching(profile_engines, self, self._leave, self._take_up)
        self.navigation = Navigation(self, lambda: self.session)
        self.following: Following | None = None
        """None: the engine is not open yet."""
        self._modes_before = modes_before
        self._has_unknown = False
        self._keep_frame_now: Callable[[], None] = lambda: None
        self._begin_with(profile, first, open_engine)
        self._take_settings()

    def _begin_with(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        self._open_engine = open_engine
        self.hold_keys()  # Those that need the engine would be refused, and the others answered.
        self.session = Session(
            self.settings,
            profile,
            self.clock,
            first,
            owner=self,
            toast=self.notify,
            copy_text=self.copy_to_clipboard,
            can_switch=self.profiles is not None and self.profiles.is_possible,
        )
        self._tab_screens = screens_of(self.session, None if self.profiles is None else self.profiles.engines)
        for name in self._tab_screens.keys() - {self.DEFAULT_MODE}:
            self.add_mode(name, self._tab_screens[name])

    def _take_settings(self) -> None:
        begin_with_theme(self, self.settings)
        if self.settings.keys:
            self.set_keymap(self.settings.keys)
        if any(command.key for command in self.settings.commands):
            from app.console.keys.own_commands import own_bindings

            self._bindings = BindingsMap.merge([self._bindings, BindingsMap(own_bindings(self.settings.commands))])

    def on_mount(self) -> None:
        """Paint what is cached, then open the engine."""
        from app.console.terminal.process import restore_on_signals

        restore_on_signals(self)
        self.terminal.remember_modes(self._modes_before)
        # After a suspend the terminal shows nothing of the frame, although nothing has changed.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())
        if self.settings.keys or any(command.key for command in self.settings.commands):
            self.run_worker(self._check_keys)
        if self.keep_frame is not None:
            from app.console.terminal.last_frame import keep_frames

            self._keep_frame_now = keep_frames(self, self.keep_frame, lambda: self.session.profile.name)
        self._listen()
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.call_after_refresh(lambda: self.run_worker(self._open))

    def _listen(self) -> None:
        self.session.engine_changed.subscribe(self, self._engine_changed)
        self.session.vitals_changed.subscribe(self, self._vitals_changed)

    async def _check_keys(self) -> None:
        from app.console.keys.keymap import problems

        # In a thread: it imports every screen.
        for problem in await asyncio.to_thread(problems, self.settings.keys, self.settings.commands):
            self.session.notify(problem, severity="warning")

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
        await self.action_tab(message.name, message.place if isinstance(message, GoToTab) else None)

    @on(HeaderBar.UnknownClicked)
    async def action_unknown(self) -> None:
        """Go to the first write of unknown outcome."""
        await self.action_tab("activity", UNKNOWN_PLACE)

    @on(SwitchProfile)
    def _switch_to(self, message: SwitchProfile) -> None:
        self.switch_profile(message.name)

    @on(FollowStrip.ListRequested)
    def action_followed(self) -> None:
        """List the followed runs."""
        from app.console.follow.list_screen import FollowList

        if self.following is not None and not isinstance(self.screen, FollowList):
            self.push_screen(FollowList(self.session, self.following), self.navigation.open_run)

    async def action_tab(self, name: str, place: str | None = None) -> None:
        """Go to a place in a tab, once the engine is open."""
        if name == OVERVIEW and self.profiles is None:
            self.action_profiles()
            return
        if self.current_mode == BETWEEN or (self.session.engine is None and name != "runs"):
            self.session.notify(self.session.not_open)
            return
        await self.navigation.go(name, place)

    async def action_back(self) -> None:
        """Go back to the previous place, as it was."""
        if self.current_mode != BETWEEN:
            await self.navigation.back()

    @on(HeaderBar.ProfileClicked)
    def action_profiles(self) -> None:
        """Ask which profile to show."""
        from app.console.profiles.switcher import ProfileSwitcher

        if self.profiles is None or not self.profiles.is_possible:
            self.session.notify("There is one profile. Another one is a [profiles.NAME] in the configuration.")
        else:
            self.push_screen(ProfileSwitcher(self.session, self.profiles.engines), self.switch_profile)

    def switch_profile(self, name: str | None) -> None:
        """Show another profile; None, or the one on show: nothing happens."""
        session = self.session
        if name is None or name == session.profile.name or self.profiles is None:
            return
        if any(worker.group in WRITING and not worker.is_finished for worker in self.workers):
            session.notify("Something is being sent. Switch when its outcome is known.", severity="warning")
        elif not session.is_settled or self.current_mode == BETWEEN:
            session.notify(session.not_open)
        else:
            self.run_worker(partial(self.profiles.switch, session, name), group="switch")

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
        """End; the next start begins with the screen as it is now."""
        try:
            self._keep_frame_now()
        finally:
            super().exit(*arguments, **options)

    # The engine

    async def close_engine(self) -> None:
        """Close the engine; called after the screen was given back."""
        if self.session.engine is not None:
            await self.session.engine.close()
        if self.profiles is not None:
            await self.profiles.engines.close()

    async def _open(self) -> None:
        session = self.session
        try:
            engine = await self._open_engine()
        finally:
            self.call_later(self.answer_keys)
        if self.profiles is not None:
            self.profiles.engines.adopt(engine)
        session.open(engine)
        from app.console.follow.following import Following

        self.following = Following(engine, session, self.run_worker, self.bell, self.terminal.write)
        self.following.look()

    def _leave(self) -> None:
        self.following = None
        self.navigation.forget()
        self.session.leave()

    def _take_up(self, profile: Profile, first: "FirstPaint | None", open_engine: OpenEngine) -> None:
        self._begin_with(profile, first, open_engine)
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self._listen()
        self._vitals_changed(self.session.vitals)
        self.run_worker(self._open)

    def _engine_changed(self, event: "Event") -> None:
        if self.following is not None:
            self.following.engine_changed(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the key for unknown outcomes only while there are some."""
        return bool(self.session.vitals.unknown) if action == "unknown" else super().check_action(action, parameters)

    def _vitals_changed(self, vitals: Vitals) -> None:
        self.terminal.say_title(title_of(vitals))
        if bool(vitals.unknown) != self._has_unknown:
            self._has_unknown = bool(vitals.unknown)
            self.screen.refresh_bindings()

    # The one boundary for keys, workers and whatever else Textual would end the console for. Screens, sheets and
    # forms have it around their own messages, whose loop would have ended by then.

    async def _dispatch_message(self, message: Message) -> None:
        await self.session.guard(super()._dispatch_message, message)

    async def run_action(self, *arguments: Any, **options: Any) -> bool:
        """Run a key's or a click's action; a failure of our own files or of a request becomes a notice."""
        return await self.session.guard(super().run_action, *arguments, **options) is not False

    def run_worker(self, work: Any, *arguments: Any, **options: Any) -> Worker[Any]:
        """Run this coroutine function in the background, within the same boundary."""
        return super().run_worker(partial(self.session.guard, work), *arguments, **options)

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(cause, StorageError | ApiError):
            self.session.failed(cause)
        # A screen that is being removed fails on missing widgets: at the end that is of no interest to the user.
        elif self.is_running and not self._exit:
            super()._handle_exception(error)

    def get_default_screen(self) -> Screen[Any]:
        """The Runs screen; a mode before it is mounted, it would have Textual parse every style sheet three times."""
        return self._tab_screens["runs"]()
