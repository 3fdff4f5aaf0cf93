"""The sending of an import: confirmed by a second press, sent row by row, with the reason for its end."""

from collections.abc import Iterator
from typing import Final, Literal

from app.actions.imports import Import, Imported, ImportRow
from app.console.forms.action_form import SecondPress
from app.console.organizations.import_rows import ImportList, why_stopped
from app.text import plural
from widgets.badges import Tone

Phase = Literal["idle", "asked", "sending", "stopping"]
_UNDER_WAY: Final = frozenset({"sending", "stopping"})


class Sending:
    """One import of a file's rows, from the question to its end; it may be resumed."""

    def __init__(self) -> None:
        """Start without a file."""
        self.rows = ImportList()
        self.file = ""
        """The file's name when it was read last."""
        self.second_press = SecondPress()
        self._phase: Phase = "idle"
        self._stopped_by: Imported | None = None
        """The row that ended the last sending, or None."""
        self._paused = ""
        """Why the last sending ended early, if no row was the reason."""
        self._cursor: int | None = None
        """The line that the cursor was moved to; it moves on only from there, not from where the user put it."""

    @property
    def is_asked(self) -> bool:
        """Whether the next press sends."""
        return self._phase == "asked"

    @property
    def is_under_way(self) -> bool:
        """Whether rows are being sent."""
        return self._phase in _UNDER_WAY

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to send, and no row ended it early."""
        return not self.rows.to_send and self._stopped_by is None

    def read(self, file: str) -> None:
        """Start over with this file: questions and remarks about earlier rows are void."""
        self.file, self._phase, self._stopped_by, self._paused = file, "idle", None, ""

    def ask(self) -> None:
        """Ask whether to send; `second_press` counts from when the question was painted."""
        self._phase = "asked"
        self.second_press.forget()

    def cancel(self) -> bool:
        """Withdraw the question; False: there was none."""
        was_asked = self.is_asked
        if was_asked:
            self._phase = "idle"
        return was_asked

    def begin(self) -> None:
        """Start to send."""
        self._phase, self._stopped_by, self._paused = "sending", None, ""

    def stop(self) -> None:
        """Stop after the row being sent."""
        if self.is_under_way:
            self._phase = "stopping"

    def pending(self, work: Import) -> Iterator[ImportRow]:
        """The rows to send, one after the other, until something ends it."""
        for row in self.rows.to_send:
            if self._phase != "sending" or work.is_spent or work.stopped_by is not None:
                return
            self.rows.begin(row)
            yield row

    def takes_cursor(self, line: int, at: int | None) -> bool:
        """Whether the cursor on the line `at` follows to this one."""
        goes_along = self._cursor is None or self._cursor == at
        if goes_along:
            self._cursor = line
        return goes_along

    def end(self, work: Import) -> None:
        """Store why it ended."""
        was_stopped, left = self._phase == "stopping", len(self.rows.to_send)
        self._phase, self._cursor, self._stopped_by = "idle", None, work.stopped_by
        if work.stopped_by is None and left and was_stopped:
            self._paused = f"Stopped. ^s goes on with {_organizations(left)}."
        elif work.stopped_by is None and left and work.is_spent:
            self._paused = f"{work.sent:,} were sent, as many as may be at once. ^s goes on with the next."

    def remark(self, most: int, *, read_only: bool) -> tuple[str, Tone]:
        """The question, the reason of the last end, or the effect of the key; at most `most` are sent at once."""
        if self.is_asked:
            return self._question(most), "warn"
        if not self.rows.shown:
            return "", "quiet"
        if self._stopped_by is not None and self._is_still_so(self._stopped_by):
            return why_stopped(self._stopped_by), "warn"
        if read_only:
            return "Read-only: nothing can be sent from here.", "warn"
        if self._paused:
            return self._paused, "warn"
        count = len(self.rows.to_send)
        return (f"^s creates {_organizations(count)}." if count else "Nothing is left to create."), "quiet"

    def _question(self, most: int) -> str:
        count = len(self.rows.to_send)
        first = f"{most:,} of {_organizations(count)}" if most < count else _organizations(count)
        people = "1 person" if min(most, count) == 1 else f"{min(most, count):,} people"
        return f"^s again creates {first} and invites {people}; esc cancels."

    def _is_still_so(self, stopped_by: Imported) -> bool:
        here = next((each for each in self.rows.shown if each.line == stopped_by.row.line), None)
        return stopped_by.outcome != "unknown" or (here is not None and here.unknown is not None)


def _organizations(count: int) -> str:
    return plural(count, "organization")
