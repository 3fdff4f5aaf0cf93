"""Reads the rules from the `[[automations]]` tables of the configuration; each mistake has its line and a fix."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from app.automations.fire_times import check_schedule
from app.automations.rule import (
    ALWAYS_KNOWN,
    KNOWN,
    NO_LIMIT,
    DoAgent,
    DoCancel,
    DoCommand,
    DoContinue,
    DoNotify,
    DoRetry,
    DoStart,
    OnHealth,
    OnInterval,
    OnRun,
    OnSchedule,
    OnStuck,
    OnUnknownAction,
    Rule,
    Scope,
    Trigger,
    names_in,
    texts_of,
)
from app.profiles.settings import DEFAULT_ROUTE, Settings
from app.profiles.table import Table, check_route
from app.profiles.values import MistakeError, OneOrMore
from storage import UnreadableTextError
from storage.records import Repository

MAX_NAME: Final = 100
TRIGGERS: Final[Mapping[str, type]] = {
    "schedule": OnSchedule,
    "every": OnInterval,
    "run": OnRun,
    "finding": OnRun,
    "budget": OnRun,
    "health": OnHealth,
    "action": OnUnknownAction,
}
RESPONSES: Final[Mapping[str, type]] = {
    "start": DoStart,
    "agent": DoAgent,
    "continue": DoContinue,
    "retry": DoRetry,
    "cancel": DoCancel,
    "notify": DoNotify,
    "command": DoCommand,
}


def read_rules(root: Table, settings: Settings) -> tuple[Rule, ...]:
    """The rules, in the order of the file; a mistake, or a name that two rules have, raises `ConfigError`."""
    return root.named_tables("automations", lambda table: _rule(table, settings))


def _rule(table: Table, settings: Settings) -> Rule:
    on = _trigger(*_only(table, "on", TRIGGERS))
    word, inner = _only(table, "do", RESPONSES)
    do = _response(word, inner)
    rule = table.into(Rule, on=on, do=do)
    if len(rule.name) > MAX_NAME or not rule.name.isprintable():
        table.fail("name", "this cannot be a name.", f"Use at most {MAX_NAME} printable characters.")
    if rule.name.startswith("["):
        table.fail("name", "names that begin with [ are reserved.", "Begin it with another character.")
    profiles = [profile.name for profile in settings.profiles]
    if rule.profile is not None and rule.profile not in profiles:
        table.fail("profile", "there is no such profile.", f"There are: {', '.join(profiles) or 'none'}.")
    if isinstance(do, DoNotify):
        # Messages are grouped, not dropped: without limits of its own such a rule has none.
        limits = {key: getattr(rule.limit, key) for key in table.table("limit").values}
        rule = replace(rule, limit=replace(NO_LIMIT, **limits))
        check_route(table, "do", do.route, [DEFAULT_ROUTE, *(route.name for route in settings.notify.routes)])
    if word in {"continue", "retry", "cancel"} and not isinstance(on, OnRun | OnStuck):
        table.fail("do", f"{word} needs a run as its trigger.", "Use it with on.run, or choose another response.")
    placeholders = (*KNOWN.get(type(on), ()), *ALWAYS_KNOWN)
    for name in (name for text in texts_of(do) for name in names_in(text)):
        if name not in placeholders:
            there_are = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
            table.fail("do", f"there is no placeholder {{{name}}} here.", f"There are: {there_are}.")
    return rule


def _only(table: Table, key: str, words: Mapping[str, type]) -> tuple[str, Table]:
    """The only one of these words in the inner table, and that table."""
    inner = table.table(key)
    present = [word for word in words if word in inner.values]
    if len(present) != 1:
        wrong = f"says several things: {', '.join(present)}" if present else "says nothing"
        table.fail(key, f"this {wrong}.", f"Give it exactly one of: {', '.join(words)}.")
    return present[0], inner


def _trigger(word: str, table: Table) -> Trigger:
    if TRIGGERS[word] is OnRun:
        labels = table.table("metadata")
        scope = Scope(
            table.get("repository", OneOrMore, ()),
            table.get("branch", OneOrMore, ()),
            tuple((name, labels.get(name, OneOrMore)) for name in labels.values),
        )
        on = table.into(OnRun, also=("repository", "branch", "metadata"), scope=scope)
        if on.to == "stuck" and on.was is not None:
            table.fail("from", "a stuck run does not change its status.", "Remove the key.")
        return OnStuck(scope) if on.to == "stuck" else on
    trigger: Trigger = table.into(TRIGGERS[word])
    if isinstance(trigger, OnSchedule):
        try:
            check_schedule(trigger, datetime.now(UTC))
        except MistakeError as mistake:
            table.fail(mistake.key, mistake.problem, mistake.fix)
    return trigger


def _response(word: str, table: Table) -> Any:
    if word == "agent":
        inputs = table.table("inputs")
        pairs = tuple((name, inputs.get(name, str)) for name in inputs.values)
        response: object = table.into(DoAgent, inputs=pairs)
    elif word in {"retry", "cancel"}:
        if not table.get(word, bool):
            table.fail(word, "this must be true.", f"Write {word} = true.")
        response = table.into(RESPONSES[word], also=(word,))
    else:
        response = table.into(RESPONSES[word])
    if isinstance(response, DoStart | DoAgent) and not names_in(response.repository):
        try:
            Repository.parse(response.repository)
        except UnreadableTextError as error:
            table.fail("repository", error.problem, error.fix)
    if isinstance(response, DoCommand) and names_in(response.argv[0]):
        table.fail("command", "the program itself cannot be a placeholder.", "Name the program.")
    return response
