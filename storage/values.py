"""Values as SQLite holds them: text without lone surrogates, instants as integer microseconds since the epoch.

And the conditions of a query, put together one by one.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

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


def sqlite_text_or_none(text: str | None) -> str | None:
    """The same as `sqlite_text`; None stays None."""
    return None if text is None else sqlite_text(text)


def utc_now() -> datetime:
    """The time on this machine's clock, aware, UTC."""
    return datetime.now(UTC)


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch.

    Raises:
        ValueError: The instant is naive.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone.")
    # Twice as fast as dividing by a microsecond.
    past = instant - EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds


def from_us(instant_us: int) -> datetime:
    """An aware UTC time from microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=instant_us)


def from_us_or_none(instant_us: int | None) -> datetime | None:
    """The same as `from_us`; None stays None, and so does `NO_TIME_US`."""
    return None if instant_us is None or instant_us == NO_TIME_US else from_us(instant_us)


def to_sortable_us(instant: datetime | None) -> int:
    """The same as `to_us`; None becomes `NO_TIME_US` (a column that is sorted by)."""
    return NO_TIME_US if instant is None else to_us(instant)


class Where(Struct, frozen=True):
    """A condition in SQL, and its bound values; by default one that always holds."""

    sql: str = "1"
    parameters: tuple[str | int, ...] = ()

    def __and__(self, other: "Where | None") -> "Where":
        """A condition that requires both; None requires nothing."""
        return self if other is None else Where(f"{self.sql} AND {other.sql}", (*self.parameters, *other.parameters))


def among(column: str, values: Collection[str]) -> Where | None:
    """The condition that a column has one of these values; None: there are none, and any will do."""
    if not values:
        return None
    return Where(f"{column} IN ({', '.join('?' * len(values))})", tuple(map(sqlite_text, values)))
