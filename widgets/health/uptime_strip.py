"""A strip of history, a cell for each slice of time; trouble stands higher than well-being: it needs no colour."""

from collections.abc import Sequence
from typing import Final, Literal

from widgets.badges import STYLES

Slice = Literal["well", "impaired", "bad"] | None
"""None: nobody knows."""

Part = tuple[str, str]

_GLYPHS: Final[dict[Slice, str]] = {"well": "━", "impaired": "▄", "bad": "█", None: "·"}
_TONES: Final[dict[Slice, str]] = {
    "well": STYLES["good"],
    "impaired": STYLES["warn"],
    "bad": STYLES["bad"],
    None: STYLES["quiet"],
}


def strip(slices: Sequence[Slice], cells: int, *, is_stale: bool = False) -> list[Part]:
    """The strip in at most so many cells; where there are fewer cells than slices, neighbours share one.

    Args:
        slices: Oldest first.
        cells: Room for it.
        is_stale: Drawn without colours: this is what was known once.
    """
    folded = fold(slices, cells)
    return [(_GLYPHS[each], STYLES["quiet"] if is_stale else _TONES[each]) for each in folded]


def fold(slices: Sequence[Slice], cells: int) -> tuple[Slice, ...]:
    """The slices as at most so many, each at the worst of those it stands for; all stand for the same number.

    The last one holds now, and says what is known of now.
    """
    count = len(slices)
    each = next((size for size in range(1, count + 1) if count % size == 0 and count // size <= cells), count)
    if not count:
        return ()
    *before, last = (slices[start : start + each] for start in range(0, count, each))
    return (*map(_worst, before), _worst(last) or last[-1])


def _worst(group: Sequence[Slice]) -> Slice:
    if "bad" in group:
        return "bad"
    if "impaired" in group:
        return "impaired"
    return "well" if 2 * group.count("well") >= len(group) else None
