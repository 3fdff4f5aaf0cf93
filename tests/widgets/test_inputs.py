import pytest

from tests.widgets.stage import staged
from widgets.forms.inputs import ParagraphInput

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG = "\U0001f1e9\U0001f1ea"


ACUTE = "e\N{COMBINING ACUTE ACCENT}"
LIGHTNING = "\N{HIGH VOLTAGE SIGN}\N{VARIATION SELECTOR-16}"


@pytest.mark.parametrize("drawn", [FLAG, FAMILY, ACUTE, LIGHTNING, "é"])
async def test_what_is_drawn_as_one_is_passed_and_deleted_as_one(drawn: str) -> None:
    """Half a flag or half a family would be sent otherwise."""
    text = ParagraphInput()
    text.text = f"a{FLAG}{drawn}z"
    async with staged(text) as (_, pilot):
        await pilot.press("end", "left", "backspace")
        assert text.text == f"a{FLAG}z"

        await pilot.press("left", "delete", "left", "right", "backspace")
        assert text.text == "z"


async def test_the_cursor_goes_over_the_ends_of_lines() -> None:
    """Beside no character."""
    text = ParagraphInput()
    text.text = "one\ntwo"
    async with staged(text) as (_, pilot):
        await pilot.press("down", "home", "left", "right", "backspace")

        assert text.text == "onetwo"
