"""The dispatcher: makes a message of what happened once, and delivers it at least once, under one number."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from app.config import NotifySettings
from app.config.settings import DEFAULT_ROUTE
from app.notify.delivery import send
from app.notify.news import LATEST, RULES, NewsReader, rule_alerts
from app.notify.plan import Situation, plan
from storage.cache.cache import Cache
from storage.records.alert import Alert, Delivery
from storage.records.following import StatusChange
from storage.state import OWN, State

BACKOFF: Final = (timedelta(seconds=15), timedelta(minutes=1), timedelta(minutes=5))
"""The wait after each failed attempt; one more failure is the last."""
CLAIMED_FOR: Final = timedelta(minutes=2)
"""How long an attempt belongs to its process: longer than the deadlines of all channels of a route."""

Say = Callable[..., None]
"""Writes one line of the log: an event's name, and its facts by name."""


@dataclass(slots=True)
class Dispatcher:
    """One profile's notifications, in one process at a time."""

    state: State
    cache: Cache
    reader: NewsReader
    notify: NotifySettings
    profile: str
    clock: Callable[[], datetime]
    say: Say
    on_changes: Callable[[Sequence[StatusChange]], None] = lambda _: None
    """Is given the changes of status, without those before the first look."""
    command_line: str = "runwarden"
    """Begins the commands that messages quote."""
    _since: datetime | None = None
    """When `[notify] on` was last changed."""
    _unrouted: set[str] = field(default_factory=set)
    """Keys of alerts that were said to have no route: once is enough."""

    async def look(self, *, at_once: bool = False) -> bool:
        """Make the due messages; `at_once`: without waiting for more of the same. Return whether there are any.

        Raises:
            StorageError: A file cannot be read or written; messages made so far are kept.
        """
        now = self.clock()
        if self._since is None:
            asked = repr((sorted(self.notify.on), self._tells_own))
            self._since = (await self.state.begin_rule(OWN, asked, now)).since
        news = await self.reader.read(now, self._since)
        self.on_changes(news.changes)
        if self._tells_own:
            of_rules: tuple[Alert, ...] = ()
            if RULES in self.notify.on:
                of_rules = await rule_alerts(self.state, max(self._since, now - LATEST), self.command_line)
            await self.state.enter_alerts((*news.alerts, *of_rules), now)
        notify = replace(self.notify, group_wait=timedelta(0)) if at_once else self.notify
        while True:
            basis = await self.state.newest_delivery()
            waiting, problems = await self.state.waiting_alerts(), await self.state.told()
            if not waiting and not problems:
                return False
            # A console sends these here, too; not if `[notify]` has rules, which only a bot follows.
            shared = [] if self.notify.rules else [each for each in waiting if not each.source]
            at = Situation(
                now=now,
                present=news.present,
                waiting=waiting,
                told=problems,
                last_made=await self.state.last_made(),
                marks=await self.state.marks(),
                elsewhere=await self.cache.following.claimed([each.key for each in shared]),
            )
            found = plan(at, notify)
            # Otherwise another process, such as a command run by cron, has made messages: the plan is made again.
            if await self.state.apply_plan(found, now, basis):
                break
        # Last, as a claim is final: keep consoles from telling the same alerts and their ends.
        own = (each.key for each in shared if each.key not in at.elsewhere)
        notified = [key for key in own if found.settled.get(key) == "told"]
        if notified:
            ends = [f"{key.rpartition(':')[0] if key.startswith('health:') else key}:over" for key in notified]
            await self.cache.following.claim([*notified, *ends], at=now)
        for message in found.messages:
            facts = {"phase": message.phase, "route": message.route, "title": message.title, "count": message.count}
            self.say("message", profile=self.profile, **facts)
        for alert in (each for each in found.unrouted if each.key not in self._unrouted):
            why = "no [[notify.rules]] matches it now"
            self.say("unrouted", profile=self.profile, key=alert.key, title=alert.title, message=why)
        self._unrouted = {each.key for each in found.unrouted}
        by_key = {each.key: each for each in at.waiting}
        quiet = Counter((by_key[key].group, outcome) for key, outcome in found.settled.items() if outcome != "told")
        for (group, outcome), count in quiet.items():
            self.say("not_told", profile=self.profile, group=group, outcome=outcome, count=count)
        return bool(found.messages)

    @property
    def _tells_own(self) -> bool:
        return bool(self.notify.rules) or not self.notify.route(DEFAULT_ROUTE).is_silent

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
        """Deliver the messages of one route; a failure is retried, and the last one goes over another route."""
        for delivery in deliveries:
            now, message = self.clock(), delivery.message
            route, own = self.notify.route(message.route), self.notify.route(DEFAULT_ROUTE)
            trouble, outcome, due, fallback = "", "delivered", None, ""
            if now - delivery.made_at > route.give_up:
                trouble, outcome = "it was too old to be sent", "expired"
            elif not await self.state.claim_delivery(delivery, now, now + CLAIMED_FOR):
                continue
            else:
                trouble = await send(self.notify, delivery, self.profile, os.environ, self.command_line) or ""
                if trouble and delivery.attempts < len(BACKOFF):
                    outcome, due = "delivery_failed", self.clock() + BACKOFF[delivery.attempts]
                elif trouble:
                    has_own = message.route != DEFAULT_ROUTE and not own.is_silent
                    outcome, fallback = "failed", route.fallback or (DEFAULT_ROUTE if has_own else "")
            await self.state.settle_delivery(
                delivery, None if due else outcome, self.clock(), error=trouble, due=due, fallback=fallback
            )
            self.say(
                outcome,
                profile=self.profile,
                delivery=delivery.number,
                route=message.route,
                title=message.title,
                attempt=delivery.attempts + 1,
                message=trouble or None,
                fallback=fallback or None,
            )
