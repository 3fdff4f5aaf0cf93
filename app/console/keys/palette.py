"""The command palette: every key's action by name, destinations and themes."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from app.console.base.key_actions import key_actions
from app.console.base.screen import TABS, BaseScreen
from app.console.fuzzy import fuzzy
from app.console.keys.destinations import MOVES, PaletteCommand, destinations, matching_runs
from app.console.session.user_preferences import UserPreferences, keep, read
from app.text import safe_text
from widgets.badges import STYLES

OWN: Final = "own_command"
"""The action behind the user's own commands, which are listed by name."""
HERE: Final = frozenset({"palette", *(tab.title for tab in TABS)})
"""Actions that make no sense here, or have a better name."""
LEAST_TO_FIND: Final = 3
"""Letters typed before runs are searched for."""
RECENT_SCORE: Final = 1.0


class ConsolePalette(CommandPalette):
    """Textual's palette; a second enter in the same moment would close it twice, and the command's sheet with it."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close once; a command chosen while it closes is not run."""
        if self.is_current:
            return super().dismiss(result)
        if self._selected_command is not None:
            self._selected_command = replace(self._selected_command, command=lambda: None)
        return AwaitComplete()


class ConsoleCommands(Provider):
    """The actions of the screen below the palette, and destinations; recent choices first."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._destinations: tuple[PaletteCommand, ...] = ()
        self._recent: tuple[str, ...] = ()
        self._reading: asyncio.Task[None] | None = None

    async def _read_once(self) -> None:
        """Read the destinations. A letter typed too early cancels the search that waits, not what it waits for."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        if isinstance(self.screen, BaseScreen):
            self._recent = read(self.screen.session.settings).recent
            self._destinations = await self.screen.session.guard(destinations, self.screen) or ()

    async def shutdown(self) -> None:
        """The palette was closed: read no further."""
        if self._reading is not None:
            self._reading.cancel()

    async def discover(self) -> Hits:
        """List recent choices, then the screen's actions, before anything is typed."""
        await self._read_once()
        known = {command.name: command for command in self._every()}
        recent = [known[name] for name in self._recent if name in known]
        rest = (*self._key_actions(), *self._own(), *self._tabs())
        for command in (*recent, *(each for each in rest if each not in recent)):
            yield DiscoveryHit(_line(Content(command.name), command), self._remembering(command), command.name)

    async def search(self, query: str) -> Hits:
        """List the matches, best first; among equals, recent choices."""
        await self._read_once()
        runs: tuple[PaletteCommand, ...] = ()
        if isinstance(self.screen, BaseScreen) and len(query.strip()) >= LEAST_TO_FIND:
            runs = await self.screen.session.guard(matching_runs, self.screen, query.strip()) or ()
        for command in (*self._every(), *runs):
            # A run also matches by its repository and branch.
            match = fuzzy(query, command.name) or ((0.0, ()) if command in runs else None)
            if match is None:
                continue
            # Content, not a string: the palette would read markup in it.
            name = Content(command.name)
            score, found = match
            for at in found:
                name = name.stylize(self.match_style or "bold", at, at + 1)
            lately = RECENT_SCORE if command.name in self._recent else 0.0
            yield Hit(score + lately, _line(name, command), self._remembering(command), command.name)

    def _every(self) -> Iterator[PaletteCommand]:
        yield from (*self._key_actions(), *self._own(), *self._tabs(), *self._destinations, *self._themes())

    def _remembering(self, command: PaletteCommand) -> Callable[[], Awaitable[object] | object]:
        """Run it, and list it first the next time."""

        def run() -> Awaitable[object] | object:
            self._keep(lambda known: known.with_recent(command.name))
            return command.run()

        return run

    def _key_actions(self) -> Iterator[PaletteCommand]:
        seen: set[str] = set()
        for key_action in key_actions(self.screen):
            name = key_action.action.partition("(")[0].rpartition(".")[2]
            if (
                key_action.enabled
                and name not in {*MOVES, OWN}
                and key_action.action not in seen
                and key_action.does not in HERE
            ):
                seen.add(key_action.action)
                name = key_action.does[0].upper() + key_action.does[1:]
                keys = " ".join(key_action.keys)
                run = partial(self.app.run_action, key_action.action, key_action.node)
                yield PaletteCommand(name, f"{keys} · {key_action.more}" if key_action.more else keys, run)

    def _own(self) -> Iterator[PaletteCommand]:
        for index, own in enumerate(
            self.screen.session.settings.commands if isinstance(self.screen, BaseScreen) else ()
        ):
            line = safe_text(shlex.join(own.argv), limit=200)
            run = partial(self.app.run_action, f"app.{OWN}({index})")
            yield PaletteCommand(safe_text(own.name, limit=60), f"{own.key} · {line}" if own.key else line, run)

    def _tabs(self) -> Iterator[PaletteCommand]:
        for tab in TABS:
            yield PaletteCommand(f"Go to {tab.title}", tab.key, partial(self.app.run_action, f"app.tab('{tab.name}')"))

    def _themes(self) -> Iterator[PaletteCommand]:
        for name in sorted(self.app.available_themes):
            yield PaletteCommand(f"Theme {name}", "kept for the next start", partial(self._take_theme, name))

    def _take_theme(self, name: str) -> None:
        self.app.theme = name
        if isinstance(self.screen, BaseScreen):
            configured = self.screen.session.settings.console.theme
            self._keep(lambda known: known.with_theme(name, configured))

    def _keep(self, change: Callable[[UserPreferences], UserPreferences]) -> None:
        if isinstance(self.screen, BaseScreen):
            self.screen.run_worker(partial(keep, self.screen.session.settings, change))


def _line(name: Content, command: PaletteCommand) -> Content:
    """A line: the command's name, then its key or its kind."""
    return Content.assemble(name, (f"  {command.help}", f"not bold {STYLES['quiet']}")) if command.help else name
