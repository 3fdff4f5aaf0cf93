"""The pure parts of the run table: marks, columns, titles, the timeline."""

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.geometry import Size

from storage.records import FINAL_STATUSES, Repository, Run, RunDetail, StatusTransition, WorkTime
from widgets.kit.cells import lay_out
from widgets.runs.columns import COLUMN_KEYS, DEFAULT_COLUMNS, GUTTER, SPARED, ColumnArrangement, ColumnChoice
from widgets.runs.facts import RunView, timeline
from widgets.runs.pane import SIZES, placement
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


steps = st.tuples(
    st.sampled_from(["toggle", "move", "size", "fit"]), st.sampled_from(COLUMN_KEYS), st.sampled_from(COLUMN_KEYS)
)


def chosen(moves: list[tuple[str, str, str]]) -> ColumnChoice:
    choice = ColumnChoice()
    for what, key, other in moves:
        match what:
            case "toggle":
                choice = choice.toggled(key)
            case "move":
                choice = choice.moved(key, other)
            case "size":
                choice = choice.sized(key, 7 * len(other))
            case _:
                choice = choice.sized(key, None)
    return choice


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=12), st.integers(20, 200))
def test_any_choice_of_columns_can_be_drawn(moves: list[tuple[str, str, str]], width: int) -> None:
    """At least one column, none twice, those that stay in view in front, none over another."""
    choice = chosen(moves)
    layout = lay_out(width, choice.columns, GUTTER)

    assert 1 <= len(choice.shown) == len(set(choice.shown))
    assert sorted(choice.every_key) == sorted(COLUMN_KEYS)
    frozen = [placed.column.frozen for placed in layout.placed]
    assert frozen == sorted(frozen, reverse=True)
    for left, right in zip(layout.placed, layout.placed[1:], strict=False):
        assert left.end < right.x


def view(*moves: tuple[str | None, str, float], created: float) -> RunView:
    """A run with transitions, in minutes before noon."""

    def at(minutes: float) -> datetime:
        return NOON - timedelta(minutes=minutes)

    run = Run("run_1", moves[-1][1], "main", Repository.parse("acme/api"), at(created), NOON, "{}")
    transitions = tuple(StatusTransition("run_1", old, new, at(minutes)) for old, new, minutes in moves)
    took = WorkTime(seconds=created * 60) if run.status in FINAL_STATUSES else WorkTime(since=at(created))
    return RunView(RunDetail(run, NOON, NOON, "current", transitions, took))


def test_no_column_is_narrower_on_a_wider_screen() -> None:
    """Whatever was chosen: the run is next to the table only where all columns keep the width that they had without."""
    for choice in (ColumnChoice(), ColumnChoice(COLUMN_KEYS), ColumnChoice(DEFAULT_COLUMNS).sized("branch", 40)):
        columns = ColumnArrangement(choice)
        columns.filled = frozenset(SPARED)
        for size in SIZES:
            drawn = []
            for width in range(60, 241):
                pane = placement(size, Size(width, 40), columns.ample_width + 1)
                is_beside = pane.where == "beside"
                columns.is_limited = not is_beside
                room = width - 1 - (pane.cells if is_beside else 0)
                columns.fit(room)
                drawn.append([max(0, min(placed.end, room) - placed.x) for placed in columns.layout.placed])

            for cells in zip(*drawn, strict=True):
                assert list(cells) == sorted(cells)
            assert sum(map(bool, drawn[-1])) >= len(DEFAULT_COLUMNS)


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
