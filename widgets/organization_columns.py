"""Where the columns of the table of organizations are, by the width there is."""

from dataclasses import dataclass
from typing import Final

from widgets.organization_words import OrganizationLine, Part

_STATE: Final = 13
_INVITATION: Final = 17
_WHEN: Final = 10
_GAP: Final = 1
_ORGANIZATION_FROM: Final = 72
"""Narrower tables leave the organization to the facts beside them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    title: str
    width: int


def columns_for(width: int) -> tuple[Column, ...]:
    """The columns, from left to right; they fill `width` cells with their gaps."""
    fixed = (Column("state", _STATE), Column("invitation", _INVITATION), Column("asked", _WHEN))
    count = 5 if width >= _ORGANIZATION_FROM else 4
    rest = max(8, width - sum(column.width for column in fixed) - _GAP * count)
    if count == len(fixed) + 1:
        return (fixed[0], Column("email", rest), *fixed[1:])
    email = rest * 11 // 20
    return (fixed[0], Column("email", email), Column("organization", rest - email), *fixed[1:])


def part_of(line: OrganizationLine, column: Column) -> Part:
    """What a line has in a column other than its state."""
    parts = {
        "email": line.email,
        "organization": line.organization,
        "invitation": line.invitation,
        "asked": line.when,
    }
    return parts[column.title]
