"""Marked runs, by id: they stay marked when they move, and while a filter hides them."""

from collections.abc import Iterable


class RunMarks:
    """The marks of one table, and the range that is being extended."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        """A dictionary, which keeps the order of marking."""
        self._range: list[str] = []
        """The runs of the range, from its beginning."""

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> tuple[str, ...]:
        """The marked runs, in the order of marking."""
        return tuple(self._ids)

    @property
    def anchor(self) -> str | None:
        """The run marked last, where a range begins."""
        return next(reversed(self._ids), None)

    def toggle(self, run_id: str) -> None:
        """Mark or unmark the run."""
        self._range = []
        if run_id in self._ids:
            del self._ids[run_id]
        else:
            self._ids[run_id] = None

    def extend(self, from_id: str, to_id: str) -> None:
        """Extend the range to the next run; going back unmarks the run that was left."""
        if not self._range or self._range[-1] != from_id:
            self._range = [from_id]
            self._ids[from_id] = None
        if self._range[-2:-1] == [to_id]:
            self._ids.pop(self._range.pop(), None)
        else:
            self._range.append(to_id)
            self._ids[to_id] = None

    def add(self, run_ids: Iterable[str]) -> None:
        """Mark these runs."""
        self._range = []
        self._ids.update(dict.fromkeys(run_ids))

    def remove(self, run_ids: Iterable[str]) -> None:
        """Unmark these runs."""
        self._range = []
        for run_id in run_ids:
            self._ids.pop(run_id, None)

    def clear(self) -> None:
        """Unmark every run."""
        self._range = []
        self._ids.clear()
