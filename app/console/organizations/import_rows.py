"""The rows of an import, with their state in the file and in the ledger."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from app.actions.imports import Imported, ImportRow, standing
from app.text import safe_text
from storage.records import Action
from widgets.organizations.imports import ImportLine, ImportRowState


def lines(rows: Sequence[ImportRow], attempts: Sequence[Action]) -> tuple[ImportLine, ...]:
    """Each row with its state, by the attempts so far, newest first."""
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
    """The rows of a file; a row's newest state wins over the ledger's until that changes."""

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
        """Take the rows of a file; `stand` gives them their state."""
        self._rows, self._lines = tuple(rows), {}

    def stand(self, attempts: Sequence[Action]) -> None:
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
