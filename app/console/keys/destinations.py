"""The palette's destinations: views, repositories, branches, runs, organizations, profiles, and keys of other tabs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual.app import App
from textual.message import Message

from app.console.base.screen import TABS, BaseScreen
from app.console.messages import GoToTab, OpenRun, SwitchProfile
from app.console.runs.preferences import PreferencesFile
from app.console.runs.query_line import listed
from app.console.runs.views import views_of
from app.console.session import Session
from app.text import safe_text
from storage.records import RunFilter, RunRow, RunSort

if TYPE_CHECKING:
    from app.engine import Engine

MOVES: Final = frozenset(
    {"move", "page", "first", "last", "sideways", "up", "down", "top", "bottom", "scroll_up", "scroll_down"}
)
"""Actions that only move the cursor are not listed."""
NEAREST: Final = 8
"""Runs that a search shows; the list of runs shows them all."""
MOST_NAMES: Final = 500
_NAME_CELLS: Final = 60


@dataclass(frozen=True, slots=True)
class PaletteCommand:
    """One line of the palette."""

    name: str
    help: str
    run: Callable[[], Awaitable[object] | object]


async def destinations(screen: BaseScreen) -> tuple[PaletteCommand, ...]:
    """Everything that can be jumped to from a screen."""
    session = screen.session
    found = [*_views(screen), *_profiles(session, screen)]
    if session.engine is not None:
        found += await _names(session.engine, screen)
    return (*found, *await asyncio.to_thread(lambda: tuple(_other_tabs(screen))))


async def matching_runs(screen: BaseScreen, text: str) -> tuple[PaletteCommand, ...]:
    """The newest runs with the text in their id, repository or branch."""
    engine = screen.session.engine
    if engine is None:
        return ()
    rows = await engine.cache.rows(RunFilter(search=text), RunSort(), offset=0, limit=NEAREST)
    return tuple(_run(row, screen) for row in rows)


def _run(row: RunRow, screen: BaseScreen) -> PaletteCommand:
    about = f"{row.status} {row.repository} {row.branch_name}"
    return _posting(screen, f"Run {row.run_id}", about, OpenRun(row.run_id))


def _runs(query: str) -> GoToTab:
    return GoToTab("runs", query)


def _views(screen: BaseScreen) -> Iterator[PaletteCommand]:
    session = screen.session
    saved = PreferencesFile.of(session.settings, session.profile).read().views
    for view in views_of(session.settings.views, saved):
        yield _posting(screen, f"View {view.name}", view.query or "all runs", _runs(view.query))


def _profiles(session: Session, screen: BaseScreen) -> Iterator[PaletteCommand]:
    for profile in session.settings.profiles:
        if profile.name != session.profile.name:
            yield _posting(screen, f"Profile {profile.name}", profile.base_url, SwitchProfile(profile.name))


async def _names(engine: "Engine", screen: BaseScreen) -> list[PaletteCommand]:
    cache, found = engine.cache, list[PaletteCommand]()
    for status in await cache.known_statuses():
        found.append(_posting(screen, f"Status {status}", "its runs", _runs(" ".join(listed("status", (status,))))))
    for label in (await cache.repositories())[:MOST_NAMES]:
        found.append(_posting(screen, f"Repository {label}", "its runs", _runs(" ".join(listed("repo", (label,))))))
    for branch in (await cache.branches(RunFilter()))[:MOST_NAMES]:
        found.append(_posting(screen, f"Branch {branch}", "its runs", _runs(" ".join(listed("branch", (branch,))))))
    for action in (await engine.ledger.organizations())[:MOST_NAMES]:
        found.append(
            _posting(screen, f"Organization {action.subject}", action.state, GoToTab("organizations", action.action_id))
        )
    return found


def _posting(screen: BaseScreen, name: str, about: str, message: Message) -> PaletteCommand:
    run = partial(screen.post_message, message)
    return PaletteCommand(safe_text(name, limit=_NAME_CELLS), safe_text(about, limit=_NAME_CELLS), run)


def _other_tabs(screen: BaseScreen) -> Iterator[PaletteCommand]:
    """The actions of the other tabs; each shows its tab first. Imports all screens."""
    from app.console.keys.keymap import bindings_of, written
    from app.console.screens import screen_types

    kinds = screen_types()
    for tab in TABS:
        named = {each.action: each for each in bindings_of(kinds[tab.name]) if each.id and each.description}
        for action, binding in named.items() if tab.name != screen.TAB else ():
            if action.partition("(")[0].rpartition(".")[2] not in MOVES:
                name = f"{binding.description[0].upper()}{binding.description[1:]} ({tab.title})"
                yield PaletteCommand(name, written(binding.key), partial(_go_and_do, screen.app, tab.name, action))


async def _go_and_do(app: App[Any], tab: str, action: str) -> None:
    await app.run_action(f"app.tab('{tab}')")
    if isinstance(app.screen, BaseScreen) and not await app.run_action(action, app.screen):
        app.screen.session.notify("There is nothing to do that with here.")
