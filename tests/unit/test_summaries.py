"""What came of a turn, in one line."""

import pytest

from app.runs.summaries import LONGEST, result_of
from storage.records.results import ReportedFinding, Turn

MAJOR, NOTE = ReportedFinding("a.py", 1, "One", "major"), ReportedFinding("a.py", 2, "Two", "note")
VERDICT = "Changes needed: 2 majors, 1 note in 3 files."


@pytest.mark.parametrize(
    ("turn", "result"),
    [
        (Turn(1, "completed", additions=1200, summary="Fix it\n\nAt last."), "+1,200 -0 · Fix it"),
        (Turn(1, "completed", summary="Fix it"), "Fix it"),
        (Turn(1, "completed", reason="Nothing was changed."), "Nothing was changed."),
        (
            Turn(1, "completed", summary=VERDICT, findings=(NOTE, MAJOR, MAJOR), additions=3, deletions=1),
            "2 majors, 1 note · Changes needed · +3 -1",
        ),
        (
            Turn(1, "completed", summary="Look at it", findings=(ReportedFinding("a.py", None, "?"),)),
            "1 finding · Look at it",
        ),
        (Turn(1, "completed", findings=()), "no findings"),
        (Turn(1, "failed", outcome="failed", reason="No  compiler.\nAt all.", deletions=2), "No compiler. · +0 -2"),
        (Turn(1, "failed", outcome="failed", failure_kind="timed_out"), "timed out"),
        (Turn(1, "cancelled", outcome="cancelled", reason="cancelled by ada"), "cancelled by ada"),
        (Turn(1, "failed", outcome="needs_answer", reason="It asks.", question="Which one?"), "asks: Which one?"),
        (Turn(1, "completed", summary="x" * 999), "x" * LONGEST),
        (Turn(1, "working"), ""),
    ],
)
def test_a_result_is_one_line(turn: Turn, result: str) -> None:
    """A completed turn's findings and verdict, or its lines and summary; else why it failed, or what is asked."""
    assert result_of(turn) == result
