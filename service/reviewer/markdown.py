"""Text from outside, made safe for the review's Markdown: it shows as it is, and is never markup."""

import re
import unicodedata
from typing import Final

from service.reviewer.checks.secrets import redacted

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SPECIAL: Final = re.compile(
    r"[\\`*\[\]<&~|$@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
"""Characters with a meaning anywhere in a line; an underscore within a word has none."""
_START: Final = re.compile(r"^(\d*)([#+\-=>:.)])")
"""Characters with a meaning only at the beginning of a line."""
_FENCES: Final = re.compile(r"`+")
_READ: Final = 10_000
_TEXT: Final = 300
_QUOTED_LINES: Final = 40
_QUOTED_LINE: Final = 500


def visible(text: str, limit: int = _TEXT) -> str:
    """The text in one line of printable characters: controls and invisible ones as `<U+000A>`, secrets redacted."""
    whole = redacted(text[:_READ])  # before cutting: half a secret would not be recognized
    shown = "".join(_shown(character) for character in whole[:limit])
    return shown + "…" if len(whole) > limit else shown


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\t" or category == "Zs":
        return " "
    return f"<U+{ord(character):04X}>" if category in _HIDDEN else character


def escaped(text: str, limit: int = _TEXT) -> str:
    """The text for a paragraph; only characters that Markdown or HTML could read as markup are escaped."""
    return _START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\g<0>", visible(text.strip(), limit)))


def code(text: str, limit: int = _TEXT) -> str:
    """The text as a code span, its fence longer than any run of backticks within."""
    shown = visible(text, limit)
    if not shown.strip():
        return "`(blank)`"
    longest = max((len(run) for run in _FENCES.findall(shown)), default=0)
    padding = " " if shown[0] in "` " or shown[-1] in "` " else ""
    fence = "`" * (longest + 1)
    return f"{fence}{padding}{shown}{padding}{fence}"


def quoted(text: str) -> str:
    """The text as a block quote that keeps its lines; those beyond a screenful are counted."""
    lines = text.strip().splitlines() or [""]
    shown = [f"> {escaped(line, _QUOTED_LINE)}" if line.strip() else ">" for line in lines[:_QUOTED_LINES]]
    if len(lines) > _QUOTED_LINES:
        shown.append(f"> *({len(lines) - _QUOTED_LINES} more lines)*")
    # Two blanks at the end of a line are Markdown's line break, which an empty line does not need.
    return "\n".join(line if line == ">" else f"{line}  " for line in shown).rstrip()
