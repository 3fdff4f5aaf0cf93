"""The section `[notify]`: subjects, routes, and how long to wait for more of the same."""

import re
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final, get_args

from app.config.settings import Markup, NotifyRoute, NotifyRule, NotifySettings, QuietHours
from app.config.table import ConfigTable
from app.times import parse_duration
from storage.records.alert import Level

NOTIFY_PLACEHOLDERS: Final = frozenset(
    {"title", "body", "kind", "level", "profile", "platform", "run_id", "repository", "branch", "status", "count", "id"}
)
"""Placeholders in a command's arguments, and in the title and the text of a route."""
KINDS: Final = ("failed", "stuck", "host", "link", "action", "run", "rule")
"""The first parts of inbox keys, which rules may name."""
SEVERITIES: Final[tuple[Level, ...]] = get_args(Level)
DEFAULT_ROUTE: Final = "default"
NO_TIME: Final = timedelta(0)
SHORTEST_REPEAT: Final = timedelta(minutes=1)
SHORTEST_BEAT: Final = timedelta(seconds=10)
LONGEST: Final = timedelta(days=7)
"""The longest duration that the section accepts."""
_LONGEST_HOLD_S: Final = 3_600.0
ESCALATION_CURE: Final = (
    "Remove the key, and let Alertmanager escalate: runwarden watch --metrics, with deploy/prometheus/alertmanager.yml."
)


def read_notify(table: ConfigTable) -> NotifySettings:
    """Read the section.

    Raises:
        ConfigError: The table holds a mistake.
    """
    base = NotifySettings()
    routes = tuple(_routes(table.table("routes")))
    names = [DEFAULT_ROUTE, *(route.name for route in routes)]
    notify = NotifySettings(
        on=table.texts("on", base.on, may_be_empty=True),
        bell=table.flag("bell", default=base.bell),
        desktop=table.flag("desktop", default=base.desktop),
        command=table.texts("command", base.command, may_be_empty=True),
        quiet=_hours(table, "quiet"),
        hold_s=table.number("hold_s", base.hold_s, least=0, most=_LONGEST_HOLD_S),
        routes=routes,
        rules=tuple(_rule(rule, names) for rule in table.tables("rules")),
        group_wait=table.parsed("group_wait", _between(NO_TIME), base.group_wait),
        group_interval=table.parsed("group_interval", _between(NO_TIME), base.group_interval),
        heartbeat_env=table.text("heartbeat_env", base.heartbeat_env),
        heartbeat_every=table.parsed("heartbeat_every", _between(SHORTEST_BEAT), base.heartbeat_every),
    )
    table.finish()
    _check_placeholders(table, "command", notify.command)
    _check_fallbacks(table.table("routes"), notify, names)
    return notify


def _routes(tables: ConfigTable) -> Iterator[NotifyRoute]:
    for name in tables.values:
        if name == DEFAULT_ROUTE:
            tables.fail(name, "this name means the channels of [notify] itself.", "Choose another name.")
        yield _route(name, tables.table(name))


def _route(name: str, table: ConfigTable) -> NotifyRoute:
    for key in ("escalate_after", "escalate_to"):
        if key in table.values:
            table.fail(key, "Runwarden does not escalate.", ESCALATION_CURE)
    file = table.optional_text("urls_file")
    route = NotifyRoute(
        name=name,
        command=table.texts("command", ()),
        desktop=table.flag("desktop", default=False),
        urls_env=table.optional_text("urls_env"),
        urls_file=None if file is None else table.source.file.parent / Path(file).expanduser(),
        title=table.text("title", ""),
        text=table.text("text", ""),
        markup=table.word("markup", get_args(Markup), "text"),
        repeat=table.parsed("repeat", _between(SHORTEST_REPEAT), None),
        give_up=table.parsed("give_up", _between(SHORTEST_REPEAT), NotifyRoute("").give_up),
        fallback=table.text("fallback", ""),
    )
    table.finish()
    for key, texts in (("command", route.command), ("title", (route.title,)), ("text", (route.text,))):
        _check_placeholders(table, key, texts)
    if not (route.command or route.desktop or route.urls_env or route.urls_file):
        table.fail("command", "this route leads nowhere.", "Give it command, desktop, urls_env or urls_file.")
    return route


def _rule(table: ConfigTable, names: Collection[str]) -> NotifyRule:
    key = "routes" if "routes" in table.values else "route"
    rule = NotifyRule(
        routes=table.texts("routes", ()) if key == "routes" else (table.required_text("route"),),
        severity=table.word("severity", SEVERITIES, "information"),
        kinds=table.one_or_more("kind"),
        repositories=table.one_or_more("repository"),
        hours=_hours(table, "hours"),
    )
    table.finish()
    for name in rule.routes:
        _check_route(table, key, name, names)
    for kind in rule.kinds:
        if kind not in KINDS:
            table.fail("kind", f"{kind!r} is not known here.", f"Use some of: {', '.join(KINDS)}.")
    return rule


def _check_route(table: ConfigTable, key: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        table.fail(key, f"there is no route {name!r}.", f"There are: {', '.join(names)}.")


def _check_fallbacks(tables: ConfigTable, notify: NotifySettings, names: Collection[str]) -> None:
    """Refuse routes whose fallback is missing, or leads back to them."""
    for route in notify.routes:
        passed, here = {route.name}, route.fallback
        if here:
            _check_route(tables.table(route.name), "fallback", here, names)
        while here and here != DEFAULT_ROUTE:
            if here in passed:
                tables.table(route.name).fail("fallback", "this leads back to itself.", "Let it end somewhere.")
            passed.add(here)
            here = notify.route(here).fallback


def _check_placeholders(table: ConfigTable, key: str, texts: tuple[str, ...]) -> None:
    for name in (name for text in texts for name in re.findall(r"\{([^{}]*)\}", text)):
        if name not in NOTIFY_PLACEHOLDERS:
            known = ", ".join(sorted(NOTIFY_PLACEHOLDERS))
            table.fail(key, f"there is no placeholder {{{name}}}.", f"There are: {known}.")


def _between(least: timedelta) -> Callable[[str], timedelta]:
    """Read a duration from `least` to `LONGEST`."""

    def read(text: str) -> timedelta:
        found = parse_duration(text)
        if not least <= found <= LONGEST:
            raise ValueError(f"{text} is out of range: write {least.total_seconds():g}s to {LONGEST.days}d")
        return found

    return read


def _hours(table: ConfigTable, key: str) -> QuietHours | None:
    return table.parsed(key, QuietHours.parse, None) if table.text(key, "").strip() else None
