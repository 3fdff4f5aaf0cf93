"""Words by which instructions name rules: the rules' own ids, their topics, and what people call them."""

import re
from typing import Final

from service.reviewer.checks import RULES
from service.reviewer.finding import Topic

_MEANT: Final = {
    "bugs": (Topic.CORRECTNESS,),
    "mistakes": (Topic.CORRECTNESS,),
    "vulnerabilities": (Topic.SECURITY,),
    "style": (Topic.HYGIENE,),
    "formatting": ("trailing-whitespace", "mixed-line-endings", "no-final-newline"),
    "whitespace": ("trailing-whitespace", "mixed-line-endings", "no-final-newline"),
    "line endings": ("mixed-line-endings",),
    "newlines": ("no-final-newline", "mixed-line-endings"),
    "complexity": (Topic.DESIGN,),
    "structure": (Topic.DESIGN,),
    "documentation": (Topic.DOCS,),
    "links": ("broken-link", "dead-symlink", "symlink-outside"),
    "secrets": ("secret-token", "secret-private-key", "secret-in-url", "secret-assignment", "env-file"),
    "credentials": ("secret-token", "secret-private-key", "secret-in-url", "secret-assignment", "env-file"),
    "passwords": ("secret-in-url", "secret-assignment", "env-file"),
    "todos": ("todo",),
    "fixme": ("todo",),
    "fixmes": ("todo",),
    "prints": ("print-left",),
    "print statements": ("print-left",),
    "imports": ("unused-import",),
    "unused imports": ("unused-import",),
    "syntax": ("python-syntax", "python-syntax-warning", "data-syntax", "repeated-key"),
    "conflicts": ("conflict-marker",),
    "merge conflicts": ("conflict-marker",),
    "duplicates": ("duplicate-function",),
    "duplication": ("duplicate-function",),
    "exceptions": ("bare-except", "swallowed-exception"),
    "missing tests": ("missing-test", "no-tests"),
    "test coverage": ("missing-test", "no-tests"),
    "long functions": ("long-function",),
    "long files": ("long-file",),
    "large files": ("large-file",),
    "binaries": ("build-product", "large-file"),
    "requirements": ("unpinned-requirement",),
}


def _table() -> dict[str, frozenset[str]]:
    table = {rule: frozenset({rule}) for rule in RULES}
    for topic in Topic:
        table[topic.value] = frozenset(rule.id for rule in RULES.values() if rule.topic is topic)
    for word, meant in _MEANT.items():
        table[word] = frozenset().union(*(table[str(name)] for name in meant))
    return table


WORDS: Final = _table()
"""Word, in lower case, to the ids of the rules it means."""

_ANY: Final = re.compile(
    r"(?<![\w/.-])(" + "|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True)) + r")(?![\w/-])",
    re.IGNORECASE,
)


def words_in(text: str) -> list[str]:
    """The words of the vocabulary in a text, in their order, in lower case."""
    return [found.lower() for found in _ANY.findall(text)]


def rules_of(words: list[str]) -> frozenset[str]:
    """The ids of all the rules that the words mean."""
    return frozenset().union(*(WORDS[word] for word in words))
