from tests.widgets.stage import staged
from widgets.forms.inputs import ParagraphInput

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG = "\U0001f1e9\U0001f1ea"


ACUTE = "e\N{COMBINING ACUTE ACCENT}"
LIGHTNING = "\N{HIGH VOLTAGE SIGN}\N{VARIATION SELECTOR-16}"


async def test_what_is_drawn_as_one_is_passed_and_deleted_as_one() -> None:
    """Half a flag or half a family would be sent otherwise; the cursor goes over the ends of lines."""
    text = ParagraphInput()
    async with staged(text) as (_, pilot):
        for drawn in (FLAG, FAMILY, ACUTE, LIGHTNING, "é"):
            text.text = f"a{FLAG}{drawn}z"
            text.move_cursor((0, 0))
            await pilot.press("end", "left", "backspace")
            assert text.text == f"a{FLAG}z"
            await pilot.press("left", "delete", "left", "right", "backspace")
            assert text.text == "z"

        text.text = "one\ntwo"
        text.move_cursor((0, 0))
        await pilot.press("down", "home", "left", "right", "backspace")
        assert text.text == "onetwo"
