"""A review's findings lead to a file and a line."""

import pytest

from app.results.review import findings

REVIEW = """# Review of `agent/x`

See README.md:1 for more.

## Findings

### `app/code.py`

- **major** `eval` line 12: `eval` of what a request says
- **note** `todo`: no owner

```
app/other.py:3: this is code
```

### Advice

- not a finding

## More

1. [critical] `src/a-b.ts:7:3` - wrong
* Low: lib/x.c:9
"""


def test_both_ways_of_writing_are_understood() -> None:
    """A path as a heading, and a path with its line; code is left alone."""
    found = [(each.path, each.line, each.severity, each.at) for each in findings(REVIEW)]
    texts = [each.text for each in findings(REVIEW)]

    assert found == [
        ("README.md", 1, None, 2),
        ("app/code.py", 12, "major", 8),
        ("app/code.py", None, "note", 9),
        ("src/a-b.ts", 7, "blocker", 21),
        ("lib/x.c", 9, "note", 22),
    ]
    assert texts[:3] == ["See README.md:1 for more.", "`eval`: `eval` of what a request says", "`todo`: no owner"]
    assert texts[3:] == ["wrong", "lib/x.c:9"]


@pytest.mark.parametrize("piece", ["", "#", "`", "a.", "- ", "x/", "- a.b:1\n", "[`a.b:"])
def test_no_text_takes_long_or_yields_more_than_a_thousand(piece: str) -> None:
    """Lines are cut before they are searched."""
    assert len(findings(piece * 50_000 + ":1")) <= 1_000
