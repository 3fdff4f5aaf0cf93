import csv
import json
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.cli import Format
from app.cli.output import Column, Output

COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("branch", lambda row: str(row["branch"]), "branch"),
    Column("only for people", lambda row: "x"),
    Column("stuck", lambda row: "", "stuck", lambda row: row.get("stuck")),
)


class Utf8(StringIO):
    """A stream that reports its encoding, as a terminal does."""

    encoding = "utf-8"


def printer(form: Format) -> tuple[Output, StringIO, StringIO]:
    out, err = Utf8(), Utf8()
    return Output(form, out, err, None, colour=False), out, err


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_json_is_unchanged_and_has_no_control_characters(entry: dict[str, Any]) -> None:
    """JSON output decodes to exactly what the service sent, and has no character that a terminal obeys."""
    output, out, _ = printer(Format.JSON)

    output.listing("runs", [entry], ())

    assert json.loads(out.getvalue()) == {"runs": [entry], "count": 1}
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())


def test_ndjson_has_one_object_per_line_and_csv_no_formula() -> None:
    """Anyone who can push can name a branch, and a spreadsheet must not run it. Without rows, stdout stays empty."""
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
