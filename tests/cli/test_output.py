import csv
import json
import re
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.cli import Format
from app.cli.output import Column, Output, Table, cell_width

COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("branch", lambda row: str(row["branch"]), "branch"),
    Column("only for people", lambda row: "x"),
    Column("stuck", lambda row: "", "stuck", lambda row: row.get("stuck")),
)


class Utf8(StringIO):
    """A stream that says how it encodes, as a terminal does."""

    encoding = "utf-8"


def printer(form: Format) -> tuple[Output, StringIO, StringIO]:
    out, err = Utf8(), Utf8()
    return Output(form, out, err, None, colour=False), out, err


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_json_survives_and_moves_no_cursor(entry: dict[str, Any]) -> None:
    """Whatever the service sent comes out equal, and as characters that a terminal only shows."""
    output, out, _ = printer(Format.JSON)

    output.listing("runs", [entry], ())

    assert json.loads(out.getvalue()) == {"runs": [entry], "count": 1}
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())


def test_ndjson_is_one_object_a_line_and_no_csv_cell_is_a_formula() -> None:
    """Anyone who may push names a branch; a spreadsheet must not run it. Of nothing, stdout has nothing."""
    ndjson, lines, _ = printer(Format.NDJSON)
    ndjson.listing("runs", [{"a": "x\ny"}, {"a": 2}], ())
    table, out, err = printer(Format.TABLE)
    table.listing("runs", [], COLUMNS, empty="No run matches.")
    formulas = ("=1+1", "+1", "-1", "@cmd", "\t=1")
    spreadsheet, cells, _ = printer(Format.CSV)
    spreadsheet.listing("runs", [{"branch": text, "stuck": True} for text in formulas], COLUMNS)
    header, *rows = csv.reader(StringIO(cells.getvalue()))

    assert [json.loads(line) for line in lines.getvalue().splitlines()] == [{"a": "x\ny"}, {"a": 2}]
    assert (out.getvalue(), err.getvalue()) == ("", "No run matches.\n")
    assert (header, {row[1] for row in rows}, len(rows)) == (["branch", "stuck"], {"true"}, 5)
    assert all(row[0].startswith(("'", "␉")) for row in rows)


TABLE: tuple[Column[tuple[str, str]], ...] = (
    Column("status", lambda row: row[0], tone=lambda row: "bad"),
    Column("branch", lambda row: row[1], flexible=True),
)


@given(st.lists(st.tuples(st.sampled_from(["ok", "failed"]), st.text(max_size=120)), max_size=5))
def test_no_line_is_wider_than_the_terminal_nor_commands_it(rows: list[tuple[str, str]]) -> None:
    """Foreign text is shortened and made printable."""
    for line in Table(TABLE, 30, colour=False).lines(rows):
        assert cell_width(line) <= 30
        assert line.isprintable() or "\u3000" in line or "\xa0" in line or not re.search(r"[\x00-\x1f\x7f-\x9f]", line)

    output, out, _ = printer(Format.TABLE)
    output.record({}, [("branch", "x\x1b[2J\u202ey")])
    assert not {"\x1b", "\u202e"} & set(out.getvalue())
