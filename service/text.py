"""Text from outside, made safe for terminals, logs and labels; and parts of JSON from outside, of any type."""

import re
import unicodedata
from typing import Any, Final

_PICTURES: Final = 0x2400
"""The code point of `␀`, the picture of NUL; those of the other control characters follow in the same order."""

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
    "|(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]"
)
"""Characters that count as printable and show nothing; one of the last two chooses the look of a symbol."""
_CLOSING: Final = re.compile(
    r"\b(close[sd]?|closing|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?|reopen(?:s|ed|ing)?)\b:?"
    r"(?=[\W_]*(?:issues?\W+)?(?:https?://|g[hl]-\d|\[issue:|[\w./-]{0,200}[#!]\d))",
    re.IGNORECASE,
)
"""A word by which GitHub, GitLab or Forgejo closes or reopens the issue that follows."""


def printable(text: str) -> str:
    """Return the text with visible symbols for control and format characters, which a terminal would obey."""
    if text.isascii() and text.isprintable():
        return text
    safe = _BLANK.sub("\N{REPLACEMENT CHARACTER}", text)
    return "".join(mark if mark in "\n\t" or mark.isprintable() else _picture(mark) for mark in safe)


def one_line(text: str) -> str:
    return printable(text).replace("\n", _picture("\n")).replace("\t", " ")


def shown_in_one_line(text: str) -> str:
    """Return a name if lists show it as it is in one line (`ValueError`: it is blank, or has what does not show)."""
    if not text.strip():
        raise ValueError("it is blank")
    # Blanks and joiners of other scripts.
    bad = (mark for mark in text if not (mark in "\u200c\u200d" or unicodedata.category(mark) == "Zs"))
    if (mark := next((mark for mark in bad if one_line(mark) != mark), None)) is not None:
        name = unicodedata.name(mark, "a line break, a tab or another control character")
        raise ValueError(f"it has a character that does not show: {name}; remove it")
    return text


def storable(text: str) -> str:
    """Return the text without NUL and half characters, which git and databases refuse."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def not_closing(text: str) -> str:
    """Return the text with "see" after each word that would make a code host close an issue: "Fixes, see #7".

    Within a title, a description or a commit message, the words that a merge obeys come right before a reference.
    """
    return _CLOSING.sub(r"\1, see", text)


def fence_of(text: str, least: int = 3) -> str:
    """Return the backticks around a block of code that the text cannot end; `least` is 1 for code in a line."""
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _picture(mark: str) -> str:
    if ord(mark) < ord(" "):
        return chr(_PICTURES + ord(mark))
    return "\N{REPLACEMENT CHARACTER}"


def table(value: object) -> dict[str, Any]:
    """Return a JSON object from outside; empty if the value is something else."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a JSON list from outside; empty if the value is something else."""
    return value if isinstance(value, list) else []
