"""Words that no source file, test or document holds, and one call that few may make."""

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"\b(whoever|nobody|somebody|likewise|meanwhile|shall|anew|(?:is|are) no (?:duration|time|date|number|word)s?)\b",
    re.IGNORECASE,
)
SOURCES = ("app", "widgets", "storage", "service")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config.example.toml")
BUILD = ("pyproject.toml", "Makefile", ".ci/run")


def texts() -> list[Path]:
    """Every source file, document and build file of ours; the demo's repositories belong to their own authors."""
    sources = (path for package in SOURCES for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".tcss"})
    documents = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in DOCUMENTS + BUILD)]
    return [*(path for path in sources if "samples" not in path.parts), *documents]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """A test's names, comments and docstrings, each with its line; other strings are input."""
    begins = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_docstring = begins and token.type == tokenize.STRING
            if is_docstring or token.type in {tokenize.NAME, tokenize.COMMENT}:
                yield token.start[0], token.string
            if token.type not in {tokenize.COMMENT, tokenize.NL}:
                begins = token.type in {tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def test_no_source_and_no_document_holds_a_banned_word() -> None:
    """Names, strings, comments and documents say it plainly: who does what, and what to do about it."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BANNED.search(line.replace("_", " "))
    ]

    assert found == []


def test_no_test_holds_a_banned_word_but_as_input() -> None:
    """Input may hold one, as a user's name does; docstrings, comments and names may not."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {text.strip()}"
        for folder in ("tests", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if BANNED.search(path.read_text(encoding="utf-8").replace("_", " "))
        for number, text in prose(path)
        if BANNED.search(text.replace("_", " "))
    ]

    assert found == []


def test_the_words_are_recognised_where_they_stand() -> None:
    """In any case and within a name; a word that merely contains one is none of them."""
    assert BANNED.search("Nobody knows")
    assert BANNED.search("told_by_somebody".replace("_", " "))
    assert BANNED.search("'x' is no duration")
    assert BANNED.search("a shallow copy") is None


def test_what_waits_for_a_paint_asks_whether_its_widget_is_still_open() -> None:
    """Only calls that touch no child, and the app's own, go past `after_refresh`."""
    calls = {
        str(path.relative_to(ROOT))
        for path in texts()
        if path.suffix == ".py" and ".call_after_refresh(" in path.read_text(encoding="utf-8")
    }

    assert calls == {
        "app/console/app.py",
        "widgets/after_refresh.py",
        "widgets/forms/inputs.py",
        "widgets/runs/rows.py",
    }
