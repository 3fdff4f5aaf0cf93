import re

from hypothesis import given
from hypothesis import strategies as st

from app.cli.output import Column, cell_width, fields, lines, shorten

COLUMNS: tuple[Column[tuple[str, str]], ...] = (
    Column("status", lambda row: row[0], tone=lambda row: "bad"),
    Column("branch", lambda row: row[1], flexible=True),
)


def test_columns_are_aligned_whatever_the_script() -> None:
    """A wide character counts for two cells, a combining one for none."""
    rows = [("ok", "main"), ("完成", "x"), ("e\u0301", "y")]

    drawn = list(lines(COLUMNS, rows, width=None, colour=False))

    assert {cell_width(line[: line.rindex(" ")]) for line in drawn[1:]} == {7}


@given(st.lists(st.tuples(st.sampled_from(["ok", "failed"]), st.text(max_size=120)), max_size=5))
def test_no_line_is_wider_than_the_terminal_nor_commands_it(rows: list[tuple[str, str]]) -> None:
    """Foreign text is shortened and made printable."""
    for line in lines(COLUMNS, rows, width=30, colour=False):
        assert cell_width(line) <= 30
        assert line.isprintable() or "\u3000" in line or "\xa0" in line or not re.search(r"[\x00-\x1f\x7f-\x9f]", line)


def test_colour_is_only_around_the_words() -> None:
    """Without its escape codes a coloured table is the plain one."""
    rows = [("failed", "main")]

    coloured = "\n".join(lines(COLUMNS, rows, width=80, colour=True))

    assert "\x1b[31m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == "\n".join(lines(COLUMNS, rows, width=80, colour=False))


def test_a_shortened_text_says_so() -> None:
    """The ellipsis takes the place of what is missing, and a wide character is not cut in half."""
    assert shorten("feature/login", 8) == "feature…"
    assert shorten("完成完成", 4) == "完…"


def test_hostile_values_of_a_record_are_shown_harmless() -> None:
    """An escape sequence arrives as a picture of itself."""
    [line] = fields([("branch", "x\x1b[2J\u202ey")])

    assert "\x1b" not in line
    assert "\u202e" not in line
