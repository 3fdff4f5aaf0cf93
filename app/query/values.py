"""What a written value stands for in the filter."""

from typing import Final

from app.query.keys import Meaning
from app.query.terms import Piece
from storage.records import FINAL_STATUSES

KNOWN_STATUSES: Final = frozenset({"queued", "working", *FINAL_STATUSES})
"""Statuses that the spec names (2.4), in whatever case they are typed; any other is taken as written."""


def read_value(piece: Piece, wanted: Meaning) -> str:
    """What a value stands for in the filter; in quotes, for itself."""
    if piece.quoted:
        return piece.text
    if wanted == "status" and piece.text.casefold() in KNOWN_STATUSES:
        return piece.text.casefold()
    return _repository(piece.text) if wanted == "repo" else piece.text


def _repository(text: str) -> str:
    """A label or a pattern: `acme/` is all of acme's, `api` is any owner's api; GitHub goes without its name."""
    label = text.removeprefix("github:")
    if label.endswith(("/", ":")):
        return f"{label}*"
    return label if "/" in label or "*" in label or ":" in label else f"*/{label}"
