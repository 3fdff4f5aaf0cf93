"""The state of an import: its rows in the file and in the ledger, and their sending after a second press."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from app.actions.import_file import ImportRow
from app.actions.imports import Import, Imported, standing
from app.console.forms.second_press import SecondPress
from app.text import plural, safe_text
from storage.records import Action
from widgets.badges import Tone
from widgets.organizations.imports import ImportLine, ImportRowState

SendingPhase = Literal["idle", "asked", "sending", "stopping"]
_UNDER_WAY: Final = frozenset({"sending", "stopping"})


def lines(rows: Sequence[ImportRow], attempts: Sequence[Action]) -> tuple[ImportLine, ...]:
    """Return each row with its state by the attempts so far, which are given newest first."""
    by_subject: defaultdict[str, list[Action]] = defaultdict(list)
    for action in attempts:
        by_subject[action.subject].append(action)
    return tuple(line(standing(row, by_subject[row.subject])) for row in rows)


def line(result: Imported) -> ImportLine:
    """Describe a row by its result."""
    row = result.row
    problem = " ".join(each.message for each in row.problems)
    return ImportLine(
        row.line,
        safe_text(row.email, limit=254),
        safe_text(row.offer_code or "", limit=100),
        _state(result),
        safe_text(problem),
        result.action,
    )


class ImportList:
    """The rows of a file and their states; a created or rejected row stays so until its action changes."""

    def __init__(self) -> None:
        """Start without a file."""
        self._rows: tuple[ImportRow, ...] = ()
        self._lines: dict[int, ImportLine] = {}

    @property
    def shown(self) -> tuple[ImportLine, ...]:
        """All rows, in the file's order."""
        return tuple(self._lines.values())

    @property
    def to_send(self) -> tuple[ImportRow, ...]:
        """The rows that can be sent."""
        ready = {each.line for each in self._lines.values() if each.state == "to_create"}
        return tuple(row for row in self._rows if row.line in ready)

    def load(self, rows: Sequence[ImportRow]) -> None:
        """Replace the rows by a file's; `update` gives them their states."""
        self._rows, self._lines = tuple(rows), {}

    def update(self, attempts: Sequence[Action]) -> None:
        """Update the rows from the ledger."""
        self._lines = {each.line: self._kept(each) for each in lines(self._rows, attempts)}

    def put(self, changed: ImportLine) -> None:
        """Replace one row's state."""
        self._lines[changed.line] = changed

    def begin(self, row: ImportRow) -> None:
        """Mark a row as being sent."""
        self.put(replace(self._lines[row.line], state="sending"))

    def _kept(self, found: ImportLine) -> ImportLine:
        before = self._lines.get(found.line)
        if before is None or before.action != found.action:
            return found
        return before if before.state in {"created", "rejected"} else found


def why_stopped(result: Imported) -> str:
    """Explain why nothing more is sent after this row, and which key helps."""
    error = result.action.error if result.action is not None else None
    kind = error.kind if error is not None else ""
    if result.outcome in {"unknown", "blocked"}:
        return f"Line {result.row.line}'s outcome is unknown: v resolves it; ^s goes on with the others."
    if kind == "rate_limited":
        return "The organization's rate limit is spent (429): wait a little; ^s goes on where it stopped."
    if kind in {"not_authorized", "forbidden", "not_found"}:
        message = error.message if error is not None else ""
        return f"Refused, as every other row would be: {message} Nothing more was sent."
    message = error.message if error is not None else ""
    return f"Line {result.row.line} could not be sent: {message} ^s goes on where it stopped."


class Sending:
    """One import of a file's rows, from the question to its end; it may be resumed."""

    def __init__(self) -> None:
        """Start without a file."""
        self.rows = ImportList()
        self.file = ""
        """The file's name when it was read last."""
        self.second_press = SecondPress()
        self._phase: SendingPhase = "idle"
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

    def move_cursor(self, line: int, *, here: int | None) -> bool:
        """Return whether the cursor moves to `line` from `here`: not if the user has moved it since the last call."""
        goes_along = self._cursor is None or self._cursor == here
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
        """Return the question, or why the last sending ended, or what the key does; `most` rows are sent at once."""
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


def _state(result: Imported) -> ImportRowState:
    if result.row.is_twice:
        return "twice"
    if result.row.problems:
        return "invalid"
    match result.outcome:
        case "to_create" | "not_tried" | "not_sent":
            return "to_create"
        case "rejected":
            # A row refused for a reason other than its own can be sent again.
            return "to_create" if result.ends_the_import else "rejected"
        case "blocked":
            return "unknown" if result.action is not None and result.action.state == "unknown" else "blocked"
        case outcome:
            return outcome


def _organizations(count: int) -> str:
    return plural(count, "organization")
