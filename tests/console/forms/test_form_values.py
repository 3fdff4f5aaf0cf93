"""What is typed into a field, and what of it is sent."""

import pytest

from app.actions.refusals import FieldProblem
from app.actions.screen_fields import PAIRS, faithful, read_pairs
from widgets.forms.field import read_value


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (" full ", "full"),
        ('"3"', "3"),
        ("3", 3),
        ("-1.5e3", -1500.0),
        ("true", True),
        ("null", None),
        ('["a", 1]', ["a", 1]),
        ('{"a": {}}', {"a": {}}),
        ("{a: 1}", "{a: 1}"),
        ("-Infinity", "-Infinity"),
        ("1e999", "1e999"),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_where_it_is_json_and_text_where_it_is_not(typed: str, value: object) -> None:
    """A number that no JSON holds stays text."""
    assert read_value(typed) == value
    assert type(read_value(typed)) is type(value)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("a=1\n\n b = x=y ", {"a": 1, "b": "x=y"}),
        ("depth=1\ndepth=2", "depth is given twice; keep one."),
        ("=lonely", "Write 'lonely' as key=value, or delete it."),
    ],
)
def test_pairs_are_lines_of_key_and_value(typed: str, found: object) -> None:
    """What could not be sent, or would be lost, is a problem."""
    read = read_pairs("inputs", typed)

    assert (read.message if isinstance(read, FieldProblem) else read) == found


def test_sent_pairs_are_written_so_that_they_are_read_again() -> None:
    """Text that looks like another value, or that no field shows, is quoted."""
    values = {"a": "3", "b": 3, "c": "x\x1b\ny", "d": " e", "f": "", "g": {"h": [None]}}

    assert read_pairs("inputs", PAIRS.written(values)) == values


def test_what_cannot_be_shown_is_not_prefilled() -> None:
    """A field would show something other than what is sent."""
    hostile = ("a\x1b[2Jb", "a\nb", "a\tb", "\u202eevil", "z\u0301\u0301\u0301\u0301\u0301\u0301")

    assert [faithful(text) for text in (*hostile, "feature/例え-ü")] == [*[""] * 5, "feature/例え-ü"]
