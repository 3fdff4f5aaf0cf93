"""The way from an answer to a row is as short as docs/architecture.md says, and leads through what it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_FILES = 10


def section() -> str:
    """What the page says of the way."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text.partition("## From an answer to a row")[2].partition("\n## ")[0]


def hops() -> list[tuple[str, str]]:
    """The file and the name of each numbered hop."""
    return re.findall(r"^\d+\. `([^`]+)`: `([^`]+)`", section(), flags=re.MULTILINE)


def test_a_row_crosses_at_most_ten_files() -> None:
    """The list begins where bytes arrive and ends where lines are painted; the section names no file beside it."""
    files = [file for file, _ in hops()]

    assert (files[0], files[-1]) == ("app/api/transport.py", "widgets/runs/rows.py")
    assert len(files) <= MOST_FILES
    assert set(re.findall(r"[a-z_/]+\.py", section())) == {*files, "app/schedule.py", "app/polling.py"}


def test_each_hop_is_in_its_file() -> None:
    """What the page names is defined where it says."""
    for file, name in hops():
        source = (ROOT / file).read_text(encoding="utf-8")

        assert re.search(rf"^\s*(class|def|async def) {name.rpartition('.')[2]}\b", source, re.MULTILINE), (file, name)
