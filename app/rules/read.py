"""Reading rules: the `[[automations]]` tables of the configuration, each mistake with its line and its cure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, get_args

from app.config.settings import QuietHours
from app.config.table import ConfigTable
from app.rules.fire_times import check_schedule
from app.rules.placeholders import known_to, names_in, texts_of
from app.rules.rule import (
    APPROVAL_EXPIRES,
    DEFAULT_CATCH_UP,
    DEFAULT_PAUSE_AFTER,
    DoAgent,
    DoCancel,
    DoCommand,
    DoContinue,
    DoNotify,
    DoRetry,
    DoStart,
    Limit,
    OnHealth,
    OnInterval,
    OnRun,
    OnSchedule,
    OnStuck,
    OnUnknownAction,
    Overlap,
    Response,
    Rule,
    Scope,
    Trigger,
)
from app.times import parse_duration
from storage.records import Repository

T = TypeVar("T")

OVERLAPS: Final[tuple[Overlap, ...]] = get_args(Overlap)
NOTHING: Final = timedelta(0)
SHORTEST_INTERVAL: Final = timedelta(minutes=1)
LONGEST_NAME: Final = 100
MOST: Final = 10_000
"""The highest limit that can be written."""
_OF_A_RUN: Final[Mapping[type, str]] = {DoContinue: "continue", DoRetry: "retry", DoCancel: "cancel"}
_NEEDS_A_RUN: Final = "Use it with on.run, or choose another response."


def read_rules(root: ConfigTable, *, profiles: Sequence[str], routes: Sequence[str]) -> tuple[Rule, ...]:
    """The rules, in the order of the file; profiles and routes are the names that may be used.

    Raises:
        ConfigError: A table holds a mistake, or two rules have one name.
    """
    rules: list[Rule] = []
    for table in root.tables("automations"):
        rule = _rule(table)
        if rule.profile is not None and rule.profile not in profiles:
            table.fail("profile", "there is no such profile.", f"There are: {', '.join(profiles) or 'none'}.")
        if isinstance(rule.do, DoNotify) and rule.do.route not in routes:
            table.fail("do", f"there is no route {rule.do.route!r}.", f"There are: {', '.join(routes)}.")
        if rule.name.casefold() in {other.name.casefold() for other in rules}:
            table.fail("name", "another automation has this name.", "Rename one of them.")
        rules.append(rule)
    return tuple(rules)


def _rule(table: ConfigTable) -> Rule:
    name = table.required_text("name")
    if len(name) > LONGEST_NAME or not name.isprintable():
        table.fail("name", "this cannot be a name.", f"Use at most {LONGEST_NAME} printable characters.")
    on = _one_of(table, "on", TRIGGERS)
    rule = Rule(
        name=name,
        on=on,
        do=_one_of(table, "do", RESPONSES),
        profile=table.optional_text("profile"),
        is_on=table.flag("enabled", default=True),
        overlap=table.word("overlap", OVERLAPS, "skip"),
        catch_up=table.parsed("catch_up", parse_duration, DEFAULT_CATCH_UP),
        pause_after=table.whole("pause_after", DEFAULT_PAUSE_AFTER, least=0, most=MOST),
        limit=_limit(table.table("limit")),
        quiet=table.parsed("quiet", QuietHours.parse, None),
        needs_approval=table.flag("approval", default=False),
        approval_expires=table.parsed("approval_expires", parse_duration, APPROVAL_EXPIRES),
    )
    table.finish()
    _check(table, rule)
    return rule


def _check(table: ConfigTable, rule: Rule) -> None:
    word = _OF_A_RUN.get(type(rule.do))
    if word is not None and not isinstance(rule.on, OnRun | OnStuck):
        table.fail("do", f"{word} needs a run that set the rule off.", _NEEDS_A_RUN)
    known = known_to(rule.on)
    for name in (name for text in texts_of(rule.do) for name in names_in(text)):
        if name not in known:
            there_are = ", ".join(f"{{{each}}}" for each in known)
            table.fail("do", f"there is no placeholder {{{name}}} here.", f"There are: {there_are}.")


def _one_of(table: ConfigTable, key: str, readers: dict[str, Callable[[ConfigTable], T]]) -> T:
    inner = table.table(key)
    given = [word for word in readers if word in inner.values]
    if len(given) != 1:
        wrong = "says nothing" if not given else f"says several things: {', '.join(given)}"
        table.fail(key, f"this {wrong}.", f"Give it exactly one of: {', '.join(readers)}.")
    value = readers[given[0]](inner)
    inner.finish()
    return value


def _schedule(table: ConfigTable) -> OnSchedule:
    on = OnSchedule(
        table.required_text("schedule"), table.text("timezone", "UTC"), table.parsed("jitter", parse_duration, NOTHING)
    )
    try:
        check_schedule(on, datetime.now(UTC))
    except ValueError as error:
        table.fail("timezone" if "time zone" in str(error) else "schedule", f"{error}.", "Correct it.")
    return on


def _interval(table: ConfigTable) -> OnInterval:
    every = table.parsed("every", parse_duration, NOTHING)
    if every < SHORTEST_INTERVAL:
        table.fail("every", "this is too often.", "Use 1m or more.")
    return OnInterval(every)


def _run(table: ConfigTable) -> OnRun | OnStuck:
    to, was, scope = table.required_text("run"), table.optional_text("from"), _scope(table)
    if to == "stuck":
        if was is not None:
            table.fail("from", "a stuck run does not change its status.", "Remove the key.")
        return OnStuck(scope)
    return OnRun(to, was, scope)


def _scope(table: ConfigTable) -> Scope:
    metadata = table.table("metadata")
    labels = tuple((name, metadata.one_or_more(name)) for name in metadata.values)
    return Scope(table.one_or_more("repository"), table.one_or_more("branch"), labels)


def _health(table: ConfigTable) -> OnHealth:
    is_over = table.word("health", ("not ok", "recovered"), "not ok") == "recovered"
    return OnHealth(is_over, table.parsed("for", parse_duration, NOTHING), table.one_or_more("platform"))


def _action(table: ConfigTable) -> OnUnknownAction:
    table.word("action", ("unknown",), "unknown")
    return OnUnknownAction(table.parsed("older", parse_duration, NOTHING))


TRIGGERS: Final[dict[str, Callable[[ConfigTable], Trigger]]] = {
    "schedule": _schedule,
    "every": _interval,
    "run": _run,
    "health": _health,
    "action": _action,
}


def _start(table: ConfigTable) -> DoStart:
    return DoStart(table.required_text("start"), _repository(table), table.optional_text("branch"))


def _agent(table: ConfigTable) -> DoAgent:
    inputs = table.table("inputs")
    given = tuple((name, inputs.required_text(name)) for name in inputs.values)
    return DoAgent(table.required_text("agent"), _repository(table), table.optional_text("branch"), given)


def _repository(table: ConfigTable) -> str:
    text = table.required_text("repository")
    if not names_in(text):
        table.parsed("repository", Repository.parse, None)
    return text


def _flagged(key: str, response: Response) -> Callable[[ConfigTable], Response]:
    def read(table: ConfigTable) -> Response:
        if not table.flag(key, default=True):
            table.fail(key, "this must be true.", f"Write {key} = true.")
        return response

    return read


def _command(table: ConfigTable) -> DoCommand:
    argv = table.texts("command", ())
    if names_in(argv[0]):
        table.fail("command", "the program itself cannot be a placeholder.", "Name the program.")
    return DoCommand(argv)


RESPONSES: Final[dict[str, Callable[[ConfigTable], Response]]] = {
    "start": _start,
    "agent": _agent,
    "continue": lambda table: DoContinue(table.required_text("continue")),
    "retry": _flagged("retry", DoRetry()),
    "cancel": _flagged("cancel", DoCancel()),
    "notify": lambda table: DoNotify(table.required_text("notify"), table.text("title", ""), table.text("text", "")),
    "command": _command,
}


def _limit(table: ConfigTable) -> Limit:
    base = Limit()
    limit = Limit(
        per_conversation=table.whole("per_conversation", base.per_conversation, least=1, most=MOST),
        per_hour=table.whole("per_hour", base.per_hour, least=1, most=MOST),
        per_day=table.whole("per_day", base.per_day, least=1, most=MOST),
    )
    table.finish()
    return limit
