"""The command palette: every key's action by name, and the themes."""

import shlex
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from app.console.base_screen import TABS, BaseScreen
from app.console.fuzzy import fuzzy
from app.console.key_actions import key_actions
from app.text import safe_text

OWN: Final = "own_command"
"""The action behind the user's own commands, which are listed by their names."""
HERE: Final = frozenset({"palette", *(tab.title for tab in TABS)})
"""What is open already, or has a better name here."""
MOVES: Final = frozenset(
    {"move", "page", "first", "last", "sideways", "up", "down", "top", "bottom", "scroll_up", "scroll_down"}
)
"""Actions that only move the cursor: they are not looked for by name."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the palette."""

    name: str
    help: str
    run: Callable[[], Awaitable[object] | object]


class ConsolePalette(CommandPalette):
    """Textual's palette, which a second key in the same moment would close twice, and its command with it."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close once; a command chosen again while this is closing is not run."""
        if self.is_current:
            return super().dismiss(result)
        if self._selected_command is not None:
            self._selected_command = replace(self._selected_command, command=lambda: None)
        return AwaitComplete()


class ConsoleCommands(Provider):
    """What can be done on the screen that the palette was opened on."""

    async def discover(self) -> Hits:
        """Everything but the themes, while nothing is typed."""
        for command in (*self._key_actions(), *self._own(), *self._tabs()):
            yield DiscoveryHit(Content(command.name), command.run, command.name, _as_help(command.help))

    async def search(self, query: str) -> Hits:
        """What matches, best first."""
        for command in (*self._key_actions(), *self._own(), *self._tabs(), *self._themes()):
            if (match := fuzzy(query, command.name)) is not None:
                # Content, not a string: the palette reads that as markup.
                name = Content(command.name)
                for at in match.found:
                    name = name.stylize(self.match_style or "bold", at, at + 1)
                yield Hit(match.score, name, command.run, command.name, _as_help(command.help))

    def _key_actions(self) -> Iterator[Command]:
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
                yield Command(name, f"{keys} · {key_action.more}" if key_action.more else keys, run)

    def _own(self) -> Iterator[Command]:
        for index, own in enumerate(
            self.screen.session.settings.commands if isinstance(self.screen, BaseScreen) else ()
        ):
            line = safe_text(shlex.join(own.argv), limit=200)
            run = partial(self.app.run_action, f"app.{OWN}({index})")
            yield Command(safe_text(own.name, limit=60), f"{own.key} · {line}" if own.key else line, run)

    def _tabs(self) -> Iterator[Command]:
        for tab in TABS:
            yield Command(f"Go to {tab.title}", tab.key, partial(self.app.run_action, f"app.tab('{tab.name}')"))

    def _themes(self) -> Iterator[Command]:
        for name in sorted(self.app.available_themes):
            yield Command(
                f"Theme: {name}",
                "Until the console is closed; the configuration sets it for good.",
                partial(setattr, self.app, "theme", name),
            )


def _as_help(text: str) -> str:
    # The palette reads a string as markup, and content as it is.
    return cast("str", Content(text))
