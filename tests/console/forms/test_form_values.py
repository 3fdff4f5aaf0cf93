import pytest

from app.actions import FieldProblem
from app.console.forms.fields import faithful, read_pairs, read_repository
from storage.records import Repository
from widgets.forms.pairs import packed, read_value, reading


@pytest.mark.parametrize(
    ("typed", "value", "word"),
    [
        ("full", "full", "text"),
        (" full ", "full", "text"),
        ('"3"', "3", "text"),
        ("3", 3, "number"),
        ("-1.5e3", -1500.0, "number"),
        ("true", True, "yes/no"),
        ("null", None, "null"),
        ('["a", 1]', ["a", 1], "list"),
        ('{"a": {}}', {"a": {}}, "object"),
        ("{a: 1}", "{a: 1}", "text"),
        ("NaN", "NaN", "text"),
        ("-Infinity", "-Infinity", "text"),
        ("1e999", "1e999", "text"),
        ("", "", "text"),
        ("[" * 100_000, "[" * 100_000, "text"),
    ],
)
def test_a_value_is_json_where_it_is_json_and_text_where_it_is_not(typed: str, value: object, word: str) -> None:
    """What is sent and what the form says about it come from the same reading."""
    assert read_value(typed) == value
    assert type(read_value(typed)) is type(value)
    assert reading(typed) == word


def test_a_key_given_twice_is_a_problem() -> None:
    """JSON would silently keep the last one."""
    found = read_pairs("inputs", packed((("depth", "1"), ("depth", "2"))))

    assert found == FieldProblem("inputs", "depth is there twice; keep one.")


def test_a_value_without_a_key_is_a_problem() -> None:
    """It could not be sent, and would be lost."""
    found = read_pairs("inputs", packed((("", "lonely"),)))

    assert isinstance(found, FieldProblem)
    assert "lonely" in found.message


def test_an_unreadable_repository_says_what_would_be_one() -> None:
    """The message holds an example."""
    found = read_repository("acme")

    assert isinstance(found, FieldProblem)
    assert "owner/repo" in found.message
    assert read_repository(" acme/api ") == Repository.parse("acme/api")


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\tb", "\u202eevil", "z\u0301\u0301\u0301\u0301\u0301\u0301"])
def test_what_cannot_be_shown_is_not_prefilled(text: str) -> None:
    """A field would show something other than what is sent."""
    assert faithful(text) == ""
    assert faithful("feature/例え-ü") == "feature/例え-ü"
