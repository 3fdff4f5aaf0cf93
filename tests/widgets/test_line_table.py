"""A list of rows of any height: the cursor is on rows alone, stays on its own, and opens what leads on."""

from collections.abc import Callable

import pytest

from tests.widgets.stage import staged
from widgets.line_table import MARK, Block, LeadList

SHORT = (40, 8)


def title(text: str) -> Block:
    return Block((((text, "title"),),))


def row(name: str, lines: int = 1, *, leads: bool = True) -> Block:
    return Block(tuple(((f"{name}{number}", "plain"),) for number in range(lines)), name, leads=leads)


def drawn(*blocks: Block) -> Callable[[int], list[Block]]:
    """For any width, below a head."""
    return lambda width: [title(f"head {width > 0}"), *blocks]


async def test_the_cursor_is_on_rows_and_opens_those_that_lead_on() -> None:
    """It passes titles over; all of a row is seen, and what stands above the first one."""
    rows = LeadList(id="rows")
    async with staged(rows, SHORT) as (stage, pilot):
        rows.show(drawn(title("One"), row("a", 2), title("Two"), row("b", 3), title("Three"), row("c", 4, leads=False)))
        await pilot.press("down", "enter")
        assert {each.key for each in stage.heard if isinstance(each, LeadList.Chosen)} == {"b"}

        await pilot.press("down", "enter")
        assert [line.strip() for line in stage.lines[-4:]] == ["▌ c0", "▌ c1", "▌ c2", "▌ c3"]
        assert {each.key for each in stage.heard if isinstance(each, LeadList.Chosen)} == {"b"}
        assert rows.check_action("choose", ()) is None

        await pilot.press("pageup", "home")
        assert [line.strip() for line in stage.lines[:3]] == ["head True", "One", "▌ a0"]


async def test_the_cursor_stays_on_its_row_once_it_was_moved() -> None:
    """Until then it is on the first one; where its row is gone, it is on the nearest."""
    rows = LeadList(id="rows")
    async with staged(rows, SHORT) as (_, pilot):
        rows.show(drawn(row("b"), row("c")))
        rows.show(drawn(row("a"), row("b"), row("c")))
        assert rows.block == row("a")

        await pilot.press("down")
        rows.show(drawn(row("new"), row("a"), row("b"), row("c")))
        assert rows.block == row("b")
        rows.show(drawn(row("new"), row("a"), row("c")))
        assert rows.block == row("c")
        rows.seek("d")
        rows.show(drawn(row("a"), row("d")))
        assert rows.block == row("d")
        rows.show(drawn())
        assert rows.block is None


@pytest.mark.parametrize("height", ["1fr", "auto"])
async def test_lines_that_fit_only_beside_a_scroll_bar(height: str) -> None:
    """They are drawn the same each time: the bar that their number brings, or takes away, does not change it again."""
    rows = LeadList(id="rows")

    def draw(width: int) -> list[Block]:
        return [title("head"), *(row(f"{n}") for n in range(SHORT[1] - (width < widest)))]

    async with staged(rows, SHORT) as (_, pilot):
        rows.styles.height, rows.styles.max_height = height, "100%"
        widest, totals = rows.content_region.width - MARK, []
        for _ in range(3):
            rows.show(draw)
            await pilot.pause()
            totals.append(rows.total)

    assert len(set(totals)) == 1
