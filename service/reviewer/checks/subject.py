"""What checks work on: one file, or the whole tree with the files under review."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from service.reviewer.finding import Finding, Rule
from service.reviewer.source import Source
from service.reviewer.tree import Entry


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit, and which of its files are under review."""

    entries: Mapping[str, Entry]
    """All paths of the commit, earlier reviews included."""
    folders: frozenset[str]
    """All folders, the root as the empty string."""
    whole: bool
    """True: all files are under review; False: those that a branch changed."""
    gone: frozenset[str]
    """Paths that the branch deleted or renamed away."""
    reviewed: tuple[Entry, ...]
    """The files under review, links and submodules included."""
    sources: Mapping[str, Source]
    """The contents of those files that were read."""
    read: Callable[[str], Source | None]
    """The content of any other file; None when it is too large, missing, or time is up."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A check that needs one file only."""

    rules: tuple[Rule, ...]
    look: Callable[[Source], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """A check that needs to know other files, too."""

    rules: tuple[Rule, ...]
    look: Callable[[Tree], Iterator[Finding]]
