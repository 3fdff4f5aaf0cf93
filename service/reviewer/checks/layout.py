"""Layout of text: blanks at line ends, line endings, the last newline, the encoding, the executable bit."""

from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

BLANKS: Final = Rule(
    "trailing-whitespace",
    Severity.NOTE,
    Topic.HYGIENE,
    "Invisible differences make noise in every later diff.",
    "Let the editor strip them, or ask this reviewer to fix it.",
)
MIXED: Final = Rule(
    "mixed-line-endings",
    Severity.NOTE,
    Topic.HYGIENE,
    "Tools disagree about such a file, and whole-file diffs follow.",
    "Use one kind, and say so in .gitattributes; this reviewer can fix it.",
)
NO_NEWLINE: Final = Rule(
    "no-final-newline",
    Severity.NOTE,
    Topic.HYGIENE,
    "The next line added shows up as two changed lines, and `cat` glues files together.",
    "End the file with a newline; this reviewer can fix it.",
)
ENCODING: Final = Rule(
    "not-utf8",
    Severity.NOTE,
    Topic.HYGIENE,
    "Tools that read text as UTF-8 fail or show replacement signs.",
    "Convert the file to UTF-8.",
)
NO_SHEBANG: Final = Rule(
    "executable-without-shebang",
    Severity.MINOR,
    Topic.HYGIENE,
    "The file is marked as a program, but the system does not know what should run it.",
    "Add a first line such as `#!/usr/bin/env python3`, or clear the bit: git update-index --chmod=-x.",
)

_MARKDOWN: Final = frozenset({".md", ".markdown"})
_LITERAL: Final = frozenset({".patch", ".diff", ".snap", ".svg", ".raw", ".eml", ".ipynb", ".csv", ".tsv"})
"""Kinds in which blanks and line ends are content, or written by a program."""
_SELF_STARTING: Final = frozenset({".exe", ".bat", ".cmd", ".ps1"})


def blank_ended(source: Source) -> list[int]:
    """The 1-based lines that end in blanks; the two spaces that break a line in Markdown are none."""
    text = source.text.replace("\r\n", "\n")
    if not (" \n" in text or "\t\n" in text or text.endswith((" ", "\t"))):
        return []
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.rstrip(" \t")
        is_break = source.suffix in _MARKDOWN and bare and line == bare + "  "
        if line != bare and not is_break:
            found.append(number)
    return found


def is_mixed(data: bytes) -> bool:
    """Whether some lines end in CR LF and others in LF."""
    both = data.count(b"\r\n")
    return 0 < both < data.count(b"\n")


def _look(source: Source) -> Iterator[Finding]:
    if source.binary or not source.data:
        return
    if not source.utf8:
        yield Finding(ENCODING, source.path, 0, "Some bytes are no UTF-8.")
    if source.executable and not source.data.startswith(b"#!") and source.suffix not in _SELF_STARTING:
        yield Finding(NO_SHEBANG, source.path, 1, "Mode 100755 and no `#!` line.")
    if source.fixture or source.foreign or source.suffix in _LITERAL:
        return
    ended = blank_ended(source)
    if ended:
        yield Finding(BLANKS, source.path, ended[0], f"{len(ended)} line{'s' if len(ended) > 1 else ''} in this file.")
    if is_mixed(source.data):
        yield Finding(MIXED, source.path, 0, "Both CR LF and LF end lines here.")
    if not source.data.endswith(b"\n"):
        yield Finding(NO_NEWLINE, source.path, len(source.lines), "The last line has no end.")


CHECKS: Final = (FileCheck((BLANKS, MIXED, NO_NEWLINE, ENCODING, NO_SHEBANG), _look),)
