"""A list of rows of any height: the cursor is on rows alone, stays on its own, and opens what leads on."""

from collections.abc import Callable

from textual.content import Content
from textual.widgets import OptionList

from tests.widgets.stage import staged
from widgets.kit.choice_lists import LeadList, LeadRow

SHORT = (40, 8)


def title(text: str) -> LeadRow:
    return LeadRow(Content(text))


def row(name: str, lines: int = 1, *, leads: bool = True) -> LeadRow:
    return LeadRow(Content("\n".join(f"{name}{number}" for number in range(lines))), name, leads=leads)


def drawn(*rows: LeadRow) -> Callable[[int], list[LeadRow]]:
    """For any width, below a title that names it."""
    return lambda width: [title(f"head {width > 0}"), *rows]


async def test_the_cursor_is_on_rows_and_opens_those_that_lead_on() -> None:
    """It passes titles over; all of a row is seen, and what stands above the first one."""
    rows = LeadList(id="rows")
    async with staged(rows, SHORT) as (stage, pilot):
        rows.show(drawn(title("One"), row("a", 2), title("Two"), row("b", 3), title("Three"), row("c", 4, leads=False)))
        await pilot.press("down", "enter")
        assert {each.option_id for each in stage.heard if isinstance(each, OptionList.OptionSelected)} == {"b"}

        await pilot.press("down", "enter")
        assert [line.strip() for line in stage.lines[-4:]] == ["c0", "c1", "c2", "c3"]
        assert {each.option_id for each in stage.heard if isinstance(each, OptionList.OptionSelected)} == {"b"}
        assert rows.check_action("select", ()) is None

        await pilot.press("home")
        assert [line.strip() for line in stage.lines[:3]] == ["head True", "One", "a0"]


async def test_the_cursor_stays_on_its_row_or_on_the_first_one() -> None:
    """Where its row is gone, it is on the nearest; a row that is looked for is found once it is there."""
    rows = LeadList(id="rows")
    async with staged(rows, SHORT) as (_, pilot):
        rows.show(drawn(row("b"), row("c")))
        rows.show(drawn(row("a"), row("b"), row("c")))
        assert rows.row == row("a")

        await pilot.press("down")
        rows.show(drawn(row("new"), row("a"), row("b"), row("c")))
        assert rows.row == row("b")
        rows.show(drawn(row("new"), row("a"), row("c")))
        assert rows.row == row("c")
        rows.seek("d")
        rows.show(drawn(row("a"), row("d")))
        assert rows.row == row("d")
        rows.show(drawn())
        assert rows.row is None
