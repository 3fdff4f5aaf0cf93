from pathlib import Path

import pytest

from app.console.forms.instructions import EditorError, edit, editor_command


def script(folder: Path, body: str) -> Path:
    """An editor that does one thing."""
    path = folder / "my editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def test_the_editors_text_comes_back(tmp_path: Path) -> None:
    """The file's last line end is the editor's, not the person's; a command may have blanks and arguments."""
    editor = script(tmp_path, 'printf " and more\\n" >> "$2"')

    assert edit("Fix it", {"EDITOR": f"'{editor}' --wait"}) == "Fix it and more"


def test_only_the_person_can_read_the_file(tmp_path: Path) -> None:
    """And nothing of it is left behind."""
    seen = tmp_path / "seen"
    editor = script(tmp_path, f'stat -c %a "$1" > "{seen}"; printf "%s" "$1" > "{seen}.path"')
    edit("secret", {"VISUAL": f"'{editor}'", "EDITOR": "false"})

    assert seen.read_text().strip() == "600"
    assert not Path((tmp_path / "seen.path").read_text()).exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [("/nowhere/editor", "did not start"), ("false", "code 1"), ("'unclosed", "cannot be read as a command")],
)
def test_an_editor_that_fails_changes_nothing_and_says_why(command: str, message: str) -> None:
    """The text in the form stays."""
    with pytest.raises(EditorError, match=message):
        edit("Fix it", {"EDITOR": command})


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """They could not be sent as JSON."""
    editor = script(tmp_path, r'printf "\377" > "$1"')

    with pytest.raises(EditorError, match="UTF-8"):
        edit("Fix it", {"EDITOR": f"'{editor}'"})


def test_without_a_variable_it_is_vi() -> None:
    """As everywhere."""
    assert editor_command({}) == ["vi"]
    assert editor_command({"EDITOR": " "}) == ["vi"]
