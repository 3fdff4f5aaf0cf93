"""How long a run took, as SQL: a column that is kept, since only kept columns are covered by an index."""

from typing import Final

from storage.records import FINAL_STATUSES
from storage.times import NO_TIME_US

_LONGEST_US: Final = 2**62
"""Longer than any run that ended."""

_FINAL: Final = ", ".join(f"'{status}'" for status in sorted(FINAL_STATUSES))


def took_us(status: str, created_us: str, updated_us: str) -> str:
    """The expression over these columns, or expressions, in microseconds.

    What goes on is longer than what ended, and the longer the earlier it began; where no time could be read, it is
    shorter than anything.
    """
    return (
        f"CASE WHEN {created_us} = {NO_TIME_US} THEN -1"
        f" WHEN {status} NOT IN ({_FINAL}) THEN {_LONGEST_US} - {created_us}"
        f" WHEN {updated_us} = {NO_TIME_US} THEN -1"
        f" ELSE max(0, {updated_us} - {created_us}) END"
    )
