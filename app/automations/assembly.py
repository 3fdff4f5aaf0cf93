"""The parts of a bot, made from the settings and an engine; and what a person sets off without one."""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from app.automations.acting import CannotActError, ResponseRunner, facts_of
from app.automations.observing import Observer, RunFacts
from app.automations.occurrences import asked_for
from app.automations.runner import Runner
from app.config import Settings
from app.config.token import EnvToken
from app.engine import Engine
from app.notify.dispatcher import Dispatcher, Say
from app.notify.incidents import IncidentReader
from app.rules.placeholders import filled, filled_argument
from app.rules.rule import DoCommand, DoNotify, OnRun, OnStuck, Rule
from storage.records.decision import Decision, Occurrence
from storage.records.following import StatusChange
from storage.state import State

_FROM_THE_RULE: Final = "(made from the rule's name and what set it off)"


def runner_of(settings: Settings, engine: Engine, state: State, journal: Callable[[Decision], None]) -> Runner:
    """The runner of an engine's profile, with these settings."""
    name, incidents = engine.profile.name, IncidentReader.of(engine.cache, settings, engine.profile)
    return Runner(
        rules=rules_of(settings.automations, name),
        state=state,
        cache=engine.cache,
        responses=ResponseRunner(engine.cache, engine.actions, state, name, hidden_variables(settings)),
        observer=Observer(RunFacts(engine.cache, engine.ledger, engine.extension.reason), incidents),
        journal=journal,
        clock=engine.clock,
    )


def dispatcher_of(
    settings: Settings, engine: Engine, state: State, say: Say, on_changes: Callable[[Sequence[StatusChange]], None]
) -> Dispatcher:
    """The dispatcher of an engine's profile, with these settings."""
    notify, name = settings.notify, engine.profile.name
    incidents = IncidentReader.of(engine.cache, settings, engine.profile)
    files = (state, engine.cache, engine.ledger)
    return Dispatcher(
        *files, incidents, notify, name, engine.clock, say, on_changes, command_line=engine.settings.command_line
    )


async def occurrence_asked_for(engine: Engine, rule: Rule, run_id: str | None) -> Occurrence:
    """The occurrence of a manual trigger, on this run if the rule needs one.

    Raises:
        CannotActError: It needs a run, or this one is not held.
        StorageError: The cache cannot be read.
    """
    held = None if run_id is None else await engine.cache.detail(run_id)
    if run_id is not None and held is None:
        raise CannotActError(f"run {run_id} is not held here: runwarden runs show {run_id} fetches it")
    if held is None and isinstance(rule.on, OnRun | OnStuck):
        raise CannotActError("it needs a run: name one with --run")
    return asked_for(engine.clock(), None if held is None else held.run)


def rules_of(rules: Sequence[Rule], profile: str) -> tuple[Rule, ...]:
    """The rules that concern a profile."""
    return tuple(rule for rule in rules if rule.profile in {None, profile})


def hidden_variables(settings: Settings) -> frozenset[str]:
    """The environment variables with secrets: no command of a rule gets them."""
    tokens = {profile.token.variable for profile in settings.profiles if isinstance(profile.token, EnvToken)}
    routes = {route.urls_env for route in settings.notify.routes if route.urls_env} | {settings.notify.heartbeat_env}
    return frozenset({"RUNWARDEN_TOKEN", *tokens, *routes})


class Preview(Struct, frozen=True):
    """The exact effect of a rule."""

    verb: str
    """`POST`, `RUN` or `NOTIFY`."""
    target: str
    body: str
    """JSON, or text; empty: there is none."""


class ByHand(Struct, frozen=True):
    """Sets one rule off by a person's wish, within its limits."""

    settings: Settings
    engine: Engine
    state: State

    async def preview(self, rule: Rule, run_id: str | None) -> Preview:
        """The rule's effect now, on this run if it needs one.

        Raises:
            CannotActError: It could not act; the message says why.
            StorageError: Cache or ledger cannot be read.
        """
        occurrence = await occurrence_asked_for(self.engine, rule, run_id)
        decision = Decision(0, rule.name, occurrence, self.engine.clock(), "acting", "")
        facts = facts_of(rule, decision, self.engine.profile.name)
        match rule.do:
            case DoNotify(route, title, text):
                return Preview("NOTIFY", route, "\n".join(filter(None, (filled(title or _FROM_THE_RULE, facts), text))))
            case DoCommand(argv):
                return Preview("RUN", shlex.join(filled_argument(argument, facts) for argument in argv), "")
        runner = runner_of(self.settings, self.engine, self.state, lambda _: None)
        request = await runner.responses.request(rule, decision)
        if request is None:
            raise CannotActError("it sends nothing to the service")
        return Preview("POST", request.path, json.dumps(request.body(), indent=2, ensure_ascii=False))

    async def set_off(self, rule: Rule, run_id: str | None) -> Decision | None:
        """Trigger the rule and return the decision. None: it was triggered by hand at this very moment.

        Raises:
            CannotActError: The run is not held any longer.
            StorageError: A file cannot be read or written.
        """
        seen: list[Decision] = []
        runner = runner_of(self.settings, self.engine, self.state, seen.append)
        await runner.set_off(rule, await occurrence_asked_for(self.engine, rule, run_id))
        if isinstance(rule.do, DoNotify):
            # Without a bot at work, nothing else would deliver the message.
            dispatcher = dispatcher_of(self.settings, self.engine, self.state, lambda *_, **__: None, lambda _: None)
            await dispatcher.look()
            await dispatcher.deliver()
        return seen[-1] if seen else None
