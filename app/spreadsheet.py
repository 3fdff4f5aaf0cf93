"""Foreign text in a file that a spreadsheet opens: shown there, never obeyed."""

from typing import Final

from app.text import safe_text

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for a formula."""
_LONGEST: Final = 10_000


def csv_cell(value: object) -> str:
    """A cell that a terminal and a spreadsheet show instead of obeying."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(safe_text(str(value), limit=_LONGEST))
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
