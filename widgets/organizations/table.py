"""The table of organizations: every attempt a line, newest first."""

from datetime import datetime
from typing import Final

from widgets.line_table import GAP, Line, LineColumn, LineTable
from widgets.organizations.formatting import Attempt, line_of

_STATE: Final = LineColumn("state", 0, 13)
_INVITATION: Final = LineColumn("invitation", 3, 17)
_WHEN: Final = LineColumn("asked", 4, 10)
_ORGANIZATION_FROM: Final = 72
"""Narrower tables leave the organization to the facts beside them."""


class OrganizationTable(LineTable[Attempt]):
    """Attempts, a line each."""

    def columns_for(self, width: int) -> tuple[LineColumn, ...]:
        """State, email, invitation and when; the organization where there is room."""
        fixed = (_STATE, _INVITATION, _WHEN)
        rest = max(8, width - sum(column.width + GAP for column in fixed))
        if width < _ORGANIZATION_FROM:
            return (_STATE, LineColumn("email", 1, rest), _INVITATION, _WHEN)
        email = rest * 3 // 5
        organization = LineColumn("organization", 2, rest - email - GAP)
        return (_STATE, LineColumn("email", 1, email), organization, _INVITATION, _WHEN)

    def key_of(self, item: Attempt) -> str:
        """The action's id."""
        return item.action.action_id

    def line_of(self, item: Attempt, now: datetime) -> Line:
        """How it reads now."""
        return line_of(item, now)
