"""A bot's dispatcher over a real cache and state, with the clock of the test."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from app.config.load import parse
from app.notify.dispatcher import Dispatcher
from app.notify.incidents import IncidentReader
from storage.claims import Owner
from storage.ledger import Ledger
from storage.records.alert import Message
from storage.state import State
from tests.notify.conftest import World

TO_ALL = '[notify.routes.oncall]\ncommand = ["true"]\n[[notify.rules]]\nroute = "oncall"\n'
"""Everything goes to one route."""


@dataclass
class Desk:
    """One profile's folder, and the processes that tell what happens in it."""

    world: World
    ledger: Ledger
    state: State
    said: list[dict[str, Any]] = field(default_factory=list)
    """Lines of the log."""
    _seen: int = 0

    def dispatcher(self, text: str = TO_ALL) -> Dispatcher:
        """Another process, with this configuration."""
        notify = parse(Path("/etc/config.toml"), text).notify
        incidents = IncidentReader(self.world.cache, {"ok"}, 30.0, timedelta(seconds=notify.hold_s))
        files = (self.state, self.world.cache, self.ledger)
        return Dispatcher(*files, incidents, notify, "acme", self.world.clock, self._say)

    async def began(self, text: str = TO_ALL) -> Dispatcher:
        """A process that has looked once, a minute ago."""
        dispatcher = self.dispatcher(text)
        await dispatcher.look()
        self.world.pass_(minutes=1)
        return dispatcher

    async def made(self) -> list[Message]:
        """The messages that were made since the last call, oldest first."""
        found = [each.message for each in await self.state.recent_deliveries(10_000)][::-1]
        fresh, self._seen = found[self._seen :], len(found)
        return fresh

    async def titles(self) -> list[str]:
        """Their titles."""
        return [message.title for message in await self.made()]

    async def pass_(self, dispatcher: Dispatcher, looks: int = 1, **by: float) -> list[str]:
        """Lets time pass before each look; the titles of what was made then."""
        for _ in range(looks):
            self.world.pass_(**by)
            await dispatcher.look()
        return await self.titles()

    async def deliver(self, dispatcher: Dispatcher) -> list[str]:
        """Deliver what is due; the events that the log tells of it."""
        self.said.clear()
        await dispatcher.deliver()
        return [line["event"] for line in self.said]

    async def owned_by(self, owner: Owner) -> None:
        """What is being delivered, is by this process."""
        query = "UPDATE deliveries SET owner_json = ? WHERE owner_json IS NOT NULL"
        await self.state.writer.run(lambda connection: connection.execute(query, (json.dumps(astuple(owner)),)))

    def _say(self, event: str, **facts: Any) -> None:
        self.said.append({"event": event, **facts})
