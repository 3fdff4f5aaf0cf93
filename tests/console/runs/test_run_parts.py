"""The pure parts of the run table: marks, columns, titles, the timeline."""

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.geometry import Size

from storage.records import FINAL_STATUSES, Repository, Run, RunDetail, StatusTransition, WorkTime
from widgets.runs.columns import COLUMN_KEYS, DEFAULT_COLUMNS, ColumnArrangement, ColumnChoice, lay_out
from widgets.runs.facts import RunView, fields, timeline
from widgets.runs.pane import placement
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


def test_a_second_range_leaves_the_first_alone() -> None:
    """Marks add up until they are taken away."""
    marks = RunMarks()
    marks.extend("a", "b")
    marks.toggle("x")
    marks.extend("m", "n")

    assert marks.ids == ("a", "b", "x", "m", "n")
    assert marks.anchor == "n"

    marks.toggle("x")
    marks.put(["a", "not there"], is_marked=False)
    assert marks.ids == ("b", "m", "n")


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
    layout = lay_out(width, choice.columns)

    assert 1 <= len(choice.shown) == len(set(choice.shown))
    assert sorted(choice.every_key) == sorted(COLUMN_KEYS)
    frozen = [placed.column.frozen for placed in layout.placed]
    assert frozen == sorted(frozen, reverse=True)
    for left, right in zip(layout.placed, layout.placed[1:], strict=False):
        assert left.end < right.x


def test_a_title_is_moved_a_gap_stretches() -> None:
    """A press that trembles by one cell is still a click."""
    choice = ColumnChoice()
    columns = ColumnArrangement(choice)
    columns.fit(140)
    layout = columns.layout
    branch, took = (next(p for p in layout.placed if p.column.key == key) for key in ("branch", "took"))

    title, edge = columns.title_at(branch.x, 0), columns.title_at(branch.end, 0)
    assert title is not None
    assert edge is not None
    assert title.dragged_to(branch.x + 1) == choice
    assert title.dragged_to(took.x).shown == ("status", "repository", "started", "took", "branch", "run")
    assert edge.dragged_to(branch.end + 5).width("branch") == branch.width + 5
    assert edge.dragged_to(0).width("branch") == 4
    assert choice.moved("took", "status") == choice
    assert ColumnChoice().shown == DEFAULT_COLUMNS


def view(*moves: tuple[str | None, str, float], created: float) -> RunView:
    """A run with transitions, in minutes before noon."""

    def at(minutes: float) -> datetime:
        return NOON - timedelta(minutes=minutes)

    run = Run("run_1", moves[-1][1], "main", Repository.parse("acme/api"), at(created), NOON, "{}")
    transitions = tuple(StatusTransition("run_1", old, new, at(minutes)) for old, new, minutes in moves)
    took = WorkTime(seconds=created * 60) if run.status in FINAL_STATUSES else WorkTime(since=at(created))
    return RunView(RunDetail(run, NOON, NOON, "current", transitions, took))


def test_a_continued_run_says_in_how_many_turns_it_worked() -> None:
    """Beside how long that took; a run of one turn says nothing of it."""
    once = view((None, "working", 40), ("working", "failed", 0), created=40)
    twice = view((None, "completed", 40), ("completed", "queued", 9), ("queued", "working", 8), created=9)

    def took(seen: RunView) -> list[str]:
        return [" ".join(line.plain.split()) for line in fields(seen, NOON, NOON, 80) if "took" in line.plain]

    assert took(once) == ["took 40m00s"]
    assert took(twice) == ["took 9m00s so far, in 2 turns"]


def test_a_wider_screen_never_shows_fewer_columns() -> None:
    """The run stands beside the table only where that hides none of its columns, whatever was chosen."""
    for choice in (ColumnChoice(), ColumnChoice(COLUMN_KEYS), ColumnChoice(DEFAULT_COLUMNS).sized("branch", 40)):
        columns = ColumnArrangement(choice)
        for size in ("small", "normal"):
            shown = []
            for width in range(60, 201):
                pane = placement(size, Size(width, 40), columns.least_width + 1)
                columns.is_squeezed = pane.where == "beside"
                room = width - 1 - (pane.cells if columns.is_squeezed else 0)
                columns.fit(room)
                shown.append(sum(placed.end <= room for placed in columns.layout.placed))

            assert shown == sorted(shown)
            assert shown[-1] >= len(DEFAULT_COLUMNS)


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


def test_what_took_no_second_is_not_said_to_have_taken_one() -> None:
    """The scale has a least length, the number has none."""
    seen = view((None, "queued", 0.01), ("queued", "failed", 0), created=0.01)

    assert [line.plain.split()[2:3] for line in timeline(seen, NOON, NOON, 80)][-1] == ["0s"]


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
