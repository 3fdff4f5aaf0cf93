"""The way from an answer to a painted row is as short as docs/architecture.md says, and leads through what it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_HOPS = 8


def hops() -> list[tuple[str, str]]:
    """The file and the name of each numbered hop."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## From an answer to a painted row")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`: `([^`]+)`", section, flags=re.MULTILINE)


def test_a_row_is_at_most_eight_hops_from_its_answer() -> None:
    """The list begins where bytes arrive and ends where lines are painted."""
    files = [file for file, _ in hops()]

    assert (files[0], files[-1]) == ("app/api/transport.py", "widgets/runs/rows.py")
    assert len(files) <= MOST_HOPS


def test_each_hop_is_in_its_file() -> None:
    """What the page names is defined where it says."""
    for file, name in hops():
        source = (ROOT / file).read_text(encoding="utf-8")

        assert re.search(rf"^\s*(class|def|async def) {name.rpartition('.')[2]}\b", source, re.MULTILINE), (file, name)
