"""The runs that a console follows, and the toasts and notifications about changes in them."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from app.console.feeds import CoalescedTask
from app.console.session import FOLLOWED, GoToTab, OpenRun, Session
from app.engine.events import ActionChanged, Event, StorageFailed
from app.engine.text import safe_text
from app.health.incidents import IncidentReader
from app.notify.channels import Channels, Text
from app.notify.watch import Watch
from storage.cache.following import PIN_CAP
from storage.state import State

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from storage.records.alert import Alert


TOAST_S: Final = {"information": 6.0, "warning": 10.0, "error": 15.0}
"""How long a toast about a run stays; a click closes it."""


class RunFollower:
    """Follows runs, and shows and delivers news of them: first at `look`, then after each event."""

    def __init__(self, engine: "Engine", session: Session, write: Callable[[str], None]) -> None:
        """Start empty; `write` sends text to the terminal unchanged, or nowhere without a terminal."""
        profile = engine.profile
        notify = engine.settings.notify
        state = engine.state if isinstance(engine.state, State) else None
        incidents = IncidentReader.of(engine.cache, engine.settings, profile)
        self.watch = Watch(engine.cache, engine.ledger, state, notify, incidents, profile.name)
        self._engine = engine
        self._session = session
        bell = session.app.bell if notify.bell else lambda: None
        self._channels = Channels(notify.desktop, notify.command, os.environ, bell, write)
        self._troubles: set[str] = set()
        self.ask = CoalescedTask(self._read_news, session.app.run_worker).ask

    def engine_changed(self, event: Event) -> None:
        if not isinstance(event, ActionChanged | StorageFailed):
            self.ask()

    async def toggle(self, *run_ids: str) -> None:
        """Follow these runs, or unfollow them if all are followed, and confirm which."""
        cache = self._engine.cache
        session = self._session
        followed = {pinned.run_id for pinned in session.pins}
        if followed.issuperset(run_ids):
            for run_id in run_ids:
                await cache.unpin(run_id)
            await self._read_pins()
            session.notify("Unfollowed." if len(run_ids) == 1 else f"Unfollowed {len(run_ids):,} runs.")
            return
        new = [run_id for run_id in run_ids if run_id not in followed][:PIN_CAP]
        for run_id in new:
            await cache.pin(run_id, at=self._engine.clock())
        await self._read_pins()
        others = len(run_ids) - len(new)
        row = next((pinned.row for pinned in session.pins if pinned.run_id in new), None)
        if len(new) > 1 or others:
            besides = f", {others:,} are followed already or too many" if others else ""
            text = f"Following {len(new):,} runs to their end{besides}. F lists them."
        elif row is not None and row.is_final:
            text = "Following for a day in case it is continued: it has ended."
        else:
            text = "Following it to its end, even after a restart. F lists the followed runs."
        session.notify(text, opens=GoToTab("runs", FOLLOWED))

    async def _read_news(self) -> None:
        report = await self.watch.read_news()
        await self._read_pins()
        for news in report.screen:
            run_id = news.about.get("run_id")
            level = news.level
            opens = OpenRun(run_id) if run_id else GoToTab("inbox", news.group)
            self._session.notify(news.body, title=news.title, severity=level, timeout=TOAST_S[level], opens=opens)
        if report.outward:
            deliver: Any = partial(self._deliver, report.outward)  # mypy cannot match Textual's signature with one
            self._session.app.run_worker(deliver)

    async def _read_pins(self) -> None:
        if (pins := await self._engine.cache.pins()) != self._session.pins:
            self._session.show_pins(pins)

    async def _deliver(self, news: "tuple[Alert, ...]") -> None:
        texts = [Text.of(alert, self._engine.profile.name) for alert in news]
        for trouble in await self._channels.deliver(texts):
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                text = safe_text(f"A notification was not delivered. {trouble}", limit=300)
                self._session.notify(text, severity="warning")
