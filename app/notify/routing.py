"""Routing: the routes of an alert, by severity, kind, repository and time of day. Pure."""

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase

from app.config import NotifyRule, NotifySettings
from app.config.notify import DEFAULT_ROUTE, SEVERITIES
from storage.records.alert import Alert, Level


def routes_of(alert: Alert, notify: NotifySettings, now: datetime) -> tuple[str, ...]:
    """The names of its routes at this time; none: no rule matches it."""
    if alert.route != DEFAULT_ROUTE or not notify.rules:
        return (alert.route,)
    return next((rule.routes for rule in notify.rules if _matches(rule, alert, now)), ())


def is_quiet(route: str, notify: NotifySettings, now: datetime) -> bool:
    """Whether the channels of `[notify]` itself, if those are meant, have to be quiet."""
    return route == DEFAULT_ROUTE and notify.quiet is not None and notify.quiet.cover(now.astimezone().time())


def worst(levels: Iterable[Level]) -> Level:
    """The most severe of them."""
    return max(levels, key=SEVERITIES.index)


def _matches(rule: NotifyRule, alert: Alert, now: datetime) -> bool:
    repository = alert.about.get("repository", "")
    return (
        worst((rule.severity, alert.level)) == alert.level
        and (not rule.kinds or alert.kind in rule.kinds)
        and (not rule.repositories or any(fnmatchcase(repository, glob) for glob in rule.repositories))
        and (rule.hours is None or rule.hours.cover(now.astimezone().time()))
    )
