import csv
import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.output import Column, Format, Output

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

    output.listing("runs", [entry], [entry], ())

    assert json.loads(out.getvalue()) == {"runs": [entry], "count": 1}
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())


def test_ndjson_is_one_object_a_line() -> None:
    """Without the document around it."""
    output, out, _ = printer(Format.NDJSON)

    output.listing("runs", [{"a": "x\ny"}, {"a": 2}], [1, 2], ())

    assert [json.loads(line) for line in out.getvalue().splitlines()] == [{"a": "x\ny"}, {"a": 2}]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@cmd", "\t=1"])
def test_no_csv_cell_is_a_formula(text: str) -> None:
    """A branch is named by whoever may push; a spreadsheet must not run it."""
    output, out, _ = printer(Format.CSV)

    output.listing("runs", [], [{"branch": text, "stuck": True}], COLUMNS)

    header, row = csv.reader(StringIO(out.getvalue()))
    assert header == ["branch", "stuck"]
    assert row[0].startswith(("'", "␉"))
    assert row[1] == "true"


def test_nothing_to_show_is_said_to_people_only() -> None:
    """On stderr: a script that reads the table gets an empty one."""
    output, out, err = printer(Format.TABLE)

    output.listing("runs", [], [], COLUMNS, empty="No run matches.")

    assert out.getvalue() == ""
    assert err.getvalue() == "No run matches.\n"
