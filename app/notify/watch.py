"""The watch: finds alerts for a console's screen and channels after every change of the cache."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from app.engine.text import safe_text
from app.engine.times import clock_time
from app.health.incidents import IncidentReader
from app.notify.alerts import LINK, combine, follow_up_alerts, link_back_alert, move_alert, select_changes, state_alerts
from app.profiles import NotifySettings
from app.profiles.settings import DEFAULT_ROUTE
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records.alert import Alert, Level
from storage.records.following import StatusChange, Watermark
from storage.state import State
from storage.values import EPOCH

RECENT: Final = timedelta(days=2)
"""How long after an incident its recovery may still be reported, or trigger a rule."""
SKEW: Final = timedelta(minutes=5)
"""The difference up to which two clocks count as equal."""
ONE_BY_ONE: Final = 3
"""More alerts of one kind than this are combined into one."""


class News(Struct, frozen=True):
    """The alerts of one look."""

    screen: tuple[Alert, ...] = ()
    outward: tuple[Alert, ...] = ()
    """The alerts for bell, desktop and command; claimed, so that no other process sends them."""


@dataclass(slots=True)
class Watch:
    """One console's watch over one profile."""

    cache: Cache
    ledger: Ledger
    state: State | None
    """None if unusable; then each console notifies on its own."""
    notify: NotifySettings
    incidents: IncidentReader
    profile: str
    _watermark: Watermark = field(default_factory=Watermark)
    _file: int | None = None
    """The cache file that the watermark belongs to, or None if the watch has not begun."""
    _began_at: datetime = EPOCH
    _since: datetime = EPOCH
    """Older events are history, even if they are new to the cache."""
    _reported: set[str] = field(default_factory=set)
    """Keys of states that this process or an earlier one has reported."""
    _held: set[str] = field(default_factory=set)
    """Keys of states that began in quiet hours and are still to be sent outward."""
    _link_down: Alert | None = None

    async def begin(self) -> None:
        """Start where the last watch stopped or, if there was none, now."""
        now = self.cache.clock()
        file = self.cache.opened
        self._watermark = watermark = await self.cache.watermark()
        await self.cache.save_watermark(watermark, at=now)
        # Nothing from before the very first watch is news, even if the first sync brings it.
        self._since = now if watermark.saved_at is None else min(now, watermark.saved_at) - SKEW
        self._began_at = now
        keys = [key for state in await self._states(now) for key in (state.key, *state.after)]
        state = self.state
        apart = bool(self.notify.rules)
        self._reported = set() if state is None else set(await state.reported_alerts(keys, apart=apart))
        self._file = file

    async def read_news(self) -> News:
        """The status changes since the last call."""
        if self._file != self.cache.opened:
            await self.begin()
        now = self.cache.clock()
        news = await self.cache.changes(self._watermark, since=self._since)
        if news.watermark != self._watermark:
            await self.cache.save_watermark(news.watermark, at=self.cache.clock())
            self._watermark = news.watermark
        events = list[Alert]()
        missed = list[StatusChange]()
        for move in await select_changes(news.changes, self.notify.on, self.ledger):
            # Always report when a followed run finishes; sum up other changes from before this watch began.
            if move.happened_at(news.ahead) >= self._began_at - SKEW or move.is_pinned:
                events.append(move_alert(move, self.profile))
            else:
                missed.append(move)
        missed_alerts = [missed_alert(missed, self.cache.clock())] if missed else []
        states = await self._states(now)
        begun = (state for state in states if not state.after or self._reported & set(state.after))
        fresh = [state for state in begun if state.key not in self._reported]
        # Forget resolved states.
        keys = {key for state in states for key in (state.key, *state.after)}
        self._reported = (self._reported & keys) | {state.key for state in fresh}
        screen = group_alerts([*events, *fresh, *missed_alerts])
        if self.notify.is_quiet(DEFAULT_ROUTE, now):
            self._held |= {state.key for state in fresh if state.is_lasting}
            return News(screen)
        outward = [*events, *fresh, *(state for state in states if state.key in self._held)]
        self._held.clear()
        if outward and self.state is not None:
            # With rules, the bot uses their routes, and consoles use the channels of [notify] in addition.
            won = await self.state.claim_alerts(outward, now, apart=bool(self.notify.rules))
            outward = [alert for alert in outward if alert.key in won]
        return News(screen, group_alerts(outward))

    async def _states(self, now: datetime) -> list[Alert]:
        hosts, links, stuck = await self.cache.states()
        incidents = await self.incidents.read(hosts, now)
        link = next(link for link in links if link.subject == "runs")
        recent = [incident for incident in incidents if not incident.is_over or incident.end > now - RECENT]
        states = state_alerts(self.notify, self.profile, now, stuck=stuck, incidents=recent, links=links)
        down = next((state for state in states if state.group == LINK), None)
        if down is None and self._link_down is not None and not link.is_failing:
            states.append(link_back_alert(self._link_down, link, now, self.profile))
        if self.state is not None:
            states += await follow_up_alerts(self.state, now - RECENT, self.profile)
        if down is not None or not link.is_failing:
            self._link_down = down
        return states


def missed_alert(moves: Sequence[StatusChange], now: datetime) -> Alert:
    """One alert for all changes from before this watch began."""
    counts = Counter(move.new for move in moves)
    newest = max(move.at for move in moves)
    parts = ", ".join(f"{count} {safe_text(status, limit=30)}" for status, count in counts.most_common())
    title = safe_text(f"While you were away: {parts}", limit=120)
    last = f"the last one at {clock_time(newest, now)}"
    level: Level = "warning" if "failed" in counts else "information"
    key = f"missed:{newest.isoformat()}"
    return Alert("run:missed", "", DEFAULT_ROUTE, level, title, {}, key=key, body=last, at=newest)


def group_alerts(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """Combine many alerts of one kind and status into one, but never those about followed runs."""
    kinds: defaultdict[tuple[str, str], list[Alert]] = defaultdict(list)
    for alert in alerts:
        if not alert.is_followed:
            kinds[alert.kind, alert.about.get("status", "") if alert.kind == "run" else ""].append(alert)
    many = [alike if len(alike) <= ONE_BY_ONE else [combine(alike)] for alike in kinds.values()]
    return (*(alert for alert in alerts if alert.is_followed), *(alert for alike in many for alert in alike))
