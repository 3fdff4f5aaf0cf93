"""Which columns the run table shows, in which order and how wide: a value that a person's choices make another of."""

from dataclasses import dataclass, field, replace
from typing import Final

from widgets.runs.columns import COLUMNS, Column, ColumnKey

LEAST_WIDTH: Final = 4
MOST_WIDTH: Final = 200
USUAL: Final[tuple[ColumnKey, ...]] = ("status", "repository", "branch", "started", "took", "run")
KEYS: Final = tuple(column.key for column in COLUMNS)
_BY_KEY: Final = {column.key: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A choice of columns; at least one is always shown."""

    shown: tuple[ColumnKey, ...] = USUAL
    widths: dict[ColumnKey, int] = field(default_factory=dict)
    """Cells of the columns that have a width of their own; the others take what fits."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, those that stay in view first."""
        found = [self._column(key) for key in self.shown]
        return tuple(sorted(found, key=lambda column: not column.frozen))

    @property
    def every_key(self) -> tuple[ColumnKey, ...]:
        """All columns there are: those shown in their order, then the others."""
        shown = tuple(column.key for column in self.columns)
        return (*shown, *(key for key in KEYS if key not in shown))

    def toggled(self, key: ColumnKey) -> "ColumnChoice":
        """With the column shown, or hidden."""
        if key not in self.shown:
            return replace(self, shown=(*self.shown, key))
        rest = tuple(other for other in self.shown if other != key)
        return replace(self, shown=rest) if rest else self

    def moved(self, key: ColumnKey, to: ColumnKey) -> "ColumnChoice":
        """With the column in another's place; those that stay in view stay in front."""
        order = [column.key for column in self.columns]
        if key not in order or to not in order or _BY_KEY[key].frozen != _BY_KEY[to].frozen:
            return self
        place = order.index(to)
        order.remove(key)
        order.insert(place, key)
        return replace(self, shown=tuple(order))

    def sized(self, key: ColumnKey, width: int | None) -> "ColumnChoice":
        """With the column so wide; None: as wide as fits."""
        widths = {other: cells for other, cells in self.widths.items() if other != key}
        if width is not None:
            widths[key] = min(MOST_WIDTH, max(LEAST_WIDTH, width))
        return replace(self, widths=widths)

    def width(self, key: ColumnKey) -> int | None:
        """The column's own width; None: what fits."""
        return self.widths.get(key)

    def _column(self, key: ColumnKey) -> Column:
        column = _BY_KEY[key]
        width = self.widths.get(key)
        return column if width is None else replace(column, width=width, grows=0, most=width)
