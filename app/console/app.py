"""The console as a Textual app: it opens the engine after the first frame and handles the screens' requests."""

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from app.console.base import ALL, TABS, BaseScreen, screen_type
from app.console.guard import CONSOLE_CSS, BaseApp
from app.console.session import (
    FIRST_UNKNOWN,
    FOLLOWED,
    TOAST_S,
    FollowRun,
    GoToTab,
    OpenRun,
    Session,
    ShownNotice,
    SwitchProfile,
)
from app.console.terminal import KeepFrame, keep_last_frame, window_title
from app.console.themes import DEFAULT, begin_with_theme, keep_preferences
from app.engine.text import safe_text
from app.profiles import Profile, Settings
from app.runs.screen_views import first_picture
from storage.errors import StorageError
from widgets.frame import Vitals
from widgets.kit import hidden

if TYPE_CHECKING:
    from app.profiles.engines import ProfileEngines
    from app.runs.screen_following import RunFollower
    from storage.cache.first_paint import FirstPaint

MAX_VISITED: Final = 100
MODES: Final = (*(tab.name for tab in TABS), ALL)
SWITCHING_MODE: Final = "between"
"""The mode while there are no tabs."""


class VisitedScreen(Struct, frozen=True):
    """A screen to go back to."""

    tab: str
    bookmark: Any
    """The tab's filters and cursor key."""
    run_ids: tuple[str, ...]
    """The runs open over the tab, the topmost last."""


class BetweenScreen(Screen[None]):
    """Names the profile that is being opened."""

    CSS = "BetweenScreen { align: center middle; } BetweenScreen Static { width: auto; color: $foreground 70%; }"

    def compose(self) -> ComposeResult:
        yield Static(f"◌ Opening {safe_text(self.name or '', limit=60)} …", markup=False)


WRITING: Final = frozenset({"send", "import"})
"""Groups of workers that write to the service: one that is cancelled leaves its outcome unknown."""


class RunwardenApp(BaseApp[None]):
    """One profile's console at a time."""

    TITLE = "runwarden"
    DEFAULT_MODE = "runs"
    CSS_PATH = CONSOLE_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        *(hidden(tab.key, f"tab('{tab.name}')", tab.title, id=f"tab.{tab.name}") for tab in TABS),
        Binding(
            "U",
            f"tab('activity', '{FIRST_UNKNOWN}')",
            "unknown outcome",
            tooltip="Go to writes with an unknown outcome",
            id="app.unknown",
        ),
        hidden("backspace", "back", "back", tooltip="Go back to the previous screen", id="app.back"),
        Binding("colon", "command_palette", "palette", id="app.palette"),
        hidden("ctrl+p", "command_palette", "palette", id="app.palette"),
        hidden("q", "quit", "quit", id="app.quit"),
        Binding("question_mark", "help", "help", id="app.help"),
        hidden("ctrl+o", "profiles", "switch profile", tooltip="Switch to another service", id="app.profiles"),
        hidden("0", f"tab('{ALL}')", "all profiles", tooltip="Their runs in one list", id="tab.profiles"),
        hidden("N", "notice", "notice", tooltip="Open what the last notice is about", id="app.notice"),
        hidden("F", "followed", "followed runs", tooltip="List followed runs", id="app.followed"),
        hidden("ctrl+z", "suspend_process", "suspend", tooltip="Resume with fg", id="app.suspend"),
    ]

    session: Session
    """The profile on show."""
    modes_before: list[Any] | None = None
    """The terminal's modes from before an early frame. None: Textual is the first to change them."""
    keep_frame: KeepFrame | None = None
    """Keeps the last frame for the next start; None without a terminal."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        engines: "ProfileEngines",
        first: "FirstPaint | None",
        clock: Callable[[], datetime],
    ) -> None:
        """Open nothing yet; the profile's engine is opened after the first frame."""
        super().__init__()
        self.settings = settings
        self.clock = clock
        self.engines = engines
        self._is_switching = False
        self._first_profile = profile.name
        self._visited: deque[VisitedScreen] = deque(maxlen=MAX_VISITED)
        self.following: RunFollower | None = None
        """None: the engine is not open yet."""
        self._begin_with(profile, first)
        self._theme_problem = begin_with_theme(self, settings)

    def _begin_with(self, profile: Profile, first: "FirstPaint | None") -> None:
        """Start a profile's session with its cached rows; each screen is created when it is first shown."""
        self.session = Session(self.settings, profile, self.clock, first, self, self.engines)
        for name in MODES:
            if name != self.DEFAULT_MODE:
                self.add_mode(name, partial(lambda tab: screen_type(tab)(self.session), name))

    def on_mount(self) -> None:
        if self.terminal is not None and self.modes_before is not None:
            self.terminal.attrs_before = self.modes_before
        self.screen_change_signal.subscribe(self, self._hide_toasts_below)
        if self.settings.keys or any(command.key for command in self.settings.commands):
            from app.console.keymap import report_mistakes

            self.set_keymap(self.settings.keys)
            commands = enumerate(self.settings.commands)
            bindings = (
                hidden(command.key, f"own_command({number})", safe_text(command.name, limit=40), id=f"own.{number}")
                for number, command in commands
                if command.key
            )
            # `App.bind` gives a binding no id.
            self._bindings = BindingsMap.merge([self._bindings, BindingsMap(bindings)])
            self.run_worker(partial(report_mistakes, self.session))
        if self._theme_problem:
            self.session.notify(f"The console uses the theme {DEFAULT}: {self._theme_problem}", severity="warning")
            # Stored as the user's choice, so the warning appears once.
            choice = partial(replace, theme=DEFAULT, configured=self.settings.console.theme)
            self.run_worker(partial(keep_preferences, self.settings, choice), thread=True)
        self._open_soon()

    def _open_soon(self) -> None:
        self.add_mode(self.DEFAULT_MODE, self.get_default_screen)
        self.session.vitals.changed.subscribe(self, self._show_title)
        self.call_after_refresh(self.run_worker, self._open)

    def _show_title(self, vitals: Vitals) -> None:
        if self.terminal is not None:
            self.terminal.show_title(window_title(vitals))

    def _hide_toasts_below(self, top: Screen[Any]) -> None:
        """Show toasts only on the top screen; otherwise they would appear again below a dialog."""
        for screen in self.screen_stack:
            if screen is not top:
                screen.query("ToastRack").set(display=False)

    # Requests from screens

    def on_open_run(self, message: OpenRun) -> None:
        if message.profile in {"", self.session.profile.name}:
            self.action_open_run(message.run_id, message.part)
        else:
            self.switch_profile(message.profile, message)

    def action_open_run(self, run_id: str | None, part: str = "conversation") -> None:
        from app.runs.screen_run import RunScreen

        is_here = isinstance(self.screen, RunScreen) and self.screen.focused_run_id == run_id
        if run_id is not None and self.session.engine is not None and not is_here:
            self.push_screen(RunScreen(self.session, run_id, part))

    def on_follow_run(self, message: FollowRun) -> None:
        if self.following is None:
            self.session.notify(self.session.not_open)
        elif message.profile not in {"", self.session.profile.name}:
            self.session.notify(f"Runs of {message.profile} are followed there: enter opens one, f follows it.")
        else:
            self.run_worker(partial(self.following.toggle, *message.run_ids))

    async def on_go_to_tab(self, message: GoToTab) -> None:
        await self.action_tab(message.name, message.target)

    def on_switch_profile(self, message: SwitchProfile) -> None:
        self.switch_profile(message.name)

    async def action_followed(self) -> None:
        """Show the newest batch above the keys; without one, the followed runs."""
        _, batches = self.session.followed
        if batches and isinstance(self.screen, BaseScreen):
            self.screen.action_batch(batches[0].key)
        else:
            await self.action_tab("runs", FOLLOWED)

    async def action_tab(self, name: str, target: str | None = None) -> None:
        """Show a tab and a target in it, once the engine is open; without a target, the tab as it was left."""
        if name == ALL and not self.session.vitals.now.can_switch:
            self.action_profiles()
        elif self.current_mode == SWITCHING_MODE or (self.session.engine is None and name != "runs"):
            self.session.notify(self.session.not_open)
        elif name != self.current_mode or target is not None:
            if (before := self._here) is not None:
                self._visited.append(before)
            await self.switch_mode(name)
            if target is not None:
                await self._uncover()
                if isinstance(self.screen, BaseScreen):
                    self.screen.go_to(target)

    async def action_back(self) -> None:
        if self.current_mode == SWITCHING_MODE:
            return
        if not self._visited:
            self.session.notify("There is nothing to go back to.")
            return
        visited = self._visited.pop()
        await self.switch_mode(visited.tab)
        if self._covering() != visited.run_ids:
            await self._uncover()
        if isinstance(base := self.screen_stack[0], BaseScreen):
            base.return_to(visited.bookmark)
        for run_id in visited.run_ids[len(self._covering()) :]:
            self.action_open_run(run_id)

    @property
    def _here(self) -> VisitedScreen | None:
        """The current tab; None if `action_back` cannot return to it."""
        base = self.screen_stack[0]
        tab = self.current_mode
        if tab not in MODES or not isinstance(base, BaseScreen):
            return None
        return VisitedScreen(tab, base.bookmark, self._covering())

    def _covering(self) -> tuple[str, ...]:
        """The runs open over the current tab, the topmost last."""
        above = self.screen_stack[1:]
        return tuple(run_id for screen in above if isinstance(screen, BaseScreen) and (run_id := screen.focused_run_id))

    async def _uncover(self) -> None:
        """Close the runs open over the current tab; forms and sheets stay."""
        while len(self.screen_stack) > 1 and isinstance(self.screen, BaseScreen):
            await self.pop_screen()

    def action_profiles(self) -> None:
        from app.profiles.screen_profiles import ProfileSwitcher

        if not self.session.vitals.now.can_switch:
            self.session.notify(
                "Only one profile is configured. Add a [profiles.NAME] to the configuration for another."
            )
        else:
            self.push_screen(ProfileSwitcher(self.session), self.switch_profile)

    def action_command_palette(self) -> None:
        from app.console.palette import ConsoleCommands, ConsolePalette

        if isinstance(self.screen, BaseScreen):
            self.push_screen(ConsolePalette([ConsoleCommands], id="--command-palette"))

    @work
    async def action_notice(self) -> None:
        """Open the subject of the last notice; without a subject, show the latest notices in full."""
        from app.console.sheets import ChoiceSheet

        notices = self.session.notices
        if not notices:
            self.session.notify("There are no notices yet.")
        elif (opens := notices[0].opens) or (
            opens := await self.push_screen_wait(
                ChoiceSheet[Message | None]("Notices", [(Content(notice.text), notice.opens) for notice in notices])
            )
        ):
            self.post_message(opens)

    def notify(self, message: str, **options: Any) -> None:
        """Show a toast; one from a form, which has no session, is kept for the key as well."""
        notices = self.session.notices
        text = safe_text(message)
        if not (notices and notices[0].text.endswith(text)):
            notices.appendleft(ShownNotice(text, None, self.clock() + timedelta(seconds=TOAST_S)))
        super().notify(message, **options)

    def action_help(self) -> None:
        from app.console.palette import KeyHelpScreen

        self.push_screen(KeyHelpScreen(self.screen))

    def action_own_command(self, index: int) -> None:
        from app.console.own_commands import run_own_command

        if isinstance(self.screen, BaseScreen):
            work = partial(run_own_command, self.screen, self.settings.commands[index])
            self.run_worker(work, exclusive=True, group="own command")

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End the app; the next start begins with a picture of the current screen."""
        try:
            # The next start begins with the first profile again.
            if self.keep_frame is not None and self.session.profile.name == self._first_profile:
                keep_last_frame(self, self.keep_frame, self._first_profile)
        finally:
            super().exit(*arguments, **options)

    async def _open(self) -> None:
        session = self.session
        try:
            engine = await self.engines.open_polling(session.profile.name)
        finally:
            if not gc.isenabled():
                # Modules imported by now are never freed: checking them at every collection would only delay keys.
                gc.freeze()
                gc.enable()
        session.open(engine)
        from app.runs.screen_following import RunFollower

        write = self.terminal.write if self.terminal is not None else lambda _: None
        self.following = RunFollower(engine, session, write)
        session.engine_changed.subscribe(self, self.following.engine_changed)
        self.following.ask()

    def switch_profile(self, name: str | None, run: OpenRun | None = None) -> None:
        """Switch to another profile, and open one of its runs; None, or the profile on show: do nothing."""
        session = self.session
        if name == ALL:
            self.run_worker(partial(self.action_tab, ALL))
        elif name == session.profile.name and self.current_mode == ALL:
            self.run_worker(partial(self.action_tab, "runs"))
        elif name is None or name == session.profile.name:
            return
        elif any(worker.group in WRITING and not worker.is_finished for worker in self.workers):
            session.notify("A request is being sent: switch when it is done.", severity="warning")
        elif self._is_switching or (session.engine is None and session.vitals.storage_trouble is None):
            session.notify(session.not_open)  # Opening neither finished nor failed.
        else:
            self._is_switching = True
            self.run_worker(partial(self._switch, name, run), group="switch")

    async def _switch(self, name: str, run: OpenRun | None) -> None:
        left = self.session
        profile = self.engines.profile(name)
        came_from = self._here if run is not None else None
        try:
            self.add_mode(SWITCHING_MODE, lambda: BetweenScreen(name=name))
            await self.switch_mode(SWITCHING_MODE)
            # Close screens before the engine they read from, and their workers before the widgets they write to.
            for mode in MODES:
                for worker in [worker for worker in self.workers if worker.node is not self]:
                    worker.cancel()
                await self.remove_mode(mode)
            self.following = None
            # The way back keeps only the list of all profiles.
            self._visited = deque(filter(None, [came_from]), maxlen=MAX_VISITED)
            left.vitals.changed.unsubscribe(self)  # A read in progress belongs to the profile being left.
            left.leave()
            try:
                await self.engines.close_engine(left.profile.name)
            except StorageError as error:
                # A toast outlives the screens, while a banner would blame the new profile's files.
                left.notify(f"{left.profile.name} was not closed properly: {error}", severity="error")
            first = await asyncio.to_thread(first_picture, self.settings, profile, self.clock())
            self._begin_with(profile, first)
            self._open_soon()
            self._show_title(self.session.vitals.now)
            await self.switch_mode(self.DEFAULT_MODE)
            await self.remove_mode(SWITCHING_MODE)
        finally:
            self._is_switching = False
        if run is not None:
            session = self.session
            await session.opened()
            if session is self.session:
                self.action_open_run(run.run_id, run.part)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "tab" and parameters == ("activity", FIRST_UNKNOWN):
            return bool(self.session.vitals.now.unknown)
        return super().check_action(action, parameters)

    def get_default_screen(self) -> Screen[Any]:
        """Return the Runs screen: as a mode added before mounting, Textual parses every style sheet thrice."""
        return screen_type(self.DEFAULT_MODE)(self.session)
