"""A review becomes lines of text that cannot act or slow the view down."""

import sys
from concurrent.futures import ThreadPoolExecutor

from mdurl._encode import encode_cache

from tests.widgets.stage import staged
from widgets.results.review import MAX_BLOCK_LINES, ReviewView, review_lines

REVIEW = """\
# Review

Two **findings** in `app.py`, see [the docs](javascript:alert(1)) ![logo](http://x/y.png).

1. First
   - nested item that is long enough to be broken between its words
2. Second

> quoted

| place | what |
|---|---|
| a.py:1 | wrong |

```py
x = 1
```
"""


def texts(text: str, width: int = 40) -> list[str]:
    return ["".join(piece.text for piece in line.pieces).rstrip() for line in review_lines(text, width)]


def test_markdown_reads_as_text() -> None:
    """Lists, quotes, tables and code keep their shape; a link's address follows it."""
    assert texts(REVIEW) == [
        "Review",
        "",
        "Two findings in app.py, see [the",
        "docs](javascript:alert(1)) [image: logo]",
        "(http://x/y.png).",
        "",
        "1. First",
        "   • nested item that is long enough to",
        "     be broken between its words",
        "2. Second",
        "",
        "│ quoted",
        "",
        "place   what",
        "a.py:1  wrong",
        "",
        "x = 1",
    ]


def test_two_reviews_are_laid_out_at_once() -> None:
    """The second one starts before the parser has filled its tables."""
    expected = ["a (http://b/~)"]
    switched_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(20):
                encode_cache.clear()
                laid_out = [threads.submit(texts, "[a](http://b/~)") for _ in range(4)]
                assert [lines.result() for lines in laid_out] == [expected] * 4
    finally:
        sys.setswitchinterval(switched_s)


HOSTILE = {
    "escapes": "\x1b[2J # \x9b31m [/nope] \u202e `\x07`\n\n```\n\x1b]52;c;eA==\x07\n```\n",
    "a wide table": "|" + "x|" * 3_000 + "\n|" + "-|" * 3_000 + "\n|" + "y|" * 3_000 + "\n",
    "a long table": "|a|\n|-|\n" + "|b|\n" * 5_000,
    "nesting": "> " * 3_000 + "deep\n" + "- " * 3_000 + "deep",
    "long code": "```\n" + "x\n" * 5_000 + "```\n",
    "a long word": "w" * 100_000,
}


async def test_a_hostile_review_is_escaped() -> None:
    """Long tables and code are cut."""
    view = ReviewView()
    async with staged(view, (60, 20)) as (app, pilot):
        for name, text in HOSTILE.items():
            view.take(review_lines(text, 58))
            await pilot.press("G")

            assert "".join(app.lines).isprintable(), name
            assert 0 < view.total < 10 * MAX_BLOCK_LINES, name


def test_only_our_own_comments_are_hidden() -> None:
    """Other comments are shown, since nobody would read hidden text."""
    text = "one <!-- runwarden:x --> two\n\n<!-- runwarden-review [\n] --> three\n\n<!-- theirs -->\n"
    shown = "\n".join("".join(piece.text for piece in line.pieces) for line in review_lines(text, 60))

    assert "runwarden" not in shown
    assert [word in shown for word in ("one", "two", "three", "<!-- theirs -->")] == [True] * 4
