"""The values of options: checked, and read as a time, a duration, a key or JSON."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from app.cli.exits import failed
from app.times import parse_duration, parse_period

if TYPE_CHECKING:
    from app.api.requests import Json


def as_key(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback for an idempotency key; an empty one is refused, because it would not prevent a second sending."""
    if value is not None and not value.strip():
        raise click.BadParameter("the key is empty. Is the variable that holds it set?", param=param)
    return value


def as_duration(_: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Callback for an option that is a duration; a bare number means seconds, as usual on a command line."""
    if value is None:
        return None
    is_bare = value.strip().replace(".", "", 1).isdecimal()
    try:
        return parse_duration(f"{value.strip()}s" if is_bare else value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


def as_moment(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Callback for an option that is a point in time."""
    period = _period(param, value)
    return None if period is None else period[0]


def as_last_moment(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Callback for an option that is the end of a period: a date includes its day."""
    period = _period(param, value)
    return None if period is None else period[1]


def _period(param: click.Parameter, value: str | None) -> tuple[datetime, datetime] | None:
    try:
        return None if value is None else parse_period(value, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error


def mapping(pairs: tuple[str, ...]) -> "dict[str, Json]":
    """KEY=VALUE options as an object; a value is parsed as JSON if it is JSON: `3` is a number, `three` is text.

    Raises:
        CommandFailedError: An option is not KEY=VALUE, or a key is given twice.
    """
    found: dict[str, Json] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise failed("usage", f"{text!r} is not KEY=VALUE.")
        if key in found:
            raise failed("usage", f"{key!r} is given twice.")
        found[key] = json_or_text(value)
    return found


def json_or_text(text: str) -> "Json":
    """A value parsed as JSON, or the text itself if it is not JSON."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")
