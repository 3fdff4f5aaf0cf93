"""The focus: the topics and paths a review reports on. Blockers are reported whatever it says."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from service.reviewer.checks.secrets import excerpt
from service.reviewer.finding import Rule, Severity, Topic

WORDS: Final = {topic.value: topic for topic in Topic} | {
    "secrets": Topic.SECURITY,
    "vulnerabilities": Topic.SECURITY,
    "bugs": Topic.CORRECTNESS,
    "coverage": Topic.TESTS,
    "documentation": Topic.DOCS,
}
"""Focus words, in lower case, and the topics they mean."""
_DEPTHS: Final = ("diff", "full")
_INPUTS: Final = ("depth", "focus", "paths")
_CLAUSE: Final = re.compile(r"[,;\n!?]|\.(?=\s|$)|\bbut\b")
_NEGATED: Final = re.compile(r"n't\b|\b(?:no|not|ignore|skip|without|except|exclude|leave out)\b", re.IGNORECASE)
_WORD: Final = re.compile(rf"(?<![\w/.-])(?:{'|'.join(WORDS)})(?![\w/-]|\.\w)", re.IGNORECASE)
_PATH: Final = re.compile(r"(?:[\w.\-]{1,100}/){1,20}[\w.\-]{0,100}|[\w\-]{1,100}\.\w{1,10}")
_WHOLE: Final = re.compile(r"\b(?:whole|entire|full)\s+(?:tree|repo(?:sitory)?|code ?base|project)\b", re.IGNORECASE)
_TEXT: Final = 20_000
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Focus:
    """How this review differs from the usual one."""

    topics: frozenset[Topic] = frozenset()
    """Empty: all of them."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns; empty: all of them."""
    whole_tree: bool = False
    """False: only the branch's changes, if there are any."""
    unclear: tuple[str, ...] = ()
    """Sentences about inputs that cannot be used; they may hold foreign text."""

    def wants(self, rule: Rule, path: str) -> bool:
        """Whether a finding is reported."""
        inside = not self.paths or any(matches(path, pattern) for pattern in self.paths)
        return rule.severity is Severity.BLOCKER or (inside and (not self.topics or rule.topic in self.topics))


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern means a path: the file, a folder above it, a glob, or a bare file name anywhere."""
    bare = pattern.removeprefix("./").rstrip("/")
    if path == bare or path.startswith(f"{bare}/") or fnmatchcase(path, bare):
        return True
    return "/" not in bare and fnmatchcase(path.rpartition("/")[2], bare)


def read_focus(instructions: str, inputs: dict[str, object], known: Collection[str]) -> Focus:
    """Find focus words and paths in free text and inputs; inputs win.

    A clause with a negation, such as "skip the docs", names nothing; nor does a path that is not known. The inputs
    `focus` and `paths` are each a text or a list of texts; `depth` is `diff` or `full`.
    """
    unknown = [key for key in inputs if key not in _INPUTS][:_MOST]
    unclear = [f"The input {excerpt(key, 60)} is not one of {', '.join(_INPUTS)}." for key in unknown]
    text = "\n".join(clause for clause in _CLAUSE.split(instructions[:_TEXT]) if not _NEGATED.search(clause))
    topics = frozenset(WORDS[word.lower()] for word in _WORD.findall(text))
    named = (path.rstrip("/.").removeprefix("./") for path in _PATH.findall(text))
    paths = tuple(dict.fromkeys(path for path in named if path in known))
    given = {key: inputs[key] for key in _INPUTS if inputs.get(key) is not None}
    depth = given.get("depth", "full" if _WHOLE.search(text) else "diff")
    if "focus" in given:
        words = [word.lower() for word in _texts(given["focus"])]
        topics = frozenset(WORDS[word] for word in words if word in WORDS)
        if not words or any(word not in WORDS for word in words):
            unclear.append(f"The input focus takes {', '.join(WORDS)}; it was {excerpt(given['focus'], 80)}.")
    if "paths" in given:
        paths = _texts(given["paths"])
        if not paths:
            unclear.append(f"The input paths takes a path or a list of paths; it was {excerpt(given['paths'], 80)}.")
    if depth not in _DEPTHS:
        unclear.append(f"The input depth takes {' or '.join(_DEPTHS)}; it was {excerpt(depth, 80)}.")
    return Focus(topics, paths[:_MOST], depth == "full", tuple(unclear[:_MOST]))


def _texts(value: Any) -> tuple[str, ...]:
    """The words of a text with commas or of a list; nothing for anything else."""
    items = re.split(r"[,\s]+", value[:_TEXT]) if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return ()
    return tuple(item.strip() for item in items if item.strip())[:_MOST]
