"""The parts of a bot, made from the settings and an engine; also for commands and screens that need one part."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from app.automations.acting import CannotActError, ResponseRunner
from app.automations.notification import NotificationWriter
from app.automations.observing import Observer
from app.automations.occurrences import asked_for
from app.automations.runner import Runner
from app.config import Settings
from app.config.token import EnvToken
from app.engine import Engine
from app.notify.delivery import Say
from app.notify.dispatcher import Dispatcher
from app.notify.incidents import IncidentReader
from app.notify.news import NewsReader
from app.rules.rule import OnRun, OnStuck, Rule
from storage.records.decision import Decision, Occurrence
from storage.records.following import StatusChange
from storage.state import State


def runner_of(settings: Settings, engine: Engine, state: State, journal: Callable[[Decision], None]) -> Runner:
    """The runner of an engine's profile, with these settings."""
    name = engine.profile.name
    return Runner(
        rules=rules_of(settings.automations, name),
        state=state,
        cache=engine.cache,
        responses=ResponseRunner(
            engine.cache, engine.actions, NotificationWriter(state, name).tell, name, hidden_variables(settings)
        ),
        observer=Observer(engine.cache, engine.ledger, incidents_of(settings, engine), engine.extension.reason),
        journal=journal,
        clock=engine.clock,
    )


def dispatcher_of(
    settings: Settings, engine: Engine, state: State, say: Say, on_changes: Callable[[Sequence[StatusChange]], None]
) -> Dispatcher:
    """The dispatcher of an engine's profile, with these settings."""
    notify, name = settings.notify, engine.profile.name
    reader = NewsReader(engine.cache, engine.ledger, incidents_of(settings, engine), notify, name)
    return Dispatcher(
        state, engine.cache, reader, notify, name, engine.clock, say, on_changes, engine.settings.command_line
    )


def incidents_of(settings: Settings, engine: Engine) -> IncidentReader:
    """The reader of an engine's incidents."""
    hold, health_s = timedelta(seconds=settings.notify.hold_s), engine.profile.poll.health_s
    return IncidentReader(engine.cache, settings.console.health_ok, health_s, hold)


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
