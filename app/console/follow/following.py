"""The runs that a console follows, and the toasts and notifications about what the watch finds in them."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.events import ActionChanged, Event, StorageFailed
from app.notify.channels import Channels
from app.notify.watch import Watch
from app.text import safe_text
from storage.cache.following import PIN_CAP

if TYPE_CHECKING:
    from datetime import datetime

    from app.engine import Engine
    from app.notify.notifications import Notification

TOAST_S: Final = {"information": 6.0, "warning": 10.0, "error": 15.0}
"""How long a toast about a run stays; a click closes it."""
IN_INBOX: Final = frozenset({"failed", "stuck"})
"""Changes of runs that also become items of the inbox."""


def cause_of(news: "Notification") -> tuple[str, ...]:
    """The cause that several toasts share; a followed run has its own."""
    if news.is_followed or not news.about.get("repository"):
        return (news.key,)
    return _what(news), news.about["repository"]


def merged_by_cause(news: "Iterable[Notification]") -> "tuple[Notification, ...]":
    """Merge the notifications of each cause."""
    causes: dict[tuple[str, ...], list[Notification]] = {}
    for one in news:
        causes.setdefault(cause_of(one), []).append(one)
    return tuple(same[0] if len(same) == 1 else _merged(same) for same in causes.values())


def _merged(same: "list[Notification]") -> "Notification":
    what, repository = cause_of(same[0])
    title = safe_text(f"{len(same)} runs {what}: {repository}", limit=120)
    body = safe_text("7 shows them in the inbox.") if what in IN_INBOX else same[-1].body
    return replace(same[-1], title=title, body=body)


def _what(news: "Notification") -> str:
    return "stuck" if news.kind == "stuck" else news.about.get("status", "")


class RunFollower:
    """Follows runs, and shows and delivers news of them: first at `look`, then after each event."""

    def __init__(self, engine: "Engine", session: Session, write: Callable[[str], None]) -> None:
        """Start empty; `write` sends text to the terminal unchanged, or nowhere without a terminal."""
        settings, profile = engine.settings, engine.profile
        self.watch = Watch(
            engine.cache,
            settings.notify,
            frozenset(settings.console.health_ok),
            profile.poll.health_s,
            profile.name,
            engine.clock,
        )
        self._engine = engine
        self._session = session
        self._channels = Channels(settings.notify, profile.name, os.environ, session.app.bell, write)
        self._troubles: set[str] = set()
        """Failures of channels that were reported; each is reported once."""
        self._toasted_at: dict[tuple[str, ...], datetime] = {}
        """When each cause last had a toast."""
        self._has_begun = False
        self._looking = CoalescedTask(self._look, session.start)

    def engine_changed(self, event: Event) -> None:
        """Look for news and moved runs after an event."""
        if not isinstance(event, ActionChanged | StorageFailed):
            self._looking.ask()

    def look(self) -> None:
        """Look for news now."""
        self._looking.ask()

    async def toggle(self, *run_ids: str) -> None:
        """Follow these runs, or unfollow them if all are followed, and confirm which.

        Raises:
            StorageError: The cache cannot be written.
        """
        following, followed = self._engine.cache.following, {pinned.run_id for pinned in self._session.pins}
        if followed.issuperset(run_ids):
            for run_id in run_ids:
                await following.unpin(run_id)
            await self._read_pins()
            self._session.notify("Unfollowed." if len(run_ids) == 1 else f"Unfollowed {len(run_ids):,} runs.")
            return
        wanted = tuple(run_id for run_id in run_ids if run_id not in followed)[:PIN_CAP]
        for run_id in wanted:
            await following.pin(run_id, at=self._engine.clock())
        await self._read_pins()
        self._session.notify(self._followed(wanted, len(run_ids) - len(wanted)))

    def _followed(self, run_ids: tuple[str, ...], others: int) -> str:
        if len(run_ids) > 1 or others:
            besides = f", {others:,} are followed already or too many" if others else ""
            return f"{len(run_ids):,} followed to their end{besides}. F lists what is followed."
        row = next((pinned.row for pinned in self._session.pins if pinned.run_id in run_ids), None)
        if row is not None and row.is_final:
            return "It has ended; followed for a day, in case it is continued."
        return "Followed to its end, also after a restart. F lists what is followed."

    async def unfollow_ended(self, batches: int = 0) -> None:
        """Unfollow the runs that have ended; confirm their number, with this number of batches.

        Raises:
            StorageError: The cache cannot be written.
        """
        count = batches + await self._engine.cache.following.unpin_ended()
        await self._read_pins()
        self._session.notify(f"Let go of {count}." if count else "None of them has ended.")

    async def _look(self) -> None:
        if not self._has_begun:
            await self.watch.begin()
            self._has_begun = True
        found = await self.watch.look()
        await self._read_pins()
        for news in self._without_recent(merged_by_cause(found.screen)):
            self._session.notify(news.body, title=news.title, severity=news.level, timeout=TOAST_S[news.level])
        if found.outward:
            self._session.start(partial(self._deliver, found.outward))

    def _without_recent(self, news: "Iterable[Notification]") -> "Iterator[Notification]":
        """Leave out causes whose toast is still on the screen: the inbox counts them."""
        now = self._engine.clock()
        for one in news:
            cause = cause_of(one)
            toasted_at = self._toasted_at.get(cause)
            if toasted_at is None or (now - toasted_at).total_seconds() >= TOAST_S[one.level]:
                if cause[0] in IN_INBOX:
                    self._toasted_at[cause] = now
                yield one

    async def _read_pins(self) -> None:
        pins = await self._engine.cache.following.pins()
        if pins != self._session.pins:
            self._session.show_pins(pins)

    async def _deliver(self, news: "tuple[Notification, ...]") -> None:
        for trouble in await self._channels.deliver(news):
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                said = safe_text(f"A notification was not delivered. {trouble}", limit=300)
                self._session.notify(said, severity="warning")
