"""The bot: runs one profile's rules without a screen while it holds their lease, and reloads them on SIGHUP."""

import asyncio
import json
import logging
import os
import secrets
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Self, get_args

from app.api.network import Network, send_heartbeat
from app.automations.acting import CannotActError, ResponseRunner, facts_of
from app.automations.metrics import RunCounts
from app.automations.occurrences import Observer, manual_occurrence
from app.automations.rule import DoCommand, DoNotify, OnHealth, OnRun, OnStuck, Rule, filled_argument, fingerprint_of
from app.automations.runner import Attempt, Program, Runner
from app.engine.engine import Engine
from app.engine.events import Event, LinkChanged, StorageFailed
from app.engine.text import fill
from app.engine.times import rfc3339
from app.health.incidents import IncidentReader
from app.notify.dispatcher import Dispatcher, Say
from app.profiles import ConfigError, Profile, Settings
from app.profiles.settings import DEFAULT_ROUTE
from app.profiles.token import EnvToken
from storage.errors import StorageError
from storage.records.activity import Subject
from storage.records.decision import Decision, Occurrence
from storage.state import AT_WORK, State

LEASE: Final = "automations"
LEASE_S: Final = 30.0
"""How long other bots wait for one that died."""
STANDBY_S: Final = 5.0
"""How often a bot without the lease tries to get it, and a bot with failing files retries."""
FORGET_EVERY: Final = timedelta(days=1)
RETRY_EVERY_S: Final = 10.0
"""How often to check for messages whose next attempt is due."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Bot:
    """One profile's bot; every method may raise `StorageError`."""

    settings: Settings
    engine: Engine
    say: Say
    journal: Callable[[Decision], None] = lambda _: None
    """Called with each decision, and again once it has a result."""
    counts: RunCounts = field(default_factory=RunCounts)
    state: State = field(init=False)
    _runner: Runner = field(init=False)
    _dispatcher: Dispatcher = field(init=False)
    _attempts: dict[int, Attempt] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    is_working: bool = False
    """Whether this process holds the lease."""
    _owner: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(8)}")
    _has_messages: asyncio.Event = field(default_factory=asyncio.Event)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = self.engine.usable_state()
        self.say = partial(self.say, profile=self.engine.profile.name)
        self.reload(self.settings)

    @classmethod
    async def open(
        cls, settings: Settings, profile: Profile, say: Say, journal: Callable[[Decision], None] = lambda _: None
    ) -> Self:
        """Open the profile's files and subscribe to their changes; without a usable token, raise `TokenError`."""
        engine = await Engine.open(settings, profile, actor="bot:watch")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            if engine.token_problem is not None:
                raise engine.token_problem
            bot = cls(settings, engine, say, journal)
            engine.events.subscribe(bot._on_event)
            stack.pop_all()
        return bot

    async def close(self) -> None:
        """Finish running writes, wait for programs, release the lease and close the files, even if one step fails."""
        await self._runner.stop()
        if self.is_working:
            with suppress(StorageError):
                await self.state.release_lease(LEASE, self._owner)
        await self.engine.close()

    async def once(self) -> str | None:
        """Poll once, decide and act. Returns the reason if the service could not be polled."""
        # The lease is not released: it shows the inbox when a bot last worked.
        if await self.state.acquire_lease(LEASE, self._owner, LEASE_S):
            await self._store_rules()
        await self._runner.begin()
        problem = await self.engine.refresh()
        await self.engine.follow_ups.work()
        await self._runner.decide_and_act()
        await self._dispatcher.make_messages(at_once=True)
        await self._dispatcher.deliver()
        return None if problem is None else problem.message

    async def preview(self, rule: Rule, run_id: str | None) -> tuple[str, str, str]:
        """The effect that the rule would have now, on this run if it needs one; if it has none, raise `CannotActError`.

        The effect is a verb (`POST`, `RUN` or `NOTIFY`), a target, and a body as JSON or text, which may be empty.
        """
        occurrence = await self._manual_occurrence(rule, run_id)
        decision = Decision(0, rule.name, occurrence, self.engine.clock(), "acting", "")
        facts = facts_of(rule, decision, self.engine.profile.name)
        match rule.do:
            case DoNotify(route, title, text):
                texts = title or "(derived from the rule's name and its trigger)", text
                return "NOTIFY", route, "\n".join(fill(part, facts) for part in texts if part)
            case DoCommand(argv):
                return "RUN", shlex.join(filled_argument(argument, facts) for argument in argv), ""
        request = await self._runner.responses.request(rule, decision)
        return "POST", request.path, json.dumps(request.body(), indent=2, ensure_ascii=False)

    async def trigger(self, rule: Rule, run_id: str | None) -> None:
        """Trigger a rule manually within its limits, on this run if it needs one; `CannotActError` as in `preview`."""
        await self._runner.trigger(rule, await self._manual_occurrence(rule, run_id))
        if isinstance(rule.do, DoNotify):
            # If no bot is running, nothing else would deliver the message.
            await self._dispatcher.make_messages()
            await self._dispatcher.deliver()

    async def _manual_occurrence(self, rule: Rule, run_id: str | None) -> Occurrence:
        detail = None if run_id is None else await self.engine.cache.detail(run_id)
        if run_id is not None and detail is None:
            raise CannotActError(f"run {run_id} is not in the cache: runwarden runs view {run_id} fetches it")
        if detail is None and isinstance(rule.on, OnRun | OnStuck):
            raise CannotActError("it needs a run: name one with --run")
        return manual_occurrence(self.engine.clock(), None if detail is None else detail.run)

    async def is_healthy(self) -> bool:
        """Whether the last look at the rules succeeded, polls succeed, and runs were polled recently by any process."""
        poll = self.engine.profile.poll
        now = self.engine.clock()
        latest = now - timedelta(seconds=max(60.0, 3 * poll.runs_s) + poll.deadline_s)
        links = await self.engine.cache.links()
        is_fresh = any(link.subject == "runs" and link.last_ok_at and link.last_ok_at > latest for link in links)
        return is_fresh and not self._broken() and not any(link.is_failing for link in links)

    async def run(self) -> None:
        """Work until cancelled. Storage errors are reported, and the work is retried."""
        self.engine.start_polling()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._check_rules())
            tasks.create_task(self._deliver())
            tasks.create_task(self._keep_lease())

    def reload(self, settings: Settings) -> None:
        """Use these rules and routes from now on; earlier decisions stay."""
        self.settings = settings
        engine = self.engine
        name = self.engine.profile.name
        extension = self.engine.extension
        incidents = IncidentReader.of(engine.cache, settings, engine.profile)
        notify = settings.notify
        tokens = {profile.token.variable for profile in settings.profiles if isinstance(profile.token, EnvToken)}
        routes = {route.urls_env for route in notify.routes if route.urls_env} | {notify.heartbeat_env}
        # Environment variables that contain secrets.
        hidden = frozenset({"RUNWARDEN_TOKEN", *tokens, *routes})
        self._runner = Runner(
            rules=rules_of(settings.automations, name),
            state=self.state,
            responses=ResponseRunner(engine, hidden),
            observer=Observer(engine.cache, engine.ledger, incidents, extension.reason, extension.turns_now),
            journal=self._journal,
            attempts=self._attempts,
            programs=self.programs,
            program_ended=self._woken.set,
        )
        self._dispatcher = Dispatcher(
            state=self.state,
            cache=engine.cache,
            ledger=engine.ledger,
            incidents=incidents,
            notify=notify,
            profile=name,
            say=self.say,
            on_changes=self.counts.add,
            command_line=engine.settings.command_line,
            broken=self._broken,
            host_routes=host_routes(self._runner.rules),
            network=Network.of(engine.profile),
        )
        self._woken.set()

    async def _check_rules(self) -> None:
        engine = self.engine
        forgot_at = engine.clock()
        while True:
            self._woken.clear()
            wait_s = STANDBY_S
            runner, dispatcher = self._runner, self._dispatcher
            with self._reporting("automations"):
                self.state.writer.check_place()
                holds = await self.state.acquire_lease(LEASE, self._owner, LEASE_S)
                if holds != self.is_working:
                    self.is_working = holds
                    self.say("working" if holds else "standing_by")
                if holds:
                    await self._store_rules()
                    await runner.decide_and_act(waits=False)
                    if engine.clock() - forgot_at > FORGET_EVERY:
                        forgot_at = engine.clock()
                        await self.state.forget(forgot_at)
                        await self.state.forget_reported(forgot_at)
                    wait_s = (await runner.next_check() - engine.clock()).total_seconds()
            # Even if the rules fail: this reports it.
            with self._reporting("notifications"):
                if self.is_working and await dispatcher.make_messages():
                    self._has_messages.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, wait_s)):
                    await self._woken.wait()

    async def _keep_lease(self) -> None:
        # A separate task renews the lease, so that no other bot takes it while a look takes long.
        while True:
            await asyncio.sleep(LEASE_S / 3)
            if self.is_working:
                with suppress(StorageError):
                    await self.state.acquire_lease(LEASE, self._owner, LEASE_S)

    async def _deliver(self) -> None:
        # A separate task delivers messages, so that no rule waits for an unresponsive server.
        while True:
            self._has_messages.clear()
            with self._reporting("deliveries"):
                if self.is_working:
                    await self._dispatcher.deliver()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_EVERY_S):
                    await self._has_messages.wait()

    @contextmanager
    def _reporting(self, job: str) -> Iterator[None]:
        """The boundary of a part of the work: its failure is reported once, however often it repeats, and its end."""
        try:
            yield
        except Exception as error:
            if isinstance(error, StorageError):
                event = "storage_failed"
                problem = str(error)
            else:
                event = "job_failed"
                problem = f"It failed unexpectedly ({type(error).__name__}: {error}); see the log for details."
                log.exception("%s broke", job)
            if problem != self._failures.get(job):
                self.say(event, job=job, message=problem)
            self._failures[job] = problem
        else:
            if self._failures.pop(job, None) is not None:
                self.say("job_works", job=job)

    def _broken(self) -> dict[str, str]:
        """The parts of the work that fail, with their reasons; failing polls have alerts of their own."""
        jobs = {**self.engine.polling.schedule.broken, **self._failures}
        return {job: problem for job, problem in jobs.items() if job not in get_args(Subject)}

    async def _store_rules(self) -> None:
        """Store the digest of the rules in use, which consoles compare with the file."""
        await self.state.begin_rule(AT_WORK, fingerprint_of(self._runner.rules), self.engine.clock())

    def _on_event(self, event: Event) -> None:
        if isinstance(event, LinkChanged) and event.state.is_failing:
            self.say("link_failing", subject=event.state.subject, message=event.state.error_message)
        elif isinstance(event, StorageFailed):
            self.say("storage_failed", message=event.message)
        self._woken.set()

    def _journal(self, decision: Decision) -> None:
        self.say("decision", **document(decision))
        self.journal(decision)


@dataclass(slots=True)
class Heartbeat:
    """A dead man's switch: silence is the alarm. It requests an address while the polls of every profile succeed."""

    bots: Sequence[Bot]
    say: Say
    network: Network
    counts: Counter[str] = field(default_factory=Counter)
    _trouble: str | None = None
    """The trouble that was reported last; the same one is not reported twice."""

    async def run(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(self.bots[0].settings.notify.heartbeat_every.total_seconds())

    async def beat(self) -> None:
        """Request the address once, if there is one and every part is healthy; nothing is raised."""
        address = self.network.env.get(self.bots[0].settings.notify.heartbeat_env or "", "")
        if not address:
            return
        try:
            is_healthy = all([await bot.is_healthy() for bot in self.bots])
        except StorageError:
            is_healthy = False  # The bots report this failure themselves.
        if not is_healthy:
            return
        trouble = await send_heartbeat(address, self.network)
        outcome = "taken" if trouble is None else "failed"
        self.counts[outcome] += 1
        if trouble != self._trouble:
            self._trouble = trouble
            self.say(f"heartbeat_{outcome}", message=trouble)


def rules_of(rules: Sequence[Rule], profile: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.profile in {None, profile})


def host_routes(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The routes on which these rules report that a code host is unhealthy or has recovered."""
    watching = (rule.do for rule in rules if rule.is_on and isinstance(rule.on, OnHealth))
    return tuple({do.route if isinstance(do, DoNotify) else DEFAULT_ROUTE: None for do in watching})


def document(decision: Decision) -> dict[str, object]:
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


async def working_process(state: State, now: datetime) -> int | None:
    """The id of the process whose bot holds the lease, or None if none does."""
    number = (await state.lease_owner(LEASE, now) or "").partition("-")[0]
    return int(number) if number.isdecimal() else None


def hand_over(process: int) -> bool:
    """Make a bot reload the configuration (SIGHUP); False: the process may not be a bot."""
    try:
        argv = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        is_ours = any(part == b"app" or part.rpartition(b"/")[2].startswith(b"runwarden") for part in argv)
        watches = is_ours and b"watch" in argv and b"--once" not in argv
        # SIGHUP kills a process by default, so make sure that the process handles or blocks it.
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
        masks = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith(("SigBlk:", "SigCgt:")))
        is_awaited = any(int(mask, 16) >> (signal.SIGHUP - 1) & 1 for mask in masks.values())
        if not (watches or b"app.demo.live" in argv) or not is_awaited:
            return False
        os.kill(process, signal.SIGHUP)
    except OSError:
        return False
    return True


def reload_on_hangup(read: Callable[[], Settings], bots: Sequence[Bot], say: Say) -> None:
    """Reload the configuration of bots on SIGHUP; one with a mistake is refused, and the old one is kept."""

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
