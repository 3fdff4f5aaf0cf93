"""The pure parts of the run table: marks, columns, titles, the timeline."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from storage.records import FINAL_STATUSES, Repository, Run, RunDetail, StatusTransition, WorkTime
from widgets.runs.facts import RunView, timeline
from widgets.runs.table import RunMarks

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_a_range_grows_and_shrinks_from_where_it_began() -> None:
    """Going back takes marks away; beyond the beginning the range turns."""
    marks = RunMarks()
    marks.extend("a", "b")
    marks.extend("b", "c")
    assert marks.ids == ("a", "b", "c")

    marks.extend("c", "b")
    marks.extend("b", "a")
    assert marks.ids == ("a",)

    marks.extend("a", "z")
    assert marks.ids == ("a", "z")


def view(*moves: tuple[str | None, str, float], created: float) -> RunView:
    """A run with transitions, in minutes before noon."""

    def at(minutes: float) -> datetime:
        return NOON - timedelta(minutes=minutes)

    run = Run("run_1", moves[-1][1], "main", Repository.parse("acme/api"), at(created), NOON, "{}")
    transitions = tuple(StatusTransition("run_1", old, new, at(minutes)) for old, new, minutes in moves)
    took = WorkTime(seconds=created * 60) if run.status in FINAL_STATUSES else WorkTime(since=at(created))
    return RunView(RunDetail(run, NOON, NOON, "current", transitions, took))


def test_a_timeline_is_drawn_to_scale() -> None:
    """Each bar begins where the one before ends, and is as long as its time; an end is a point."""
    seen = view((None, "queued", 40), ("queued", "working", 30), ("working", "failed", 0), created=40)
    lines = [line.plain for line in timeline(seen, NOON, NOON, 80)]
    queued, working, failed, whole = lines

    # 40 minutes are as many cells as fit beside the words; a quarter of them was spent in the queue.
    start = queued.index("░")
    total = len(whole) - whole.index("└")
    assert abs(queued.count("░") - total / 4) <= 1
    assert abs(working.count("━") - total * 3 / 4) <= 1
    assert working.index("━") == start + queued.count("░")
    assert failed.index("◆") >= working.rindex("━")
    assert "40m00s" in whole
    assert whole.startswith("in all")


@given(
    st.lists(st.floats(0, 5000), min_size=1, max_size=6).map(lambda m: sorted(m, reverse=True)), st.integers(20, 160)
)
def test_a_timeline_fits_its_width(minutes: list[float], width: int) -> None:
    """However short or long its stretches are; too narrow a pane gets no bars."""
    names = ["queued", "working", "completed", "queued", "working", "failed"]
    moves = [(names[i - 1] if i else None, names[i], at) for i, at in enumerate(minutes)]
    seen = view(*moves, created=minutes[0])

    for line in timeline(seen, NOON, NOON, width):
        assert cell_len(line.plain.rstrip()) <= max(width, 45)
