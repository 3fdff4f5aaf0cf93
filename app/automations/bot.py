"""The bot: one profile's engine without a screen, its rules at work while it holds their lease, reloaded by SIGHUP."""

import asyncio
import json
import os
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from app.automations.acting import CannotActError, ResponseRunner, facts_of
from app.automations.metrics import RunCounts, Snapshot, snapshot
from app.automations.occurrences import Observer, RunFacts, asked_for
from app.automations.rule import DoCommand, DoNotify, OnRun, OnStuck, Rule, filled, filled_argument, fingerprint_of
from app.automations.runner import OpenWork, Runner
from app.engine.engine import Engine
from app.engine.events import Event, LinkChanged, StorageFailed
from app.engine.times import rfc3339
from app.notify.dispatcher import Dispatcher, Say
from app.notify.incidents import IncidentReader
from app.profiles import ConfigError, Profile, Settings
from app.profiles.token import EnvToken
from storage.errors import StorageError
from storage.records.decision import Decision, Occurrence
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
_FROM_THE_RULE: Final = "(derived from the rule's name and its trigger)"


class Preview(Struct, frozen=True):
    """The exact effect of a rule."""

    verb: str
    """`POST`, `RUN` or `NOTIFY`."""
    target: str
    body: str
    """JSON, or text; empty: there is none."""


@dataclass(slots=True)
class Bot:
    """One profile's bot; every method may raise `StorageError`."""

    settings: Settings
    engine: Engine
    say: Say
    journal: Callable[[Decision], None] = lambda _: None
    """Called with each decision, and again when it is settled."""
    counts: RunCounts = field(default_factory=RunCounts)
    """The changes of runs since the bot was opened."""
    state: State = field(init=False)
    _runner: Runner = field(init=False)
    _dispatcher: Dispatcher = field(init=False)
    _work: OpenWork = field(default_factory=OpenWork)
    _owner: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(8)}")
    _made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there are messages to deliver."""
    _rang: asyncio.Event = field(default_factory=asyncio.Event)
    _is_working: bool = False
    """Whether this process holds the lease."""
    _failure: str = ""
    """The error of the file that failed at the last look at the rules; empty: none failed."""

    def __post_init__(self) -> None:
        self.state = self.engine.usable_state()
        self.reload(self.settings)

    @classmethod
    async def open(
        cls, settings: Settings, profile: Profile, say: Say, journal: Callable[[Decision], None] = lambda _: None
    ) -> Self:
        """Open the profile's files and begin to listen.

        Raises:
            TokenError: There is no usable token.
        """
        engine = await Engine.open(settings, profile, actor="bot:watch")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            if engine.token_problem is not None:
                raise engine.token_problem
            bot = cls(settings, engine, say, journal)
            engine.subscribe(bot._hear)
            stack.pop_all()
        return bot

    async def close(self) -> None:
        """Settle running writes, wait for programs, give the lease back and close the files, even if one fails."""
        await self._runner.stop()
        if self._is_working:
            with suppress(StorageError):
                await self.state.release_lease(LEASE, self._owner)
        await self.engine.close()

    @property
    def programs(self) -> tuple[str, ...]:
        """The rules whose programs run."""
        return tuple(name for name, program in self._work.programs.items() if not program.task.done())

    def kill_programs(self) -> int:
        """Kill the programs that run, with their process groups; return how many."""
        return sum(program.task.cancel() for program in self._work.programs.values())

    @property
    def profile(self) -> Profile:
        """The profile that it watches."""
        return self.engine.profile

    async def once(self) -> str | None:
        """Ask the service once, decide, act. Returns why the service could not be asked, if so."""
        # The lease is not given back: the inbox tells from it when a bot was at work last.
        if await self.state.acquire_lease(LEASE, self._owner, LEASE_S):
            await self._say_rules()
        await self._runner.begin()
        problem = await self.engine.refresh()
        await self.engine.follow_ups.work()
        await self._runner.look()
        await self._dispatcher.look(at_once=True)
        await self._dispatcher.deliver()
        return None if problem is None else problem.message

    async def preview(self, rule: Rule, run_id: str | None) -> Preview:
        """The rule's effect now, on this run if it needs one.

        Raises:
            CannotActError: It could not act; the message says why.
        """
        occurrence = await self._asked_for(rule, run_id)
        decision = Decision(0, rule.name, occurrence, self.engine.clock(), "acting", "")
        facts = facts_of(rule, decision, self.profile.name)
        match rule.do:
            case DoNotify(route, title, text):
                return Preview("NOTIFY", route, "\n".join(filter(None, (filled(title or _FROM_THE_RULE, facts), text))))
            case DoCommand(argv):
                return Preview("RUN", shlex.join(filled_argument(argument, facts) for argument in argv), "")
        request = await self._runner.responses.request(rule, decision)
        if request is None:
            raise CannotActError("it sends nothing to the service")
        return Preview("POST", request.path, json.dumps(request.body(), indent=2, ensure_ascii=False))

    async def set_off(self, rule: Rule, run_id: str | None) -> None:
        """Trigger a rule now by a person's wish, within its limits, on this run if it needs one.

        Raises:
            CannotActError: It needs a run, and this one is not held.
        """
        await self._runner.set_off(rule, await self._asked_for(rule, run_id))
        if isinstance(rule.do, DoNotify):
            # Without a bot at work, nothing else would deliver the message.
            await self._dispatcher.look()
            await self._dispatcher.deliver()

    async def _asked_for(self, rule: Rule, run_id: str | None) -> Occurrence:
        held = None if run_id is None else await self.engine.cache.detail(run_id)
        if run_id is not None and held is None:
            raise CannotActError(f"run {run_id} is not in the cache: runwarden runs view {run_id} fetches it")
        if held is None and isinstance(rule.on, OnRun | OnStuck):
            raise CannotActError("it needs a run: name one with --run")
        return asked_for(self.engine.clock(), None if held is None else held.run)

    async def snapshot(self, heartbeats: Mapping[str, int]) -> Snapshot:
        """The figures now."""
        return await snapshot(self.engine, self.state, self.counts, heartbeats, is_working=self._is_working)

    async def is_well(self) -> bool:
        """Whether the last look at the rules succeeded, no poll fails, and some process polled the runs lately."""
        poll, now = self.profile.poll, self.engine.clock()
        latest = now - timedelta(seconds=max(60.0, 3 * poll.runs_s) + poll.deadline_s)
        links = await self.engine.cache.links()
        is_fresh = any(each.subject == "runs" and each.last_ok_at and each.last_ok_at > latest for each in links)
        return is_fresh and not self._failure and not any(each.is_failing for each in links)

    async def run(self) -> None:
        """Work until cancelled; a file that fails is reported, and tried again."""
        self.engine.start_polling()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look())
            tasks.create_task(self._deliver())
            tasks.create_task(self._keep_lease())

    def reload(self, settings: Settings) -> None:
        """Use these rules and routes from now on; decisions made so far stay."""
        self.settings = settings
        engine = self.engine
        name = self.engine.profile.name
        incidents = IncidentReader.of(engine.cache, settings, engine.profile)
        notify = settings.notify
        self._runner = Runner(
            rules=rules_of(settings.automations, name),
            state=self.state,
            cache=engine.cache,
            responses=ResponseRunner(
                engine.cache, engine.actions, self.state, name, hidden_variables(settings), engine.extension.turns
            ),
            observer=Observer(
                RunFacts(engine.cache, engine.ledger, engine.extension.reason, engine.extension.turns_now), incidents
            ),
            journal=self._journal,
            clock=engine.clock,
            work=self._work,
            ended=self._rang.set,
        )
        files = (self.state, engine.cache, engine.ledger)
        command_line = engine.settings.command_line
        self._dispatcher = Dispatcher(
            *files, incidents, notify, name, engine.clock, self.say, self.counts.add, command_line=command_line
        )
        self._rang.set()

    async def _look(self) -> None:
        engine = self.engine
        forgot_at = engine.clock()
        while True:
            self._rang.clear()
            wait_s = STANDBY_S
            runner, dispatcher = self._runner, self._dispatcher
            try:
                if await self._may_work():
                    await self._say_rules()
                    await runner.look(waits=False)
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
            if self._is_working:
                with suppress(StorageError):
                    await self.state.acquire_lease(LEASE, self._owner, LEASE_S)

    async def _deliver(self) -> None:
        # Messages are delivered beside the looks: no rule waits for a server that does not answer.
        while True:
            self._made.clear()
            try:
                if self._is_working:
                    await self._dispatcher.deliver()
            except StorageError as error:
                self._storage_failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_EVERY_S):
                    await self._made.wait()

    def _storage_failed(self, error: Exception) -> None:
        self.say("storage_failed", profile=self.profile.name, message=str(error))

    async def _may_work(self) -> bool:
        self.state.check_place()
        holds = await self.state.acquire_lease(LEASE, self._owner, LEASE_S)
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


def rules_of(rules: Sequence[Rule], profile: str) -> tuple[Rule, ...]:
    """The rules that concern a profile."""
    return tuple(rule for rule in rules if rule.profile in {None, profile})


def hidden_variables(settings: Settings) -> frozenset[str]:
    """The environment variables with secrets: no command of a rule gets them."""
    tokens = {profile.token.variable for profile in settings.profiles if isinstance(profile.token, EnvToken)}
    routes = {route.urls_env for route in settings.notify.routes if route.urls_env} | {settings.notify.heartbeat_env}
    return frozenset({"RUNWARDEN_TOKEN", *tokens, *routes})


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
        "answer": decision.answer and decision.answer.word,
        "answered_by": decision.answer and decision.answer.by,
        "answered_at": decision.answer and rfc3339(decision.answer.at),
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
