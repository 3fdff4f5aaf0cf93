"""The command palette: every key's action by name, and the themes."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.console.hints import deeds
from app.console.rooms import ROOMS

HERE: Final = frozenset({"palette", *(room.title for room in ROOMS)})
"""What is open already, or has a better name here."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line of the palette."""

    name: str
    help: str
    run: Callable[[], Awaitable[object] | object]


class ConsoleCommands(Provider):
    """What can be done on the screen that the palette was opened on."""

    async def discover(self) -> Hits:
        """Everything but the themes, while nothing is typed."""
        for command in (*self._deeds(), *self._rooms()):
            yield DiscoveryHit(command.name, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        """What matches, best first."""
        matcher = self.matcher(query)
        for command in (*self._deeds(), *self._rooms(), *self._themes()):
            if (score := matcher.match(command.name)) > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=command.help)

    def _deeds(self) -> Iterator[Command]:
        seen: set[str] = set()
        for deed in deeds(self.screen):
            if deed.enabled and deed.place != "in the list" and deed.action not in seen and deed.does not in HERE:
                seen.add(deed.action)
                name = deed.does[0].upper() + deed.does[1:]
                keys = " ".join(deed.keys)
                run = partial(self.app.run_action, deed.action, deed.node)
                yield Command(name, f"{keys} · {deed.more}" if deed.more else keys, run)

    def _rooms(self) -> Iterator[Command]:
        for room in ROOMS:
            yield Command(f"Go to {room.title}", room.key, partial(self.app.run_action, f"app.room('{room.name}')"))

    def _themes(self) -> Iterator[Command]:
        for name in sorted(self.app.available_themes):
            yield Command(
                f"Theme: {name}",
                "Until the console is closed; the configuration sets it for good.",
                partial(setattr, self.app, "theme", name),
            )
