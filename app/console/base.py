"""The base of every screen: header, tabs, banner and keys; the notice on small terminals; and the tabs' screens."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from app.console.feeds import RunWorker
from app.console.guard import guarded_event
from app.console.session import OpenRun, Session
from app.console.troubles import READ_ONLY
from app.engine.events import Event
from app.profiles import Profile
from widgets.frame import Banner, HeaderBar, KeyBar, KeyHint, Notice, Tab, TabBar, Vitals
from widgets.kit import NO_KEY, hidden
from widgets.runs.columns import MAX_AGE_LAG
from widgets.runs.follow import FollowStrip

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from widgets.forms.facts import TableAndFacts
    from widgets.kit.line_table import LineTable

KeyScope = Literal["here", "in the list", "everywhere"]


class KeyAction(Struct, frozen=True):
    """An action that is available now."""

    keys: tuple[str, ...]
    """The keys, as they are shown; empty: the action is only in the palette."""
    does: str
    action: str
    node: DOMNode
    """The node that has the action."""
    scope: KeyScope
    enabled: bool
    more: str = ""
    """A sentence about the action."""


AT_END: Final = frozenset({"notice", "help"})
"""The keys at the right edge of the bottom line."""


def key_actions(screen: Screen[Any], *, hinted: Collection[str] | None = None) -> tuple[KeyAction, ...]:
    """All of our keys on a screen, the focused widget's first; with `hinted`, only those and keys marked to show."""
    groups: dict[tuple[KeyScope, str], list[Any]] = {}
    for active in screen.active_bindings.values():
        scope: KeyScope = "here" if active.node is screen else "in the list"
        # Textual's own bindings, such as moving the focus, have no id and are not shown.
        if active.binding.id is not None or active.binding.show:
            place: KeyScope = "everywhere" if active.node is screen.app else scope
            groups.setdefault((place, active.binding.action), []).append(active)
    actions = []
    for (scope, action), group in groups.items():
        node, binding, enabled, _ = group[0]
        if hinted is None or binding.show or (action in hinted and enabled):
            bindings = (active.binding for active in group if not active.binding.key.startswith(NO_KEY))
            keys = tuple(map(screen.app.get_key_display, bindings))
            actions.append(KeyAction(keys, binding.description, action, node, scope, enabled, binding.tooltip))
    return tuple(actions)


def key_hints(screen: Screen[Any]) -> tuple[KeyHint, ...]:
    """The hints for the bottom line, the row's first; keys that the focused widget would type are left out."""
    focused = screen.focused
    words = screen.keys_now if isinstance(screen, BaseScreen) else {}
    if isinstance(screen, BaseScreen) and screen.session.has_notice:
        words = words | {"notice": ""}
    order = {action: place for place, action in enumerate(words)}
    actions = sorted(
        key_actions(screen, hinted=words),
        key=lambda entry: order.get(entry.action, len(order)) if entry.enabled else len(order),
    )
    return tuple(
        KeyHint(key, words.get(entry.action) or entry.does, entry.action, entry.enabled, at_end=entry.does in AT_END)
        for entry in actions
        for key in entry.keys[:1]
        if not (focused and len(key) == 1 and focused.check_consume_key(key, key))
    )


WIDTHS: Final = [(0, "-narrow"), (120, "-wide")]
HEIGHTS: Final = [(0, "-short"), (32, "-tall")]
TABS_CSS: Final = Path(__file__).with_name("tabs.tcss")
"""The styles of all tabs except Runs; they are not read at start-up."""
ALL: Final = "all profiles"
"""The list of all profiles' runs has no tab, because it does not belong to the current profile."""
INBOX: Final = "inbox"
TABS: Final = (
    Tab("runs", "1", "Runs", "Runs", "Runs"),
    Tab("health", "2", "Health", "Health", "Health"),
    Tab("organizations", "3", "Organizations", "Orgs", "Orgs", is_optional=True),
    Tab("insights", "4", "Insights", "Insights", "Ins."),
    Tab("automations", "5", "Automations", "Automations", "Auto", is_optional=True),
    Tab("activity", "6", "Activity", "Activity", "Act."),
    Tab(INBOX, "7", "Inbox", "Inbox", "Inbox"),
)
TICK_S = 1.0
"""How often ages are checked; they are painted only when their text changes."""
TICKS_BEHIND = 5
"""The number of ticks between checks of the ages behind a sheet."""
IDLE_AFTER: Final = timedelta(seconds=1.5)
"""After this long without a repaint, a screen no longer counts seconds."""
MIN_TERMINAL: Final = Size(50, 12)
"""The smallest terminal in which each screen shows a row, and each form a field with its buttons."""


class BaseScreen(Screen[None]):
    """A tab's screen. Subclasses override `compose_body`, and as needed the hooks, which do nothing here."""

    TAB: ClassVar[str]
    run_worker: RunWorker
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("ctrl+r,f5", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh")
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.disable_messages(Worker.StateChanged)
        self.session = session
        self._ticks_behind = 0
        self._changed_at = self._ticked_at = session.clock()
        """When a widget was last repainted, and the ages last updated."""
        self._has_unknown = False
        """Whether there are unknown outcomes; the key to resolve them is offered only then."""
        self._has_notice = False
        """Whether the bottom line shows the key that opens a toast."""
        self.aging: tuple[LineTable[Any] | TableAndFacts[Any], ...] = ()
        """The widgets whose ages `tick` updates."""

    def compose(self) -> ComposeResult:
        session = self.session
        yield HeaderBar(session.vitals.now, session.vitals.timing, session.healthy_words, session.clock)
        yield TabBar(TABS, self.TAB)
        yield from self.compose_body()
        with Vertical(id="bottom"):
            yield Banner()
            yield FollowStrip()
            yield KeyBar()

    def compose_body(self) -> Iterable[Widget]:
        """Compose the part between the tabs and the keys."""
        return ()

    on_event = guarded_event

    def on_mount(self) -> None:
        session = self.session
        session.engine_changed.subscribe(self, self.engine_changed)
        session.vitals.changed.subscribe(self, self._show_vitals)
        session.pins_changed.subscribe(self, lambda _: self.show_trouble())
        session.batches.changed.subscribe(self, lambda _: self.show_trouble())
        self.bindings_updated_signal.subscribe(self, self._show_keys)
        self.set_interval(TICK_S, self.beat)
        self._show_vitals(session.vitals.now)

    def on_update(self) -> None:
        """Record that a widget was asked to repaint."""
        self._changed_at = self.session.clock()

    def on_screen_resume(self) -> None:
        self._show_keys(self)
        if self._ticks_behind:
            self.beat()

    def on_screen_suspend(self) -> None:
        """Offer no keys behind a sheet."""
        self._show_keys(self)

    @on(events.Resize)
    def cover_if_too_small(self, event: events.Resize) -> None:
        if is_too_small(event.size) and not isinstance(self.app.screen, TooSmall):
            self.app.push_screen(TooSmall())

    def engine_changed(self, event: Event) -> None:
        """Hook: reload the data that this event may have changed."""

    def tick(self, now: datetime) -> None:
        """Update the ages; called once a second, or less often while none of them counts seconds."""
        for widget in self.aging:
            widget.tick(now)

    def go_to(self, target: str) -> None:
        """Hook: move the cursor to the row with this key, once it is read."""

    @property
    def bookmark(self) -> Any:
        """The filters and the key under the cursor, which `return_to` restores."""
        return None

    def return_to(self, bookmark: Any) -> None:
        self.go_to(bookmark)

    @property
    def focused_run_id(self) -> str | None:
        """The id of the run that keys and commands act on, in `acting_profile`; or None."""
        return None

    @property
    def chosen_ids(self) -> tuple[str, ...]:
        """The runs that keys and commands act on: the marked ones, or the one in focus if none is marked."""
        return () if self.focused_run_id is None else (self.focused_run_id,)

    @property
    def keys_now(self) -> dict[str, str]:
        """Hook: actions that matter for the row under the cursor, the most important first, with their words.

        Without words, the bottom line shows the binding's description.
        """
        return {}

    def action_part(self, name: str) -> None:
        if (run_id := self.focused_run_id) is not None:
            self.post_message(OpenRun(run_id, self.acting_profile.name, name))

    def trouble(self) -> Notice | None:
        """The banner's notice, or None."""
        return self.session.vitals.trouble

    def show_trouble(self) -> None:
        """Update the line above the keys: a problem, otherwise the followed runs or the permanent notice."""
        session = self.session
        now = self.session.run_now()
        # A screen may describe a lost connection itself; problems with our own files are shown on every screen.
        trouble = session.vitals.storage_trouble or self.trouble()
        pins, batches = ((), ()) if trouble else session.followed
        self.query_one(FollowStrip).show(pins, batches, now, session.vitals.as_of or now)
        standing = READ_ONLY if self.acting_profile.read_only else None
        self.query_one(Banner).notice = trouble or (None if pins or batches else standing)

    @property
    def acting_engine(self) -> "Engine | str":
        """The engine that the keys use, or the reason why it is unavailable."""
        return self.session.engine or self.session.not_open

    @property
    def acting_profile(self) -> Profile:
        """The profile that the keys act on."""
        return self.session.profile

    def action_refresh(self) -> None:
        self.session.poll_soon()

    def in_header(self, vitals: Vitals) -> Vitals:
        """Hook: the figures of the header."""
        return vitals

    async def action_press(self, action: str) -> None:
        """Run an action as its key does, on the node that defines it."""
        if (entry := next((entry for entry in key_actions(self) if entry.action == action), None)) is not None:
            await self.app.run_action(entry.action, entry.node)

    @property
    def is_current(self) -> bool:
        """Whether any part of the screen is visible; Textual repaints even a fully covered screen."""
        if not super().is_current:
            return False
        above = self.app.screen_stack[self.app.screen_stack.index(self) + 1 :]
        return all(screen.styles.background.a < 1 for screen in above)

    def beat(self) -> None:
        """Update the ages on this screen that may have changed; called once a second."""
        is_behind = self.app.screen is not self
        self._ticks_behind = self._ticks_behind + 1 if is_behind else 0
        # A change on a screen below a sheet repaints the whole sheet.
        if not self.is_current or self._ticks_behind % TICKS_BEHIND:
            return
        if self._has_notice != self.session.has_notice:
            self._has_notice = not self._has_notice
            self.refresh_bindings()
        now = self.session.clock()
        self.query_one(HeaderBar).tick()
        self.session.vitals.tick(now)
        self.session.inbox.tick(now)
        # Seconds change with each tick. If no age counts seconds, all count minutes and may be a little late.
        if self._ticked_at - self._changed_at < IDLE_AFTER or not timedelta(0) <= now - self._ticked_at < MAX_AGE_LAG:
            self._ticked_at = now
            self.show_trouble()
            self.tick(now)

    def _show_vitals(self, vitals: Vitals) -> None:
        if bool(vitals.unknown) != self._has_unknown:
            self._has_unknown = bool(vitals.unknown)
            self.refresh_bindings()
        self.query_one(HeaderBar).show(self.in_header(vitals))
        bar = self.query_one(TabBar)
        bar.set_up = vitals.set_up
        unknown = f"?{vitals.unknown:,}" if vitals.unknown else ""
        inbox = f"{vitals.inbox:,}" if vitals.inbox else ""
        bar.counts = {"activity": unknown, INBOX: inbox}
        self.show_trouble()

    @work
    async def action_batch(self, key: str) -> None:
        from app.actions.screen_many import BatchScreen

        if run_id := await self.app.push_screen_wait(BatchScreen(self.session, key)):
            self.post_message(OpenRun(run_id))

    def _show_keys(self, screen: Screen[Any]) -> None:
        if screen is self and self.is_mounted:
            self.query_one(KeyBar).hints = () if isinstance(self.app.screen, ModalScreen) else key_hints(self)


def is_too_small(size: Size) -> bool:
    return size.width < MIN_TERMINAL.width or size.height < MIN_TERMINAL.height


class TooSmall(ModalScreen[None]):
    """Covers everything until the terminal grows."""

    DEFAULT_CSS = """
    TooSmall { align: center middle; background: $background; }
    TooSmall Static { width: auto; max-width: 100%; text-align: center; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "quit", id="small.quit")]

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    @on(events.Resize)
    @on(events.ScreenResume)
    def fit(self) -> None:
        """Show the current size, or close once the terminal is large enough and no sheet covers the notice."""
        size = self.app.size
        if is_too_small(size):
            text = f"{size.width}x{size.height} is too small: {MIN_TERMINAL.width}x{MIN_TERMINAL.height} at least."
            self.query_one(Static).update(text)
        elif self.is_current:
            self.dismiss()


SCREENS: Final = {
    ALL: "app.profiles.screen_profiles:AllProfilesScreen",
    "runs": "app.runs.screen:RunsScreen",
    "health": "app.health.screen:HealthScreen",
    "organizations": "app.organizations.screen:OrganizationsScreen",
    "insights": "app.insights.screen:InsightsScreen",
    "automations": "app.automations.screen:AutomationsScreen",
    "activity": "app.actions.screen:ActivityScreen",
    INBOX: "app.inbox.screen:InboxScreen",
}
"""The class of each tab's screen, imported when the tab is first shown."""


def screen_type(tab: str) -> type[BaseScreen]:
    kind: type[BaseScreen] = resolve_name(SCREENS[tab])
    return kind
