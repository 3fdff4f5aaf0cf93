"""What README and docs show is what the tests of the console accepted."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))


@pytest.mark.parametrize("name", sorted(PICTURES["SCENES"]))
def test_a_picture_is_as_it_was_accepted(name: str) -> None:
    """After a change of the screens, `make pictures` takes them anew."""
    assert (DOCS / "pictures" / f"{name}.svg").read_text("utf-8") == PICTURES["picture"](name)


def test_every_picture_is_shown_somewhere() -> None:
    """None lies there for nobody."""
    told = "".join(path.read_text("utf-8") for path in (DOCS.parent / "README.md", *DOCS.glob("*.md")))

    assert {path.stem for path in (DOCS / "pictures").iterdir()} == set(PICTURES["SCENES"])
    assert all(f"pictures/{name}.svg" in told for name in PICTURES["SCENES"])
