"""The README's pictures, which `make recording` takes on the demo."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = DOCS / "pictures"
FRAME = re.compile(rb"ANMF.{16}(...)", re.DOTALL)
"""A frame of a WebP: its size, place, width and height come before its duration in milliseconds."""


def test_every_picture_is_shown_somewhere() -> None:
    """None is unused."""
    shown = "".join(path.read_text("utf-8") for path in (DOCS.parent / "README.md", *DOCS.rglob("*.md")))

    assert {path.name for path in PICTURES.iterdir()} == {"film.webp", "review.svg", "page.png"}
    assert all(f"pictures/{path.name}" in shown for path in PICTURES.iterdir())


def test_the_film_is_short() -> None:
    """It takes 12 to 15 seconds."""
    frames = FRAME.findall((PICTURES / "film.webp").read_bytes())

    assert 12_000 <= sum(int.from_bytes(duration, "little") for duration in frames) <= 15_000


def test_a_still_fetches_nothing() -> None:
    """It needs no font from elsewhere."""
    assert "url(http" not in (PICTURES / "review.svg").read_text("utf-8")
