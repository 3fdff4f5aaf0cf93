"""Text cut to terminal cells, with wide characters counted as the terminal counts them."""

from collections.abc import Sequence
from typing import Literal

from rich.cells import cell_len, set_cell_size

Cut = Literal["end", "middle"]
ELLIPSIS = "…"


def fit(text: str, width: int, cut: Cut = "end") -> str:
    """The text in exactly `width` cells: padded with spaces, or cut with an ellipsis at the end or in the middle."""
    size = cell_len(text)
    if size <= width:
        return text + " " * (width - size)
    return set_cell_size(shorten(text, width, cut), width)


def shorten(text: str, width: int, cut: Cut = "end") -> str:
    """The text in at most `width` cells, with an ellipsis for the rest."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    if cut == "end":
        return _head(text, width - 1) + ELLIPSIS
    tail = (width - 1) * 2 // 3
    return _head(text, width - 1 - tail) + ELLIPSIS + _head(text[::-1], tail)[::-1]


def joined(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit, with dots between them; the first is always included, shortened in the middle."""
    text = shorten(next(filter(None, parts), ""), max(1, width), "middle")
    for part in list(filter(None, parts))[1:]:
        if cell_len(f"{text} · {part}") <= width:
            text = f"{text} · {part}"
    return text


def beside(name: str, about: Sequence[str], width: int, least: int = 20) -> tuple[str, str]:
    """A name and a remark in this many cells; the name gives way, down to `least` cells."""
    remark = joined(about, max(1, width - min(cell_len(name), least)))
    return shorten(name, max(1, width - cell_len(remark)), "middle"), remark


def _head(text: str, width: int) -> str:
    head = text[:width]
    while cell_len(head) > width:
        head = head[:-1]
    return head
