"""How the rows of an import stand: what the file says of them, and what the ledger says."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from app.actions.imports import Imported, ImportRow, standing
from app.text import safe_text
from storage.records import Action
from widgets.organizations.imports import ImportLine, RowState


def lines(rows: Sequence[ImportRow], attempts: Sequence[Action]) -> tuple[ImportLine, ...]:
    """Each row as it stands, by the attempts so far, newest first."""
    by_subject: defaultdict[str, list[Action]] = defaultdict(list)
    for action in attempts:
        by_subject[action.subject].append(action)
    return tuple(line(standing(row, by_subject[row.subject])) for row in rows)


def line(result: Imported) -> ImportLine:
    """One row, after what came of it."""
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
    """The rows of a file as they stand: what came of one just now is told until something newer is known of it."""

    def __init__(self) -> None:
        """No file was read yet."""
        self._rows: tuple[ImportRow, ...] = ()
        self._lines: dict[int, ImportLine] = {}

    @property
    def shown(self) -> tuple[ImportLine, ...]:
        """All of them, in the file's order."""
        return tuple(self._lines.values())

    @property
    def to_send(self) -> tuple[ImportRow, ...]:
        """Those that nothing keeps from being sent."""
        ready = {each.line for each in self._lines.values() if each.state == "to_create"}
        return tuple(row for row in self._rows if row.line in ready)

    def load(self, rows: Sequence[ImportRow]) -> None:
        """Take the rows of another file, or of the same one read again; `stand` says how they stand."""
        self._rows, self._lines = tuple(rows), {}

    def stand(self, attempts: Sequence[Action]) -> None:
        """Take what the ledger says."""
        self._lines = {each.line: self._kept(each) for each in lines(self._rows, attempts)}

    def put(self, changed: ImportLine) -> None:
        """Take one row as it stands now."""
        self._lines[changed.line] = changed

    def begin(self, row: ImportRow) -> None:
        """One row is on its way."""
        self.put(replace(self._lines[row.line], state="sending"))

    def _kept(self, found: ImportLine) -> ImportLine:
        before = self._lines.get(found.line)
        if before is None or before.action != found.action:
            return found
        return before if before.state in {"created", "rejected"} else found


def _state(result: Imported) -> RowState:
    if result.row.is_twice:
        return "twice"
    if result.row.problems:
        return "invalid"
    match result.outcome:
        case "to_create" | "not_tried" | "not_sent":
            return "to_create"
        case "rejected":
            # What was refused for another reason than its own may simply be tried again.
            return "to_create" if result.ends_the_import else "rejected"
        case "blocked":
            return "unknown" if result.action is not None and result.action.state == "unknown" else "blocked"
        case outcome:
            return outcome


def why_stopped(result: Imported) -> str:
    """Why nothing more is sent after this row, and what to press."""
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
