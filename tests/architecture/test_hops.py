"""The way from an answer to a row is as short as docs/architecture.md says, and leads through what it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_STEPS = 10
HELPERS = {"app/api/paging.py", "storage/cache/prepared_runs.py", "storage/cache/read_runs.py"}


def section() -> str:
    """What the page says of the way."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text.partition("## From an answer to a row")[2].partition("\n## ")[0]


def hops() -> list[tuple[str, str]]:
    """The file and the name of each numbered hop."""
    return re.findall(r"^\d+\. `([^`]+)`: `([^`]+)`", section(), flags=re.MULTILINE)


def test_a_row_takes_at_most_ten_steps() -> None:
    """The list begins where bytes arrive and ends where lines are painted; the section names no others but helpers."""
    files = [file for file, _ in hops()]

    assert (files[0], files[-1]) == ("app/api/transport.py", "widgets/runs/rows.py")
    assert len(files) <= MOST_STEPS
    assert set(re.findall(r"[a-z_/]+\.py", section())) == {*files, *HELPERS, "app/schedule.py", "app/polling.py"}


def test_each_hop_is_in_its_file() -> None:
    """What the page names is defined where it says."""
    for file, name in hops():
        source = (ROOT / file).read_text(encoding="utf-8")

        assert re.search(rf"^\s*(class|def|async def) {name.rpartition('.')[2]}\b", source, re.MULTILINE), (file, name)
