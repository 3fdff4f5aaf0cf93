"""The bot: one profile's engine without a screen, its rules at work while it holds their lease, reloaded by SIGHUP."""

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from app.automations.assembly import dispatcher_of, occurrence_asked_for, rules_of, runner_of
from app.automations.metrics import RunCounts, Snapshot, snapshot
from app.automations.runner import Runner
from app.config import ConfigError, Profile, Settings
from app.engine import Engine
from app.events import Event, LinkChanged, StorageFailed
from app.notify.dispatcher import Dispatcher, Say
from app.rules.rule import Rule, fingerprint_of
from app.times import rfc3339
from storage.errors import StorageError
from storage.records.decision import Decision
from storage.state import AT_WORK, State

_DEMO: Final = b"app.demo.live"
"""The module that the demo's bot runs in."""
LEASE: Final = "automations"
LEASE_S: Final = 30.0
"""How long a dead bot keeps the others waiting."""
STANDBY_S: Final = 5.0
"""How often a bot without the lease checks whether it may work, and one whose files fail tries again."""
FORGET_EVERY: Final = timedelta(days=1)
RETRY_EVERY_S: Final = 10.0
"""How often to look for messages whose next attempt is due."""


@dataclass(slots=True)
class Bot:
    """One profile's bot."""

    settings: Settings
    profile: Profile
    say: Say
    journal: Callable[[Decision], None] = lambda _: None
    """Called with each decision, and again when it is settled."""
    counts: RunCounts = field(default_factory=RunCounts)
    """The changes of runs since the bot was opened."""
    _engine: Engine | None = None
    _runner: Runner | None = None
    _dispatcher: Dispatcher | None = None
    _lease: State | None = None
    _owner: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(8)}")
    _made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there are messages to deliver."""
    _rang: asyncio.Event = field(default_factory=asyncio.Event)
    _is_working: bool = False
    """Whether this process holds the lease."""
    _failure: str = ""
    """The error of the file that failed at the last look at the rules; empty: none failed."""

    async def open(self) -> None:
        """Open the profile's files and begin to listen.

        Raises:
            StorageError: A file cannot be used; the message names the cure.
            TokenError: There is no usable token.
        """
        self._engine = engine = await Engine.open(self.settings, self.profile, actor="bot:watch", announce=self._hear)
        if engine.token_problem is not None:
            raise engine.token_problem
        state = engine.usable_state()
        self._lease = state
        self._make(engine, state)

    async def close(self) -> None:
        """Settle running writes, give the lease back and close the files, even if one of these fails."""
        if self._lease is not None and self._is_working:
            with suppress(StorageError):
                await self._lease.release_lease(LEASE, self._owner)
        if self._engine is not None:
            await self._engine.close()

    async def once(self) -> str | None:
        """Ask the service once, decide, act. Returns why the service could not be asked, if so.

        Raises:
            StorageError: A file cannot be read or written.
        """
        engine, runner, dispatcher = self._opened()
        # The lease is not given back: the inbox tells from it when a bot was at work last.
        if self._lease is not None and await self._lease.acquire_lease(LEASE, self._owner, LEASE_S):
            await self._say_rules()
        problem = await engine.refresh()
        await runner.look()
        await dispatcher.look(at_once=True)
        await dispatcher.deliver()
        return None if problem is None else problem.message

    async def set_off(self, rule: Rule, run_id: str | None) -> None:
        """Trigger a rule now by hand, on this run if it needs one.

        Raises:
            CannotActError: It needs a run, and this one is not held.
            StorageError: A file cannot be read or written.
        """
        engine, runner, dispatcher = self._opened()
        await runner.set_off(rule, await occurrence_asked_for(engine, rule, run_id))
        await dispatcher.look()
        await dispatcher.deliver()

    async def snapshot(self, heartbeats: Mapping[str, int]) -> Snapshot:
        """The figures now.

        Raises:
            StorageError: A file cannot be read.
        """
        engine, *_ = self._opened()
        return await snapshot(engine, self.state, self.counts, heartbeats, is_working=self._is_working)

    async def is_well(self) -> bool:
        """Whether the last look at the rules succeeded, no poll fails, and some process polled the runs lately.

        Raises:
            StorageError: The cache cannot be read.
        """
        poll, now = self.profile.poll, self.engine.clock()
        latest = now - timedelta(seconds=max(60.0, 3 * poll.runs_s) + poll.deadline_s)
        links = await self.engine.cache.links()
        is_fresh = any(each.subject == "runs" and each.last_ok_at and each.last_ok_at > latest for each in links)
        return is_fresh and not self._failure and not any(each.is_failing for each in links)

    async def run(self) -> None:
        """Work until cancelled; a file that fails is reported, and tried again."""
        engine, *_ = self._opened()
        engine.start_polling()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look())
            tasks.create_task(self._deliver())
            tasks.create_task(self._keep_lease())

    def reload(self, settings: Settings) -> None:
        """Use other rules and routes from now on; decisions made so far stay."""
        self.settings = settings
        if self._engine is not None:
            self._make(self._engine, self.state)
        self._rang.set()

    async def _look(self) -> None:
        engine, *_ = self._opened()
        forgot_at = engine.clock()
        while True:
            self._rang.clear()
            wait_s = STANDBY_S
            _, runner, dispatcher = self._opened()
            try:
                if await self._may_work():
                    await self._say_rules()
                    await runner.look()
                    if await dispatcher.look():
                        self._made.set()
                    if engine.clock() - forgot_at > FORGET_EVERY:
                        forgot_at = engine.clock()
                        await self.state.forget(forgot_at)
                        await self.state.forget_told(forgot_at)
                    wait_s = (await runner.next_look() - engine.clock()).total_seconds()
                if self._failure:
                    self.say("storage_works", profile=self.profile.name)
                self._failure = ""
            except StorageError as error:
                # The failure is reported once, however often the file is tried again.
                if str(error) != self._failure:
                    self._storage_failed(error)
                self._failure = str(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, wait_s)):
                    await self._rang.wait()

    async def _keep_lease(self) -> None:
        # The lease is renewed beside the looks: while a rule's program runs for long, no other bot may take it.
        while True:
            await asyncio.sleep(LEASE_S / 3)
            if self._is_working and self._lease is not None:
                with suppress(StorageError):
                    await self._lease.acquire_lease(LEASE, self._owner, LEASE_S)

    async def _deliver(self) -> None:
        # Messages are delivered beside the looks: no rule waits for a server that does not answer.
        while True:
            self._made.clear()
            *_, dispatcher = self._opened()
            try:
                if self._is_working:
                    await dispatcher.deliver()
            except StorageError as error:
                self._storage_failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_EVERY_S):
                    await self._made.wait()

    def _storage_failed(self, error: Exception) -> None:
        self.say("storage_failed", profile=self.profile.name, message=str(error))

    @property
    def state(self) -> State:
        """The bot's open state."""
        return self.engine.usable_state()

    @property
    def engine(self) -> Engine:
        """The bot's open engine."""
        if self._engine is None:
            raise RuntimeError("A bot is opened before it works.")
        return self._engine

    def _opened(self) -> tuple[Engine, Runner, Dispatcher]:
        if self._runner is None or self._dispatcher is None:
            raise RuntimeError("A bot is opened before it works.")
        return self.engine, self._runner, self._dispatcher

    def _make(self, engine: Engine, state: State) -> None:
        self._runner = runner_of(self.settings, engine, state, self._journal)
        self._dispatcher = dispatcher_of(self.settings, engine, state, self.say, self.counts.add)

    async def _may_work(self) -> bool:
        if self._lease is None:
            return False
        self.state.check_place()
        holds = await self._lease.acquire_lease(LEASE, self._owner, LEASE_S)
        if holds != self._is_working:
            self._is_working = holds
            self.say("working" if holds else "standing_by", profile=self.profile.name)
        return holds

    async def _say_rules(self) -> None:
        """Store the digest of its rules: consoles compare it with the file."""
        rules = rules_of(self.settings.automations, self.profile.name)
        await self.state.begin_rule(AT_WORK, fingerprint_of(rules), self.engine.clock())

    def _hear(self, event: Event) -> None:
        if isinstance(event, LinkChanged):
            state = event.state
            if state.is_failing:
                self.say("link_failing", profile=self.profile.name, subject=state.subject, message=state.error_message)
        elif isinstance(event, StorageFailed):
            self.say("storage_failed", profile=self.profile.name, message=event.message)
        self._rang.set()

    def _journal(self, decision: Decision) -> None:
        self.say("decision", profile=self.profile.name, **document(decision))
        self.journal(decision)


def document(decision: Decision) -> dict[str, object]:
    """A decision as JSON."""
    return {
        "decision": decision.decision_id,
        "rule": decision.rule,
        "outcome": decision.outcome,
        "reason": decision.reason or None,
        "set_off_by": decision.occurrence.identity,
        "at": rfc3339(decision.occurrence.at),
        "decided_at": rfc3339(decision.decided_at),
        "settled_at": rfc3339(decision.settled_at),
        "action_id": decision.action_id,
        "result_id": decision.result_id,
        "request": decision.request_json,
    }


def process_of(owner: str | None) -> int | None:
    """The process that holds the automations' lease on this machine; None: there is none."""
    number = (owner or "").partition("-")[0]
    return int(number) if number.isdecimal() else None


def hand_over(process: int) -> bool:
    """Make a bot read the configuration again (SIGHUP); False: the process is not certainly such a bot."""
    try:
        argv = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        is_ours = any(part == b"app" or part.rpartition(b"/")[2].startswith(b"runwarden") for part in argv)
        watches = is_ours and b"watch" in argv and b"--once" not in argv
        # By default SIGHUP would end the process: it has to be handled or held there.
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
        masks = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith(("SigBlk:", "SigCgt:")))
        is_awaited = any(int(mask, 16) >> (signal.SIGHUP - 1) & 1 for mask in masks.values())
        if not (watches or _DEMO in argv) or not is_awaited:
            return False
        os.kill(process, signal.SIGHUP)
    except OSError:
        return False
    return True


def reload_on_hangup(read: Callable[[], Settings], bots: Sequence[Bot], say: Say) -> None:
    """Make bots use the current configuration at SIGHUP; one with a mistake is refused, and the old one kept."""

    def reload() -> None:
        try:
            settings = read()
        except ConfigError as error:
            say("reload_refused", message=str(error))
            return
        for bot in bots:
            bot.reload(settings)
        say("reloaded", automations=[rule.name for rule in settings.automations if rule.is_on])

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
