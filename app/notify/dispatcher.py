"""The dispatcher: turns what happened into messages, each made once, whenever the process ends."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.config import NotifySettings
from app.notify.delivery import Postman, Say
from app.notify.news import LATEST, RULES, NewsReader, rule_alerts
from app.notify.plan import Situation, plan
from storage.cache import Cache
from storage.records.alert import Alert, Plan
from storage.records.following import StatusChange
from storage.state import OWN, State


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

    @property
    def postman(self) -> Postman:
        """Delivers the messages that `look` has made."""
        return Postman(self.state, self.notify, self.profile, self.clock, self.say, self.command_line)

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
            shared = self._shared(waiting)
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
        await self._claim(found, at)
        self._report(found, at)
        return bool(found.messages)

    @property
    def _tells_own(self) -> bool:
        notify = self.notify
        return bool(notify.rules or notify.desktop or notify.command)

    def _shared(self, alerts: Sequence[Alert]) -> list[Alert]:
        """The alerts that a console sends here, too; none if `[notify]` has rules, which only a bot follows."""
        return [] if self.notify.rules else [each for each in alerts if not each.source]

    async def _claim(self, found: Plan, at: Situation) -> None:
        """Keep consoles from telling the same alerts and their ends; called last, as a claim is final."""
        own = (each.key for each in self._shared(at.waiting) if each.key not in at.elsewhere)
        notified = [key for key in own if found.settled.get(key) == "told"]
        ends = [f"{key.rpartition(':')[0] if key.startswith('health:') else key}:over" for key in notified]
        if notified:
            await self.cache.following.claim([*notified, *ends], at=at.now)

    def _report(self, found: Plan, at: Situation) -> None:
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
