"""An order of runs as people write it: a column's name, with a minus for the other way round."""

from typing import Final, get_args

from storage.records import RunSort
from storage.records.query import SortColumn

COLUMNS: Final[tuple[SortColumn, ...]] = get_args(SortColumn)


def read_order(text: str) -> RunSort:
    """`started` is oldest first, `-started` newest first.

    Raises:
        ValueError: There is no such column; the message lists those there are.
    """
    name = text.strip().removeprefix("-")
    if name not in COLUMNS:
        raise ValueError(f"there is no column {name!r} to sort by: {', '.join(COLUMNS)}; -started is newest first")
    return RunSort(name, descending=text.strip().startswith("-"))


def written_order(sort: RunSort) -> str:
    """The text that `read_order` reads as this order."""
    return f"{'-' if sort.descending else ''}{sort.column}"
