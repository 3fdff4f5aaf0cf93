"""The pure parts of the run table: marks, columns, titles, the timeline."""

from widgets.runs.table import RunMarks


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
