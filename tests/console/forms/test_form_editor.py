from pathlib import Path

import pytest

from app.actions.screen_instructions import EditorError, edit


def script(folder: Path, body: str) -> Path:
    """An editor that does one thing."""
    path = folder / "my editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def test_the_editors_text_comes_back_and_only_the_person_can_read_it_meanwhile(tmp_path: Path) -> None:
    """The file's last line end is the editor's; a command may have blanks and arguments; nothing is left behind."""
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
    """The text in the form stays."""
    with pytest.raises(EditorError, match=message):
        edit("Fix it", {"EDITOR": command})


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """They could not be sent as JSON."""
    editor = script(tmp_path, r'printf "\377" > "$1"')

    with pytest.raises(EditorError, match="UTF-8"):
        edit("Fix it", {"EDITOR": f"'{editor}'"})
