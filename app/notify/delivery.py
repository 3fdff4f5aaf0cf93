"""Delivery: each message at least once, under one number; failures are retried, then sent over another route.

A message is written in the markup of its route. Apprise runs in a child process, so that a server that does not answer
cannot hold up the bot.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from app.config import NotifySettings
from app.config.notify import DEFAULT_ROUTE
from app.notify.channels import Channels
from app.notify.relay import relayed
from app.notify.rendering import notification, rendered
from storage.records.alert import Delivery
from storage.state import State

BACKOFF: Final = (timedelta(seconds=15), timedelta(minutes=1), timedelta(minutes=5))
"""The wait after each failed attempt; one more failure is the last."""
CLAIMED_FOR: Final = timedelta(minutes=2)
"""How long an attempt belongs to its process: longer than the deadlines of all channels of a route."""
OFF: Final = "The channels of [notify] are off: set notify.desktop or notify.command, or add a route."

Say = Callable[..., None]
"""Writes one line of the log: an event's name, and its facts by name."""


async def send(
    notify: NotifySettings, delivery: Delivery, profile: str, env: Mapping[str, str], command_line: str = "runwarden"
) -> str | None:
    """Send a message over all channels of its route. Returns what went wrong, with the cure, or None."""
    route = notify.route(delivery.message.route)
    if not (route.desktop or route.command or route.urls_env or route.urls_file):
        return OFF
    own = replace(notify, bell=False, desktop=route.desktop, command=route.command)
    channels = Channels(own, profile, env, ring_bell=lambda: None, write=lambda _: None)
    troubles = [*await channels.deliver([notification(delivery, route, profile, command_line)])]
    if route.urls_env or route.urls_file:
        title, body = rendered(delivery, route, profile, route.markup, command_line)
        trouble = await relayed(route, title, body, delivery.message.level, env)
        troubles += [trouble] if trouble is not None else []
    return "; ".join(troubles) or None


@dataclass(frozen=True, slots=True)
class Postman:
    """Delivers the messages in one profile's state."""

    state: State
    notify: NotifySettings
    profile: str
    clock: Callable[[], datetime]
    say: Say
    command_line: str = "runwarden"

    async def deliver(self) -> None:
        """Deliver due messages; routes do not wait for each other.

        Raises:
            StorageError: The state cannot be read or written; a sent message may be sent once more.
        """
        now = self.clock()
        await self.state.release_orphans(now)
        due = sorted(await self.state.due_deliveries(now), key=lambda each: each.message.route)
        routes = [list(each) for _, each in groupby(due, key=lambda each: each.message.route)]
        ended = await asyncio.gather(*map(self._deliver, routes), return_exceptions=True)
        for failure in (each for each in ended if each is not None):
            # One failure is raised, not a group: callers catch a `StorageError`.
            raise failure

    async def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            now = self.clock()
            if now - delivery.made_at > self.notify.route(delivery.message.route).give_up:
                await self._settle(delivery, "expired", "it was too old to be sent")
            elif await self.state.claim_delivery(delivery, now, now + CLAIMED_FOR):
                trouble = await send(self.notify, delivery, self.profile, os.environ, self.command_line)
                await self._settled(delivery, trouble)

    async def _settled(self, delivery: Delivery, trouble: str | None) -> None:
        if trouble is None:
            await self._settle(delivery, "delivered")
        elif delivery.attempts < len(BACKOFF):
            due = self.clock() + BACKOFF[delivery.attempts]
            self._say("delivery_failed", delivery, trouble)
            await self.state.settle_delivery(delivery, None, self.clock(), error=trouble, due=due)
        else:
            await self._settle(delivery, "failed", trouble, self._fallback(delivery.message.route))

    def _fallback(self, route: str) -> str:
        own = self.notify.route(DEFAULT_ROUTE)
        has_own = route != DEFAULT_ROUTE and (own.desktop or own.command)
        return self.notify.route(route).fallback or (DEFAULT_ROUTE if has_own else "")

    async def _settle(self, delivery: Delivery, outcome: str, error: str = "", fallback: str = "") -> None:
        await self.state.settle_delivery(delivery, outcome, self.clock(), error=error, fallback=fallback)
        self._say(outcome, delivery, error, fallback)

    def _say(self, event: str, delivery: Delivery, error: str = "", fallback: str = "") -> None:
        message = delivery.message
        self.say(
            event,
            profile=self.profile,
            delivery=delivery.number,
            route=message.route,
            title=message.title,
            attempt=delivery.attempts + 1,
            message=error or None,
            fallback=fallback or None,
        )
