"""Wishes: what of the instructions and inputs can be acted on without a model, and what cannot."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from service.reviewer.checks import RULES
from service.reviewer.vocabulary import WORDS, rules_of, words_in

_CLAUSE: Final = re.compile(r"[;\n!?]|\.(?=\s|$)|,?\s+(?:but|and then|then)\s+")
_VERB: Final = re.compile(
    r"\b(?:(?P<ignore>ignor(?:e|ing)|skip(?:ping)?|leave out|exclud(?:e|ing)|without|except(?: for)?|no need for"
    r"|(?:do not|don'?t)\s+(?:report|mention|list|care about|look at|review|check))"
    r"|(?P<only>only|just|solely|exclusively|focus(?:ing)?(?: only)? on|concentrate on|limit(?:ed)? to)"
    r"|(?P<fix>fix|clean up|tidy|repair)"
    r"|(?P<look>look(?:ing)? (?:at|in|into)|review|check|read|examine|inspect))\b",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"`([^`\n]{1,200})`|(?<![\w/.])((?:[\w.*?\-]+/)+[\w.*?\-]*|\*?[\w\-]+\.\w{1,10})(?![\w/])")
_WHOLE: Final = re.compile(
    r"\b(?:whole|entire|full|complete)\s+(?:\w+\s+)?(?:tree|repo(?:sitory)?|code ?base|project|review)\b|\bevery file\b"
    r"|\ball (?:the )?files\b",
    re.IGNORECASE,
)
_DIFF: Final = re.compile(r"\bonly (?:the )?(?:diff|changes|changed (?:files|lines)|what changed)\b", re.IGNORECASE)
_MECHANICAL: Final = (
    r"white ?space|trailing|blanks|line ?endings?|new ?lines?|formatting|notes|findings|what you can"
    r"|everything you can|them|mechanical|style"
)
_FIX: Final = re.compile(
    rf"(?<!not )(?<!n't )(?<!nt )\b(?:fix|clean(?: up)?|correct|repair|tidy)\b[^.;\n]{{0,60}}\b(?:{_MECHANICAL})\b"
    r"|^\s*(?:please\s+)?fix\s*[.!]?\s*$",
    re.IGNORECASE,
)
_NO_FIX: Final = re.compile(r"\b(?:do not|don'?t|without)\s+(?:fix|chang|edit|touch|correct)", re.IGNORECASE)
_INPUTS: Final = frozenset({"depth", "only", "ignore", "paths", "fix"})
_DEPTHS: Final = {"diff": "diff", "changes": "diff", "full": "tree", "tree": "tree", "whole": "tree"}
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Wishes:
    """How this review differs from the usual one."""

    only: frozenset[str] = frozenset()
    """Rule ids; empty: all of them."""
    ignored: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    """Files, folders or patterns; empty: all of them."""
    ignored_paths: tuple[str, ...] = ()
    depth: str | None = None
    """`tree`, `diff`, or None: whichever fits the branch."""
    fix: bool = False
    asked: tuple[str, ...] = ()
    """Words of the vocabulary and paths that were mentioned, to be answered one by one."""
    understood: tuple[str, ...] = ()
    """Sentences about what is acted on; they may hold foreign text."""
    unclear: tuple[str, ...] = ()
    """Sentences about what is not, and why."""

    def wants(self, rule: str) -> bool:
        """Whether a rule applies in this review."""
        return (not self.only or rule in self.only) and rule not in self.ignored

    def covers(self, path: str) -> bool:
        """Whether a path is to be looked at in this review."""
        inside = not self.paths or any(matches(path, pattern) for pattern in self.paths)
        return inside and not any(matches(path, pattern) for pattern in self.ignored_paths)


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern means a path: the file, a folder above it, a glob, or a bare file name anywhere."""
    bare = pattern.removeprefix("./").rstrip("/")
    if path == bare or path.startswith(f"{bare}/") or fnmatchcase(path, bare):
        return True
    return "/" not in bare and fnmatchcase(path.rpartition("/")[2], bare)


def understand(instructions: str, inputs: dict[str, Any], paths: Collection[str]) -> Wishes:
    """Read the wishes out of free text and inputs; inputs win.

    Args:
        instructions: free text; only phrases such as "only security" or "ignore TODOs in src/" are understood.
        inputs: `depth`, `only`, `ignore`, `paths`, `fix`; anything else is named as not understood.
        paths: all paths of the tree, against which mentioned ones are held.
    """
    wishes = Wishes()
    for clause in _CLAUSE.split(instructions[:20_000])[:500]:
        wishes = _clause(wishes, clause, paths)
    if _WHOLE.search(instructions):
        wishes = replace(wishes, depth="tree")
    elif _DIFF.search(instructions):
        wishes = replace(wishes, depth="diff")
    wishes = replace(wishes, fix=bool(_FIX.search(instructions)) and not _NO_FIX.search(instructions))
    return _in_sentences(_with_inputs(wishes, inputs))


def _clause(wishes: Wishes, clause: str, paths: Collection[str]) -> Wishes:
    """Apply a clause: each verb governs what follows it, up to the next verb."""
    verbs = list(_VERB.finditer(clause))
    ends = [*(verb.start() for verb in verbs[1:]), len(clause)][: len(verbs)]
    kinds: list[tuple[str, str]] = [("", clause[: verbs[0].start()] if verbs else clause)]
    kinds += [(verb.lastgroup or "", clause[verb.end() : end]) for verb, end in zip(verbs, ends, strict=True)]
    for kind, text in kinds:
        wishes = _governed(wishes, kind, text, paths)
    return wishes


def _governed(wishes: Wishes, kind: str, text: str, paths: Collection[str]) -> Wishes:
    mentioned = [found[0] or found[1] for found in _PATH.findall(text)]
    known = tuple(path for path in mentioned[:_MOST] if any(matches(one, path) for one in paths))
    words = words_in(_PATH.sub(" ", text))
    words += [path.lower() for path in mentioned if path.lower() in WORDS]
    unknown = tuple(
        f"{path} is no path of this tree."
        for path in mentioned
        if path not in known and path.lower() not in WORDS and kind and ("/" in path or "*" in path)
    )
    asked = (*wishes.asked, *words, *known)[:_MOST]
    wishes = replace(wishes, asked=asked, unclear=(*wishes.unclear, *unknown)[:_MOST])
    if kind == "fix":
        return wishes  # what is to be fixed says nothing about what is to be looked at
    if kind == "ignore":
        return replace(
            wishes, ignored=wishes.ignored | rules_of(words), ignored_paths=(*wishes.ignored_paths, *known)[:_MOST]
        )
    if kind == "only":
        wishes = replace(wishes, only=wishes.only | rules_of(words))
    return replace(wishes, paths=(*wishes.paths, *known)[:_MOST]) if kind else wishes


def _with_inputs(wishes: Wishes, inputs: dict[str, Any]) -> Wishes:
    unclear = list(wishes.unclear)
    unclear += [
        f"The input {key[:60]} is not one of {', '.join(sorted(_INPUTS))}." for key in inputs if key not in _INPUTS
    ]
    readers: dict[str, Callable[[Wishes, Any], Wishes | None]] = {
        "depth": _depth,
        "only": _only,
        "ignore": _ignore,
        "paths": _paths,
        "fix": _fix,
    }
    for key, read in readers.items():
        if inputs.get(key) is None:
            continue
        changed = read(wishes, inputs[key])
        if changed is None:
            unclear.append(f"The input {key} has a value that means nothing here: {str(inputs[key])[:80]}")
        wishes = changed or wishes
    return replace(wishes, unclear=tuple(unclear[:_MOST]))


def _depth(wishes: Wishes, value: Any) -> Wishes | None:
    depth = _DEPTHS.get(value.lower()) if isinstance(value, str) else None
    return replace(wishes, depth=depth) if depth else None


def _texts(value: Any) -> list[str] | None:
    """A list of words from a list, or from one text with commas; None for anything else."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value) if value.lower() not in WORDS else [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return [item.strip() for item in value if item.strip()][:_MOST]


def _only(wishes: Wishes, value: Any) -> Wishes | None:
    words = [word.lower() for word in _texts(value) or []]
    known = [word for word in words if word in WORDS]
    return replace(wishes, only=rules_of(known)) if known and len(known) == len(words) else None


def _ignore(wishes: Wishes, value: Any) -> Wishes | None:
    items = _texts(value)
    if not items:
        return None
    words = [item.lower() for item in items if item.lower() in WORDS]
    others = tuple(item for item in items if item.lower() not in WORDS)
    return replace(wishes, ignored=wishes.ignored | rules_of(words), ignored_paths=(*wishes.ignored_paths, *others))


def _paths(wishes: Wishes, value: Any) -> Wishes | None:
    items = _texts([value] if isinstance(value, str) else value)
    return replace(wishes, paths=tuple(items)) if items else None


def _fix(wishes: Wishes, value: Any) -> Wishes | None:
    return replace(wishes, fix=value) if isinstance(value, bool) else None


def _in_sentences(wishes: Wishes) -> Wishes:
    """Say what is acted on, so that a reader sees at once whether it is what was meant."""
    said = []
    if wishes.only:
        said.append(f"Only these rules: {', '.join(sorted(wishes.only))}.")
    if wishes.ignored:
        said.append(f"Without these rules: {', '.join(sorted(wishes.ignored))}.")
    if wishes.paths:
        said.append(f"Only these paths: {', '.join(wishes.paths)}.")
    if wishes.ignored_paths:
        said.append(f"Without these paths: {', '.join(wishes.ignored_paths)}.")
    if wishes.depth:
        said.append("The whole tree." if wishes.depth == "tree" else "Only what the branch changed.")
    if wishes.fix:
        said.append("Mechanical faults (blanks at line ends, line endings, the last newline) are fixed.")
    nothing_left = not any(wishes.wants(rule) for rule in RULES)
    unclear = (*wishes.unclear, "Together, these leave no rule to apply.") if nothing_left else wishes.unclear
    return replace(wishes, understood=tuple(said), unclear=unclear)
