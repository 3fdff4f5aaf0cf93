"""What came of a turn, and the last step of one that works, in one line."""

from app.runs.summaries import result_of
from storage.records.results import ReportedFinding, Turn

MAJOR, NOTE = ReportedFinding("a.py", 1, "One", "major"), ReportedFinding("a.py", 2, "Two", "note")
ALL = (NOTE, MAJOR, MAJOR)
VERDICT = "Changes needed: 2 majors, 1 note in 3 files."


def test_a_result_is_one_line() -> None:
    """A completed turn's findings and verdict, or its lines and summary; else why it failed, or what is asked."""
    for turn, result in (
        (Turn(1, "completed", additions=1200, summary="Fix it\n\nAt last."), "+1,200 -0 · Fix it"),
        (Turn(1, "completed", reason="Nothing was changed."), "Nothing was changed."),
        (Turn(1, "completed", summary=VERDICT, findings=ALL, additions=3), "2 majors, 1 note · Changes needed · +3 -0"),
        (Turn(1, "completed", findings=()), "no findings"),
        (Turn(1, "failed", outcome="failed", reason="No  compiler.\nAt all.", deletions=2), "No compiler. · +0 -2"),
        (Turn(1, "cancelled", outcome="cancelled", reason="cancelled by ada"), "cancelled by ada"),
        (Turn(1, "failed", outcome="needs_answer", reason="It asks.", question="Which one?"), "asks: Which one?"),
        (Turn(1, "working"), ""),
    ):
        assert result_of(turn) == result, turn
