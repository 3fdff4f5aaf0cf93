"""Foreign text on the page: Markdown without anything active in it, and changes as lines with colours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments import token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from service.text import printable

_TAGS: Final = (
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em"),
    *("strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td"),
)
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_HEAD: Final = re.compile(r'diff --git "?a/(.*?)"? "?b/(.*)')
_LONGEST_COLOURED: Final = 500
"""Characters of a line that gets colours: a longer one was not written by a person."""
_COLOURS: Final = (
    (token.Comment, "c"),
    (token.Keyword, "k"),
    (token.Literal.String, "s"),
    (token.Literal.Number, "n"),
    (token.Name.Function, "f"),
    (token.Name.Class, "f"),
    (token.Name.Decorator, "f"),
    (token.Name.Tag, "k"),
)


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def markdown(words: str | None) -> Markup:
    """Return Markdown as HTML: no scripts, images, styles or foreign forms; links open without a referrer."""
    made = _markdown().render(printable(words or ""))
    clean = nh3.clean(
        made,
        tags=set(_TAGS),
        attributes={"a": {"href"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    # Headings within a page's own would confuse its outline.
    return Markup(re.sub(r"(</?)h[1-6]>", r"\1h4>", clean))  # noqa: S704 — just cleaned


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a change."""

    kind: str
    """`+`, `-`, a blank, or `@` for the head of a hunk."""
    old: int | None
    new: int | None
    text: Markup


@dataclass(slots=True)
class DiffFile:
    """A file of a change."""

    path: str
    lines: list[DiffLine] = field(default_factory=list)
    additions: int = 0
    deletions: int = 0
    note: str = ""
    """What else changed: its name, its mode, or that it is not text."""


def paths(patch: str) -> set[str]:
    """Return the files that a patch leaves in place, as far as their names are plain."""
    return set(re.findall(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE))


def diff_files(patch: str) -> list[DiffFile]:
    """Return the files of a patch as git writes it."""
    made: list[DiffFile] = []
    lexer: Lexer | None = None
    old = new = 0
    in_hunk = False
    for line in patch.split("\n"):
        head = _HEAD.fullmatch(line)
        if head and (not in_hunk or not line.startswith((" ", "+", "-"))):
            made.append(DiffFile(head[2].removesuffix('"')))
            lexer, in_hunk = _lexer(made[-1].path), False
        elif not made:
            continue
        elif found := _HUNK.match(line):
            old, new, in_hunk = int(found[1]), int(found[2]), True
            made[-1].lines.append(DiffLine("@", None, None, escape(printable(line))))
        elif not in_hunk:
            _note(made[-1], line)
        elif line.startswith(("+", "-", " ")):
            mark, shown = line[0], _coloured(line[1:], lexer)
            is_new, is_old = mark != "-", mark != "+"
            made[-1].lines.append(DiffLine(mark, old if is_old else None, new if is_new else None, shown))
            made[-1].additions += mark == "+"
            made[-1].deletions += mark == "-"
            old, new = old + is_old, new + is_new
        elif line.startswith("\\"):
            made[-1].lines.append(DiffLine("@", None, None, escape(line[2:])))
    return made


def _note(file: DiffFile, line: str) -> None:
    if line.startswith("new file"):
        file.note = "new"
    elif line.startswith("deleted file"):
        file.note = "deleted"
    elif line.startswith(("old mode", "new mode")):
        file.note = f"{file.note}, {line}".strip(", ")
    elif line.startswith(("GIT binary patch", "Binary files")):
        file.note = f"{file.note}, not text".strip(", ")


@lru_cache(256)
def _lexer_of(ending: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(ending, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _lexer(path: str) -> Lexer | None:
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return _lexer_of(f"x{dot}{ending}" if stem and len(ending) < 12 else name[:40])  # noqa: PLR2004


def _coloured(line: str, lexer: Lexer | None) -> Markup:
    if lexer is None or len(line) > _LONGEST_COLOURED:
        return escape(printable(line))
    return Markup("").join(_spans(line, lexer))


def _spans(line: str, lexer: Lexer) -> Iterator[Markup]:
    for kind, value in lexer.get_tokens(line):
        colour = next((name for known, name in _COLOURS if kind in known), None)
        shown = escape(printable(value))
        yield shown if colour is None else Markup("<span class={}>{}</span>").format(colour, shown)
