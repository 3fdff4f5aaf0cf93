"""Values and records as SQLite holds them, and the conditions of a query.

Text has no lone surrogates, and an instant is a whole number of microseconds since the epoch.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import Struct, convert
from msgspec.structs import fields

T = TypeVar("T", bound=Struct)

Clock = Callable[[], datetime]
"""Returns the current time, aware, in UTC."""
NO_TIME_US: Final = -(2**62)
"""Stands for a time that cannot be read; it sorts before every real instant."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def sqlite_text(text: str) -> str:
    """The text, with `?` in place of lone surrogates, which have no UTF-8 and which SQLite refuses."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch; raises `ValueError` if the instant is naive."""
    try:
        past = instant - EPOCH
    except TypeError:
        raise ValueError(f"{instant} has no time zone.") from None
    # Twice as fast as dividing by a microsecond.
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds


def from_us(instant_us: int) -> datetime:
    """An aware UTC time from microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=instant_us)


def from_us_or_none(instant_us: int | None) -> datetime | None:
    """The same as `from_us`; None stays None, and so does `NO_TIME_US`."""
    if instant_us is None or instant_us == NO_TIME_US:
        return None
    return from_us(instant_us)


def to_sortable_us(instant: datetime | None) -> int:
    """The same as `to_us`; None becomes `NO_TIME_US` (a column that is sorted by)."""
    return NO_TIME_US if instant is None else to_us(instant)


Value = str | datetime | Mapping[str, Any] | Collection[Any] | float | None


def bound(value: Value) -> str | float | None:
    """The value as SQLite holds it; mappings and collections are JSON."""
    match value:
        case str():
            return sqlite_text(value)
        case datetime():
            return to_us(value)
        case Mapping():
            return sqlite_text(json.dumps(dict(value)))
        case Collection():
            return json.dumps([*map(bound, value)])
    return value


_DECODERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    datetime: from_us,
    datetime | None: from_us_or_none,
    bool: bool,
    Mapping[str, str]: json.loads,
}
"""How a field of this type is made of a column's value; others are as they are."""


def records(record: type[T], rows: Iterable[Sequence[Any]]) -> tuple[T, ...]:
    return tuple(record_of(record, row) for row in rows)


def record_of(record: type[T], row: Sequence[Any]) -> T:
    """The record with these values of its fields, in their order; missing ones at the end keep their defaults."""
    decoders = _decoders(record)
    return record(**{name: decoders[name](value) for name, value in zip(decoders, row, strict=False)})


@cache
def _decoders(record: type[Struct]) -> dict[str, Callable[[Any], Any]]:
    def decoder(kind: Any) -> Callable[[Any], Any]:
        if isinstance(kind, type) and issubclass(kind, Struct):
            return lambda text: convert(json.loads(text), kind)
        return _DECODERS.get(kind, lambda value: value)

    return {field.name: decoder(field.type) for field in fields(record)}


class Where(Struct, frozen=True):
    """A condition in SQL, and its bound values; by default one that always holds."""

    sql: str = "1"
    parameters: tuple[str | int, ...] = ()

    def __and__(self, other: "Where | None") -> "Where":
        """A condition that requires both; None requires nothing."""
        if other is None:
            return self
        return Where(f"{self.sql} AND {other.sql}", (*self.parameters, *other.parameters))


def among(column: str, values: Collection[str]) -> Where | None:
    """The condition that a column has one of these values; None: there are none, and any will do."""
    if not values:
        return None
    return Where(f"{column} IN ({', '.join('?' * len(values))})", tuple(map(sqlite_text, values)))
