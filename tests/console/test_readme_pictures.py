"""What README and docs show is what the tests of the console accepted."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))
RECORDED = {"demo.gif", "review.svg"}
DELAYS = re.compile(rb"\x21\xf9\x04.(..).\x00", re.DOTALL)


@pytest.mark.parametrize("name", sorted(PICTURES["SCENES"]))
def test_a_picture_is_as_it_was_accepted(name: str) -> None:
    """After a change of the screens, `make pictures` takes them again."""
    assert (DOCS / "pictures" / f"{name}.svg").read_text("utf-8") == PICTURES["picture"](name)


def test_every_picture_is_shown_somewhere() -> None:
    """None is unused."""
    told = "".join(path.read_text("utf-8") for path in (DOCS.parent / "README.md", *DOCS.rglob("*.md")))

    there = {path.name for path in (DOCS / "pictures").iterdir()}
    assert there == {f"{name}.svg" for name in PICTURES["SCENES"]} | RECORDED | {"page.png"}
    assert all(f"pictures/{name}" in told for name in there)


def test_what_was_recorded_is_small_and_fetches_nothing() -> None:
    """By `make recording`, on the demo: 20 to 40 seconds below a megabyte; pictures need no fonts from elsewhere."""
    moving = (DOCS / "pictures" / "demo.gif").read_bytes()
    # Each frame's delay, in hundredths of a second, stands in its graphic control extension.
    seconds = sum(int.from_bytes(found, "little") for found in DELAYS.findall(moving)) / 100

    assert moving.startswith(b"GIF89a")
    assert len(moving) < 1_000_000
    assert 20 <= seconds <= 40
    for name in RECORDED - {"demo.gif"}:
        assert "url(http" not in (DOCS / "pictures" / name).read_text("utf-8")
