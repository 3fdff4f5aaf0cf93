"""What the run table asks for and what it is given: a window of rows, never all of them."""

from dataclasses import dataclass

from storage.records import RunRow


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader stands in a table of runs."""

    offset: int
    """The first row wanted."""
    limit: int
    """How many rows are wanted."""
    anchor_id: str | None = None
    """The run that must not move on the screen. None: the table rests at its top."""
    anchor_index: int = 0
    """Its row when it was last read."""
    cursor_id: str | None = None
    cursor_index: int = 0


@dataclass(frozen=True, slots=True)
class RunWindow:
    """Rows of a table, with what is needed to put them where they belong."""

    total: int
    """Rows of the whole table."""
    offset: int
    """The row number of the first one here."""
    rows: tuple[RunRow, ...]
    shift: int = 0
    """By how many rows the anchor moved down since the table asked."""
    cursor_index: int | None = None
    """The row of the cursor's run now. None: it is no longer in the table."""

    def row(self, index: int) -> RunRow | None:
        """The row of that number, if it is here."""
        position = index - self.offset
        return self.rows[position] if 0 <= position < len(self.rows) else None

    def holds(self, first: int, last: int) -> bool:
        """Whether every row from first to last, as far as the table goes, is here."""
        return self.offset <= max(0, first) and min(last, self.total - 1) < self.offset + len(self.rows)


NOTHING = RunWindow(0, 0, ())
