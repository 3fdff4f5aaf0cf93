"""The table of an import's rows, in the file's order."""

from datetime import datetime
from typing import Final

from widgets.line_table import GAP, Line, LineColumn, LineTable
from widgets.organizations.import_words import ImportLine, line_of

_LINE: Final = LineColumn(" line", 0, 5)
_STATE: Final = LineColumn("state", 1, 13)
_OFFER: Final = LineColumn("offer", 3, 15)
_OFFER_FROM: Final = 100
"""Narrower tables leave the offer out: what there is to say of a row counts more."""


class ImportTable(LineTable[ImportLine]):
    """Rows, a line each."""

    def columns_for(self, width: int) -> tuple[LineColumn, ...]:
        """Line, state, email, offer where there is room, and what there is to say."""
        fixed = (_LINE, _STATE, _OFFER) if width >= _OFFER_FROM else (_LINE, _STATE)
        rest = width - sum(column.width + GAP for column in fixed) - 2 * GAP
        email = max(8, rest * 2 // 5)
        flexible = (LineColumn("email", 2, email), LineColumn("", 4, max(8, rest - email)))
        return (_LINE, _STATE, flexible[0], *fixed[2:], flexible[1])

    def key_of(self, item: ImportLine) -> str:
        """Its line in the file."""
        return str(item.line)

    def line_of(self, item: ImportLine, now: datetime) -> Line:
        """How it reads now."""
        return line_of(item, now)
