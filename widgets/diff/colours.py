"""Colours within a line: its syntax, read from the whole file, and the changed words."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pygments.token import _TokenType

ColourSpan = tuple[int, int, str]
"""The beginning and the end of a span, in characters, and its tone."""
Colours = Sequence[Sequence[ColourSpan]]
"""The coloured spans of each line of a file."""
Spans = tuple[tuple[int, int], ...]
"""Parts of a line: the beginning and the end of each, in characters."""

MOST_BYTES: Final = 300_000
"""A larger file is not coloured."""
MOST_CHARACTERS: Final = 2_000
"""A file with a longer line is not coloured: lexers take seconds for one."""
MOST_WORDS: Final = 300
LEAST_ALIKE: Final = 0.35
"""The similarity from which two lines are compared word by word."""
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")


def colours(blob: bytes, name: str) -> Colours:
    """The syntax of a file, by its name; empty if it is not known or would take too long. Runs in a thread."""
    if len(blob) > MOST_BYTES or any(len(line) > MOST_CHARACTERS for line in blob.split(b"\n")):
        return ()
    from pygments.lexers import get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(name.rsplit("/", 1)[-1], stripnl=False, ensurenl=False)
    except ClassNotFound:
        return ()
    lines: list[list[ColourSpan]] = [[]]
    column = 0
    # One character for each, so that the columns stay those of the file.
    text = blob.decode("utf-8", "replace").replace("\r", " ").replace("\ufeff", " ")
    for token, words in lexer.get_tokens(text):
        tone = _tone(token)
        for number, part in enumerate(words.split("\n")):
            if number:
                lines.append([])
                column = 0
            if tone and part:
                lines[-1].append((column, column + len(part), tone))
            column += len(part)
    return lines


def _tone(token: "_TokenType") -> str:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    tones = {
        Comment: "comment",
        Keyword: "keyword",
        Operator.Word: "keyword",
        String: "string",
        Number: "number",
        Name.Function: "function",
        Name.Class: "function",
        Name.Decorator: "function",
        Name.Tag: "keyword",
    }
    return next((tone for kind, tone in tones.items() if token in kind), "")


@lru_cache(maxsize=512)
def changed_words(old: str, new: str) -> tuple[Spans, Spans]:
    """The parts in which an old and a new line differ; none if the lines have too little in common."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        return (), ()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < LEAST_ALIKE:
        return (), ()
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return _spans(before, [edit[1:3] for edit in edits]), _spans(after, [edit[3:5] for edit in edits])


def _spans(words: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Spans:
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    return tuple((ends[begin], ends[end]) for begin, end in ranges if begin < end)
