"""What every room of the console has: the header, the tabs, the banner and the keys."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from app.console.keys.hints import key_actions, key_hints
from app.console.tabs import TABS
from app.events import Event
from storage.errors import StorageError
from widgets.follow import FollowStrip
from widgets.frame.bars import KeyBar, TabBar
from widgets.frame.header_bar import HeaderBar, Vitals
from widgets.frame.notice import Banner, Notice

if TYPE_CHECKING:
    from app.console.app import RunwardenApp
    from storage.records.following import PinnedRun

TICK_S = 1.0
"""How often ages are looked at; they are painted only when they read differently."""


class EngineEvent(Message, bubble=False):
    """The engine's doorbell rang; the app hands it down to the screens, so it must not climb back to the app."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self.event = event


class BaseScreen(Screen[None]):
    """A room: `compose_body` says what is in it, `rang` hears events, `tick` moves its ages."""

    ROOM: ClassVar[str]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 — typed by Textual
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012 — typed by Textual
    AUTO_FOCUS = ""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        console = self.console
        yield HeaderBar(console.vitals, console.patience, console.healthy_words, console.clock)
        yield TabBar(TABS, self.ROOM)
        yield from self.compose_body()
        yield FollowStrip()
        yield Banner()
        yield KeyBar()

    def compose_body(self) -> Iterable[Widget]:
        """What is between the tabs and the keys."""
        return ()

    @property
    def console(self) -> "RunwardenApp":
        """The app, by its own name."""
        return cast("RunwardenApp", self.app)

    def on_mount(self) -> None:
        """Listens to the app, to the keys and to the clock."""
        self.watch(self.app, "vitals", self._show_vitals)
        self.watch(self.app, "pins", self._show_pins)
        self.bindings_updated_signal.subscribe(self, self._show_keys)
        self.set_interval(TICK_S, self._tick)

    def rang(self, event: Event) -> None:
        """Something changed; rooms that show it read it again."""

    def tick(self, now: datetime) -> None:
        """A second has passed."""

    def trouble(self) -> Notice | None:
        """What the banner says."""
        return self.console.trouble()

    def show_trouble(self) -> None:
        """Brings what is said of troubles up to date."""
        # A room may say by itself what is wrong with the link; our own files concern them all.
        self.query_one(Banner).show(self.console.storage_trouble or self.trouble() or self.console.standing)

    @property
    def as_of(self) -> datetime | None:
        """When the service last answered, while it does not any more; None: what is shown is live."""
        link = self.console.vitals.runs_link
        return link.last_ok_at if link is not None and link.is_failing else None

    def storage_failed(self, error: StorageError) -> None:
        """Our own files cannot be read: said in the banner, with the cure."""
        self.console.storage_failed(str(error))

    @on(EngineEvent)
    def _on_rang(self, message: EngineEvent) -> None:
        self.rang(message.event)

    @on(KeyBar.Pressed)
    async def _on_pressed(self, message: KeyBar.Pressed) -> None:
        key_action = next((key_action for key_action in key_actions(self) if key_action.action == message.action), None)
        if key_action is not None:
            await self.app.run_action(key_action.action, key_action.node)

    @on(FollowStrip.Picked)
    def _on_followed_picked(self, message: FollowStrip.Picked) -> None:
        self.console.open_run(message.run_id)

    @on(FollowStrip.ListRequested)
    async def _on_followed_wanted(self) -> None:
        await self.app.run_action("followed")

    @on(HeaderBar.ProfileClicked)
    async def _on_profile(self) -> None:
        await self.app.run_action("profiles")

    @on(TabBar.Picked)
    async def _on_tab(self, message: TabBar.Picked) -> None:
        await self.app.run_action(f"room('{message.name}')")

    def _tick(self) -> None:
        if not self.is_current:
            return
        self.query_one(HeaderBar).tick()
        self._tick_pins()
        self.show_trouble()
        self.tick(self.console.clock())

    def _show_vitals(self, vitals: Vitals) -> None:
        self.query_one(HeaderBar).show(vitals)
        self.show_trouble()

    def _show_pins(self, pins: "tuple[PinnedRun, ...]") -> None:
        now = self.console.clock()
        self.query_one(FollowStrip).show(pins, now, self.as_of or now)

    def _tick_pins(self) -> None:
        now = self.console.clock()
        self.query_one(FollowStrip).tick(now, self.as_of or now)

    def _show_keys(self, screen: Screen[Any]) -> None:
        if screen is self and self.is_mounted:
            self.query_one(KeyBar).show(key_hints(self))
