"""Foreign text on the page: Markdown without anything active in it, and changes as lines with colours."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
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
_HUNK: Final = re.compile(r"@@ -(\d{1,10})(?:,\d+)? \+(\d{1,10})(?:,\d+)? @@")
_FILE_BYTES: Final = 300
_ROW_BYTES: Final = 45
"""The approximate size of a file of a change without its lines, and of a line without its text."""
_MAX_LINE: Final = 2000
"""Characters that are shown of a line."""
_MAX_COLOURED: Final = 500
"""Characters of a line that gets colours: a longer one was not written by hand."""
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER_SEQUENCES: Final = re.compile(
    r"\x1b\[(?![0-9;]*m)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\"
)
_OWN_LINE: Final = re.compile(r"(?m)^(?=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9.]+Z )")
"""The beginning of a line of the service in a log: no colour of a program continues there."""
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


def markdown(words: str | None) -> Markup:
    """Return Markdown as HTML: no scripts, images, styles or foreign forms; links open without a referrer."""
    rendered = _MARKDOWN.render(words or "")
    clean = nh3.clean(
        rendered,
        tags=set(_TAGS),
        attributes={"a": {"href"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    # They are below a turn's own heading. Characters may have been written as references.
    return Markup(printable(re.sub(r"(</?)h[1-6]>", r"\1h3>", clean)))  # noqa: S704 — just cleaned


def plain(text: str) -> str:
    """Return a program's terminal output without colours and other sequences."""
    return _SGR.sub("", _OTHER_SEQUENCES.sub("", text))


def cut(text: str, limit: int = _MAX_LINE) -> str:
    """Return at most so many characters of a text, and how many more it has."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … {len(text) - limit:,} more characters"


def terminal(text: str, kinds: set[str] | None = None) -> Markup:
    """Return a program's terminal output with its eight colours, but without other sequences.

    `kinds`: the colours at the beginning, and afterwards those at the end.
    """
    markup, kinds = Markup(""), set[str]() if kinds is None else kinds
    for at, part in enumerate(_SGR.split(_OWN_LINE.sub("\x1b[0m", _OTHER_SEQUENCES.sub("", text)))):
        if at % 2 == 0:
            names = " ".join(sorted(kinds))
            markup += (
                Markup("<i class='{}'>{}</i>").format(names, printable(part)) if kinds and part else printable(part)
            )
            continue
        codes = [int(code[:9] or 0) for code in part.split(";")]
        if 38 in codes or 48 in codes:  # noqa: PLR2004 — a palette of 256, or RGB
            continue
        for code in codes:
            if code in {0, 39}:
                kinds.intersection_update({"b"} if code else ())
            elif code == 1:
                kinds.add("b")
            elif code in {*range(30, 38), *range(90, 98)}:
                kinds.intersection_update({"b"})
                kinds.add(f"t{code % 10}")
    return markup


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a change."""

    kind: str
    """`+`, `-`, a blank, or `@` for the head of a hunk."""
    old: int | None
    new: int | None
    text: str


@dataclass(slots=True)
class DiffFile:
    """A file of a change."""

    path: str
    lines: list[DiffLine] = field(default_factory=list)
    additions: int = 0
    deletions: int = 0
    note: str = ""
    """What else changed: its name, its mode, or that it is not text."""


def colour_files(
    files: Iterable[DiffFile], start: int, size: int
) -> Iterator[tuple[DiffFile, list[tuple[DiffLine, Markup]]]]:
    """Yield files with their lines in colours, the first from a line on, until they make `size` bytes of a page."""
    for file in files:
        name = file.path.rpartition("/")[2]
        stem, dot, ending = name.rpartition(".")
        lexer = _lexer_of(f"x{dot}{ending}" if stem and len(ending) < 12 else name[:40])  # noqa: PLR2004
        lines: list[tuple[DiffLine, Markup]] = []
        size -= _FILE_BYTES
        for line in file.lines[start:]:
            if size <= 0:
                break
            lines.append((line, _in_colours(line.text, None if line.kind == "@" else lexer)))
            size -= len(lines[-1][1].encode()) + _ROW_BYTES
        yield file, lines
        if size <= 0:
            return
        start = 0


def diff_files(patch: str) -> list[DiffFile]:
    """Return the files of a patch as git writes it, without renames."""
    files: list[DiffFile] = []
    old = new = 0
    in_hunk = False
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            files.append(DiffFile(_path(line.removeprefix("diff --git "))))
            in_hunk = False
        elif not files:
            continue
        elif line.startswith("@@ ") and (hunk := _HUNK.match(line)):
            old, new, in_hunk = int(hunk[1]), int(hunk[2]), True
            files[-1].lines.append(DiffLine("@", None, None, line))
        elif not in_hunk:
            file = files[-1]
            if line.startswith("new file"):
                file.note = "new"
            elif line.startswith("deleted file"):
                file.note = "deleted"
            elif line.startswith(("old mode", "new mode")):
                file.note = f"{file.note}, {line}".strip(", ")
            elif line.startswith(("GIT binary patch", "Binary files")):
                file.note = f"{file.note}, not text".strip(", ")
        elif line.startswith(("+", "-", " ")):
            is_new, is_old = line[0] != "-", line[0] != "+"
            row = DiffLine(line[0], old if is_old else None, new if is_new else None, line[1:])
            files[-1].lines.append(row)
            files[-1].additions += not is_old
            files[-1].deletions += not is_new
            old, new = old + is_old, new + is_new
        elif line.startswith("\\"):
            files[-1].lines.append(DiffLine("@", None, None, line[2:]))
    return files


def _path(names: str) -> str:
    """Return the path in `a/PATH b/PATH`, which may have blanks, and is quoted where it has special characters."""
    path = names[len(names) // 2 + 1 :]
    if not path.startswith('"'):
        return path.removeprefix("b/")
    quoted = path[1:-1].encode().decode("unicode_escape", "replace")
    return quoted.encode("latin-1", "replace").decode("utf-8", "replace").removeprefix("b/")


@lru_cache(256)
def _lexer_of(ending: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(ending, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _in_colours(line: str, lexer: Lexer | None) -> Markup:
    line = cut(line)
    if lexer is None or len(line) > _MAX_COLOURED:
        return escape(printable(line))
    spans = []
    for kind, value in lexer.get_tokens(line):
        colour = next((name for known, name in _COLOURS if kind in known), None)
        text = escape(printable(value))
        spans.append(text if colour is None else Markup("<i class={}>{}</i>").format(colour, text))
    return Markup("").join(spans)
