"""How the text of a field or an editor becomes the value that is sent."""

from pathlib import Path

import pytest

from app.actions.screen_fields import EditorError, edit, editable_text, format_pairs, read_pairs
from app.engine.text import json_or_text


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ('"3"', "3"),
        ("3", 3),
        ("-1.5e3", -1500.0),
        ("true", True),
        ("null", None),
        ('{"a": {}}', {"a": {}}),
        ("-Infinity", "-Infinity"),
        ("1e999", "1e999"),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_if_valid_and_text_otherwise(typed: str, value: object) -> None:
    """A number that JSON cannot represent stays text."""
    assert json_or_text(typed) == value
    assert type(json_or_text(typed)) is type(value)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("a=1\n\n b = x=y ", {"a": 1, "b": "x=y"}),
        ("depth=1\ndepth=2", "depth is given twice; keep one."),
        ("=lonely", "Write 'lonely' as key=value, or delete it."),
    ],
)
def test_pairs_are_lines_of_key_and_value(typed: str, found: object) -> None:
    """Pairs that cannot be sent, or would be lost, are reported as problems."""
    values, problems = read_pairs("inputs", typed)

    assert (problems[0].message if problems else values) == found


def test_sent_pairs_are_written_so_that_they_are_read_again() -> None:
    """Text that looks like another type, or that a field cannot show, is quoted."""
    values = {"a": "3", "b": 3, "c": "x\x1b\ny", "d": " e", "f": "", "g": {"h": [None]}}

    assert read_pairs("inputs", format_pairs(values)) == (values, ())


def test_what_cannot_be_shown_is_not_prefilled() -> None:
    """A field is not prefilled if it would show something other than what is sent."""
    hostile = ("a\x1b[2Jb", "a\nb", "a\tb", "\u202eevil", "z\u0301\u0301\u0301\u0301\u0301\u0301")

    assert [editable_text(text) for text in (*hostile, "feature/例え-ü")] == [*[""] * 5, "feature/例え-ü"]


def script(folder: Path, body: str) -> Path:
    """An editor that runs this script."""
    path = folder / "my editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def test_the_editors_text_comes_back_and_only_the_person_can_read_it_meanwhile(tmp_path: Path) -> None:
    """The last line end is removed, the editor's command may have blanks and arguments, and no file is left behind."""
    seen = tmp_path / "seen"
    editor = script(tmp_path, f'stat -c "%a %n" "$2" > "{seen}"; printf " and more\\n" >> "$2"')

    assert edit("Fix it", {"VISUAL": f"'{editor}' --wait", "EDITOR": "false"}) == "Fix it and more"
    mode, name = seen.read_text().split()
    assert mode == "600"
    assert not Path(name).exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [("/nowhere/editor", "did not start"), ("false", "code 1"), ("'unclosed", "cannot be read as a command")],
)
def test_an_editor_that_fails_changes_nothing_and_says_why(command: str, message: str) -> None:
    """The text in the form stays as it was."""
    with pytest.raises(EditorError, match=message):
        edit("Fix it", {"EDITOR": command})
