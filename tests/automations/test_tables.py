"""Writing one automation keeps the rest of the configuration, including comments."""

import stat
from pathlib import Path

import pytest

from app.automations.tables import read_rule, read_tables
from app.profiles import ConfigError
from app.profiles.load import parse

FIRST = '''\
[[automations]]  # kept
name = "first"
on = { run = "failed" } # and why
do = { continue = """
[[automations]]
is "no" header, \\""" and this is its end"""" }
'''
SECOND = """\
[[automations]]
name = 'second'
do.command = [
  "tell", # [[automations]]
  "x",
]
[automations.on]
every = "1h"
"""
FILE = f"# Mine.\n\n{FIRST}\n# About the second.\n{SECOND}# The end of it.\n\n[poll]  # often\nruns_s = 5\n\n\n"
THIRD = '[[automations]]\nname = "third"\non = { every = "2h" }\ndo = { notify = "default" }\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(FILE, "utf-8")
    path.chmod(0o600)
    return path


def test_each_table_is_found_as_it_is_written(file: Path) -> None:
    """Comments above and below belong to it; a header inside a string does not end it."""
    tables = read_tables(file)

    assert tables.names == ("first", "second")
    assert tables.table_text("first") == f"{FIRST}\n# About the second.\n"
    assert tables.table_text("second") == f"{SECOND}# The end of it.\n"


@pytest.mark.parametrize(("name", "ending"), [("first", "\r\n"), ("second", "\n"), (None, "\r\n")])
def test_one_table_changes_and_nothing_else(file: Path, name: str | None, ending: str) -> None:
    """Comments, blanks and line ends of the rest stay; the file stays private, and a link stays a link."""
    file.write_bytes(FILE.replace("\n", ending).encode())
    link = file.with_name("linked.toml")
    link.symlink_to(file)
    old = {"first": f"{FIRST}\n# About the second.\n", "second": f"{SECOND}# The end of it.\n", None: ""}[name]

    settings = read_tables(link).save(name, f"\n{THIRD}\n")

    end = "# The end of it.\n\n"
    at = FILE.replace(old, THIRD) if name else FILE.replace(end, f"{end}{THIRD}\n")
    assert file.read_bytes().decode() == at.replace("\n", ending)
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "third" in [rule.name for rule in settings.automations]


@pytest.mark.parametrize("before", ["[poll]\nruns_s = 5", ""])
def test_the_first_automation_of_a_file_comes_last(file: Path, before: str) -> None:
    """The table comes after everything else; in an empty file it is alone."""
    file.write_text(before, "utf-8")
    read_tables(file).save(None, THIRD)

    assert file.read_text("utf-8") == (f"{before}\n\n{THIRD}" if before else THIRD)


def test_what_would_not_be_valid_is_not_written(file: Path) -> None:
    """The whole resulting file is validated before it replaces the old one."""
    for name, written, said in (
        ("first", f"{THIRD}\n{THIRD}", "not one automation"),
        (None, f'default_profile = "x"\n{THIRD}', "default_profile|no such key|not one"),
        ("first", THIRD.replace("third", "Second"), "another automation has this name"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_tables(file).save(name, written)
        assert file.read_text("utf-8") == FILE, name
        assert list(file.parent.iterdir()) == [file], name


def test_a_file_that_changed_is_not_overwritten(file: Path) -> None:
    """An edit made meanwhile is not lost; automations on a single line must be edited by hand."""
    tables = read_tables(file)
    file.write_text(f"{FILE}# more\n", "utf-8")

    with pytest.raises(ConfigError, match="changed since it was read"):
        tables.save("first", THIRD)

    assert file.read_text("utf-8") == f"{FILE}# more\n"
    file.write_text('automations = [{ name = "a", on = { every = "1h" }, do = { notify = "default" } }]', "utf-8")
    with pytest.raises(ConfigError, match="Edit the file itself"):
        read_tables(file).table_text("a")


def test_a_mistake_names_its_line_and_its_fix() -> None:
    """The line is counted from the table's own first line."""
    for written, line, said in (
        (THIRD.replace('"2h"', '"2h'), 3, "not TOML"),
        (THIRD.replace("every", "evry"), 3, "exactly one of"),
        (THIRD.replace("default", "pager"), 4, "There are: default"),
        (THIRD.replace("third", "FIRST"), None, "Choose another name"),
        (f"{THIRD}[poll]", None, "one .*table"),
    ):
        with pytest.raises(ConfigError, match=said) as error:
            read_rule(written, parse(Path("config.toml"), ""), ["first"])
        assert error.value.line == line, written
