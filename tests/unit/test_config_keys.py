"""`[keys]` and `[[commands]]`: what is read, and what is refused with its line and cure."""

from pathlib import Path

import pytest

from app.config import Command, ConfigError, load


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_ids_with_dots_are_ids(tmp_path: Path) -> None:
    """To TOML `run.continue` is a table; to people, and to us, a name."""
    path = written(tmp_path, '[keys]\nrun.continue = "C,f7"\napp.quit = "ctrl+q"\n"table.down" = "n"\n')

    assert load(path, {}).keys == {"run.continue": "C,f7", "app.quit": "ctrl+q", "table.down": "n"}


def test_a_command_is_read_in_full(tmp_path: Path) -> None:
    """Only name and argv are needed."""
    path = written(
        tmp_path,
        '[[commands]]\nname = "Log"\nargv = ["less", "{run_id}.log"]\n'
        '[[commands]]\nname = "Edit"\nargv = ["vi"]\nkey = "ctrl+l"\nconfirm = true\nterminal = true\n',
    )

    assert load(path, {}).commands == (
        Command("Log", ("less", "{run_id}.log")),
        Command("Edit", ("vi",), "ctrl+l", confirm=True, terminal=True),
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[keys]\nrun.continue = "ctrl + l"\n', 2, "a key has no blanks"),
        ("[keys]\nrun.continue = 3\n", 2, "must be a string"),
        ('[keys]\nrun.continue = ""\n', 2, "this is empty"),
        ('[[commands]]\nname = "Log"\n', 1, "argv: this key is missing"),
        (
            '[[commands]]\nname = "Log"\nargv = ["less", "{run}"]\n',
            3,
            "no placeholder {run}. There are: {run_id}",
        ),
        ('[[commands]]\nname = "Log"\nargv = ["ls"]\nshell = true\n', 4, "there is no such key"),
        ('[[commands]]\nname = "A"\nargv = ["ls"]\n[[commands]]\nname = "a"\nargv = ["ls"]\n', 5, "has this name"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    """File, line, key, and what to write instead."""
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text), {})

    assert caught.value.line == line
    assert said in str(caught.value)
