"""The command palette: every key's action by name, the places to go to, and themes; and the help of the keys."""

import asyncio
import dataclasses
import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from textwrap import wrap
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual import on
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Input

from app.console.base import ALL, TABS, BaseScreen, key_actions, screen_type
from app.console.keymap import bindings_of, key_text
from app.console.session import GoToTab, OpenRun, SwitchProfile
from app.console.sheets import OVER_CSS, Sheet
from app.console.themes import THEMES, UserPreferences, keep_preferences, read_preferences
from app.engine.text import safe_text
from app.runs.query import KeyName, list_terms
from app.runs.screen_views import PreferencesFile, views_of
from storage.records import RunFilter, RunSort
from widgets.kit.badges import STYLES
from widgets.kit.choice_lists import fuzzy
from widgets.kit.line_text import LinePane

OWN_COMMAND: Final = "own_command"
"""The action behind the user's own commands, which are listed by name."""
NOT_LISTED: Final = frozenset({"palette", *(tab.title for tab in TABS)})
"""Actions that are of no use in the palette, or have a better name there."""
LEAST_TO_FIND: Final = 3
"""Letters typed before runs are searched for."""
RECENT_SCORE: Final = 1.0
MOVES: Final = frozenset(
    {"move", "page", "first", "last", "sideways", "up", "down", "top", "bottom", "scroll_up", "scroll_down"}
)
"""Actions that only move the cursor are not listed."""
NEAREST: Final = 8
"""Runs that a search shows; the list of runs shows them all."""
MAX_NAMES: Final = 500
_NAME_CELLS: Final = 60
KEY_CELLS: Final = 13
DOES_CELLS: Final = 20
LEAST_MORE_CELLS: Final = 14
SCOPES: Final = {"here": "On this screen", "in the list": "Where the cursor is", "everywhere": "Everywhere"}


class PaletteCommand(Struct, frozen=True):
    """One line of the palette."""

    name: str
    help: str
    run: Callable[[], Awaitable[object] | object]


class ConsolePalette(CommandPalette):
    """Textual's palette, which closes once: a second enter in the same moment would also close the command's sheet."""

    CSS_PATH = OVER_CSS

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close once; a command chosen while it closes is not run."""
        if self.is_current:
            return super().dismiss(result)
        if self._selected_command is not None:
            self._selected_command = dataclasses.replace(self._selected_command, command=lambda: None)
        return AwaitComplete()


class ConsoleCommands(Provider):
    """The actions of the screen below the palette, and destinations; recent choices first."""

    def __init__(self, screen: BaseScreen, match_style: Style | None = None) -> None:
        super().__init__(screen, match_style)
        self._below = screen
        self._session = screen.session
        self._destinations: tuple[PaletteCommand, ...] = ()
        self._recent: tuple[str, ...] = ()
        self._reading: asyncio.Task[None] | None = None

    async def _read_once(self) -> None:
        """Read the destinations once. Typing cancels a search that waits for them, but not the reading."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        self._recent = read_preferences(self._session.settings).recent
        self._destinations = await self._session.guard(destinations, self._below) or ()

    async def shutdown(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def discover(self) -> Hits:
        """List recent choices, then the screen's actions, before anything is typed."""
        await self._read_once()
        commands = {command.name: command for command in self._all()}
        recent = [commands[name] for name in self._recent if name in commands]
        rest = [*self._actions()]
        for command in (*recent, *(command for command in rest if command not in recent)):
            yield DiscoveryHit(_line(Content(command.name), command), partial(self._run, command), command.name)

    async def search(self, query: str) -> Hits:
        """List the matches, best first; among equals, recent choices."""
        await self._read_once()
        runs: tuple[PaletteCommand, ...] = ()
        if len(query.strip()) >= LEAST_TO_FIND:
            runs = await self._session.guard(matching_runs, self._below, query.strip()) or ()
        for command in (*self._all(), *runs):
            # A query may also match a run's repository and branch.
            match = fuzzy(query, command.name) or ((0.0, ()) if command in runs else None)
            if match is None:
                continue
            # Content, not a string: the palette would read markup in it.
            name = Content(command.name)
            score, positions = match
            for at in positions:
                name = name.stylize(self.match_style or "bold", at, at + 1)
            bonus = RECENT_SCORE if command.name in self._recent else 0.0
            yield Hit(score + bonus, _line(name, command), partial(self._run, command), command.name)

    def _all(self) -> Iterator[PaletteCommand]:
        yield from (*self._actions(), *self._destinations)
        for name in sorted(theme.name for theme in THEMES):
            yield PaletteCommand(f"Theme {name}", "saved for the next start", partial(self._use_theme, name))

    def _run(self, command: PaletteCommand) -> Awaitable[object] | object:
        self._keep(lambda known: known.with_recent(command.name))
        return command.run()

    def _actions(self) -> Iterator[PaletteCommand]:
        seen: set[str] = set()
        for key_action in key_actions(self.screen):
            name = key_action.action.partition("(")[0].rpartition(".")[2]
            if (
                key_action.enabled
                and name not in {*MOVES, OWN_COMMAND}
                and key_action.action not in seen
                and key_action.does not in NOT_LISTED
            ):
                seen.add(key_action.action)
                name = key_action.does[0].upper() + key_action.does[1:]
                keys = " ".join(key_action.keys)
                run = partial(self.app.run_action, key_action.action, key_action.node)
                yield PaletteCommand(name, " · ".join(filter(None, (keys, key_action.more))), run)
        for index, own in enumerate(self._session.settings.commands):
            line = safe_text(shlex.join(own.argv), limit=200)
            run = partial(self.app.run_action, f"app.{OWN_COMMAND}({index})")
            yield PaletteCommand(safe_text(own.name, limit=60), f"{own.key} · {line}" if own.key else line, run)
        for tab in TABS:
            yield PaletteCommand(f"Go to {tab.title}", tab.key, partial(self.app.run_action, f"app.tab('{tab.name}')"))

    def _use_theme(self, name: str) -> None:
        self.app.theme = name
        self._keep(partial(replace, theme=name, configured=self._session.settings.console.theme))

    def _keep(self, change: Callable[[UserPreferences], UserPreferences]) -> None:
        self._below.run_worker(partial(keep_preferences, self._session.settings, change), thread=True)


def _line(name: Content, command: PaletteCommand) -> Content:
    if command.help:
        return Content.assemble(name, (f"  {command.help}", f"not bold {STYLES['quiet']}"))
    return name


async def destinations(screen: BaseScreen) -> tuple[PaletteCommand, ...]:
    session = screen.session
    saved = PreferencesFile.of(session.settings, session.profile).read().views
    leads: list[tuple[str, str, Message]] = [
        (f"View {view.name}", view.query or "all runs", GoToTab("runs", view.query))
        for view in views_of(session.settings.views, saved)
    ]
    leads += [
        (f"Profile {profile.name}", profile.base_url, SwitchProfile(profile.name))
        for profile in session.settings.profiles
        if profile.name != session.profile.name
    ]
    if session.vitals.now.can_switch:
        leads.append((f"Profile {ALL}", "their runs in one list", SwitchProfile(ALL)))
    if session.engine is not None:
        cache = session.engine.cache
        values: tuple[tuple[KeyName, str, Sequence[str]], ...] = (
            ("status", "Status", await cache.known_statuses()),
            ("repo", "Repository", (await cache.repositories())[:MAX_NAMES]),
            ("branch", "Branch", (await cache.branches(RunFilter()))[:MAX_NAMES]),
        )
        for key, word, names in values:
            leads += [
                (f"{word} {name}", "its runs", GoToTab("runs", " ".join(list_terms(key, (name,))))) for name in names
            ]
        for action in (await session.engine.ledger.organizations())[:MAX_NAMES]:
            lead = GoToTab("organizations", action.action_id)
            leads.append((f"Organization {action.subject}", action.state, lead))
    return (*(_posting(screen, *lead) for lead in leads), *await asyncio.to_thread(lambda: tuple(_other_tabs(screen))))


async def matching_runs(screen: BaseScreen, text: str) -> tuple[PaletteCommand, ...]:
    """The newest runs with the text in their id, repository or branch."""
    engine = screen.session.engine
    if engine is None:
        return ()
    rows = await engine.cache.rows(RunFilter(search=text), RunSort(), offset=0, limit=NEAREST)
    return tuple(
        _posting(screen, f"Run {row.run_id}", f"{row.status} {row.repository} {row.branch_name}", OpenRun(row.run_id))
        for row in rows
    )


def _posting(screen: BaseScreen, name: str, about: str, message: Message) -> PaletteCommand:
    run = partial(screen.post_message, message)
    return PaletteCommand(safe_text(name, limit=_NAME_CELLS), safe_text(about, limit=_NAME_CELLS), run)


def _other_tabs(screen: BaseScreen) -> Iterator[PaletteCommand]:
    """The actions of the other tabs; each shows its tab first. Imports all screens."""
    for tab in TABS:
        if tab.name == screen.TAB:
            continue
        actions = {key.action: key for key in bindings_of(screen_type(tab.name)) if key.id and key.description}
        for action, binding in actions.items():
            if action.partition("(")[0].rpartition(".")[2] not in MOVES:
                name = f"{binding.description[0].upper()}{binding.description[1:]} ({tab.title})"
                yield PaletteCommand(name, key_text(binding.key), partial(_go_and_do, screen.app, tab.name, action))


async def _go_and_do(app: App[Any], tab: str, action: str) -> None:
    await app.run_action(f"app.tab('{tab}')")
    if isinstance(app.screen, BaseScreen) and not await app.run_action(action, app.screen):
        app.screen.session.notify("Not possible here.")


class KeyHelpScreen(Sheet[None]):
    """Lists every key of a screen, with a filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="help.filter"),
        Binding("escape", "leave", "close", id="help.leave"),
        Binding("q,question_mark,enter", "dismiss", "close"),
    ]

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        order = list(SCOPES)
        self._actions = sorted(key_actions(screen), key=lambda entry: order.index(entry.scope))

    def compose(self) -> ComposeResult:
        with Vertical() as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "/ filter · : everything else · esc close"
            yield Input(placeholder="search keys and actions", compact=True)
            yield LinePane(lambda width: [*self._lines(width)])

    def on_mount(self) -> None:
        """Focus the keys, so that they scroll; the filter has its own key."""
        self.query_one(LinePane).focus()

    def action_filter(self) -> None:
        self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Clear the filter; without one, close."""
        field = self.query_one(Input)
        if not (field.value or field.has_focus):
            self.dismiss()
        field.value = ""
        self.query_one(LinePane).focus()

    @on(Input.Submitted)
    def focus_keys(self) -> None:
        self.query_one(LinePane).focus()

    @on(Input.Changed)
    def filter_keys(self) -> None:
        self.query_one(LinePane).paint()

    def _lines(self, width: int) -> Iterator[Content]:
        words = self.query_one(Input).value.casefold().split()
        matches = [
            entry
            for entry in self._actions
            if entry.keys and all(word in " ".join([*entry.keys, entry.does, entry.more]).casefold() for word in words)
        ]
        if not matches:
            yield Content("No key found. Search the palette: press :.")
        for scope, group in groupby(matches, key=lambda entry: entry.scope):
            yield Content.styled(SCOPES[scope], "$accent bold")
            for entry in group:
                keys = (f"{' '.join(entry.keys):<{KEY_CELLS}} ", "bold")
                does = f"{entry.does:<{DOES_CELLS}}"
                for line in wrap(entry.more, max(LEAST_MORE_CELLS, width - KEY_CELLS - 1 - DOES_CELLS)) or [""]:
                    yield Content.assemble(keys, does, (line, STYLES["quiet"]))
                    keys = (" " * (KEY_CELLS + 1), "")
                    does = " " * DOES_CELLS
            yield Content()
