"""The survey: it reads and checks every file under review once, and notes which files it left out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from service.reviewer.checks import files, python, secrets, text
from service.reviewer.finding import ReviewFinding, identify
from service.reviewer.git import FILE_BYTES, SUBMODULE, SYMLINK, Blobs, GitFiles, TreeEntry
from service.reviewer.review_file import REVIEWS
from service.reviewer.source import SourceFile

SOURCE_CHECKS: Final = (*secrets.CHECKS, *text.CHECKS, *python.CHECKS)
BUDGET_S: Final = 7.0
"""Seconds of processor time for the checks; files left out then are counted in the review."""
_READING: Final = 0.85
"""The part of the budget after which no further file is read; the rest is for the checks of the tree."""
_TOTAL_BYTES: Final = 64 * 1024 * 1024
_FINDINGS_PER_FILE: Final = 200


@dataclass(frozen=True, slots=True)
class ReviewScope:
    """The files under review."""

    head: str
    base: str | None
    """The commit it is compared with; None for the whole tree."""
    reason: str
    changes: Mapping[str, str | None]
    """The paths that the branch changed, with the blob before, if any; empty for the whole tree."""


def choose_scope(git: GitFiles, default_branch: str | None, head: str) -> ReviewScope:
    """The branch's changes since it left the default branch, or the whole tree if that is not known.

    Raises:
        GitReadError: a commit cannot be read.
    """
    if default_branch is None:
        return ReviewScope(head, None, "not compared with another branch", {})
    default = git.commit(f"refs/remotes/origin/{default_branch}")
    base = git.merge_base(default, head) if default else None
    if base is None:
        problem = "shares no history with this one" if default else "is not in this checkout"
        return ReviewScope(head, None, f"the default branch {default_branch} {problem}", {})
    changes = {path: old for path, old in git.changes(base, head).items() if not path.startswith(REVIEWS)}
    if not changes:
        return ReviewScope(head, None, f"the branch does not differ from {default_branch}", {})
    return ReviewScope(head, base, f"compared with {default_branch} where the branch left it", changes)


@dataclass(frozen=True, slots=True)
class Survey:
    """The results of all checks."""

    found: tuple[ReviewFinding, ...]
    """All findings, including those that the branch did not introduce."""
    older: frozenset[str]
    """Fingerprints of findings older than the branch."""
    sources: Mapping[str, SourceFile]
    """The files whose content was checked."""
    judged: frozenset[str]
    """The paths under review that were read: an earlier finding in one of these is gone unless it was found again."""
    unread: int
    """Files that are too large, or that the limits on time and bytes left out."""
    tree_judged: bool
    """False: the checks of the tree could not read all they need, or the tree has too many paths."""
    broken: tuple[str, ...]
    """Checks that failed, and on which file."""


@dataclass(slots=True)
class Surveyor:
    """One pass over the files of a scope."""

    scope: ReviewScope
    entries: dict[str, TreeEntry]
    known: frozenset[str] | None
    """All files and folders; None when there are too many, which leaves out the checks of the tree."""
    blobs: Blobs
    spent: Callable[[], float]
    """Returns the used part of the time, from 0 to 1."""
    _bytes: int = 0
    _limited: bool = False
    _broken: list[str] = field(default_factory=list)
    _found: list[ReviewFinding] = field(default_factory=list)
    _older: set[str] = field(default_factory=set)

    def survey(self) -> Survey:
        """Check the entries of the scope.

        Raises:
            GitReadError: the repository stopped answering.
        """
        paths = self.entries if self.scope.base is None else sorted(self.scope.changes)
        reviewed = [self.entries[path] for path in paths if path in self.entries and not path.startswith(REVIEWS)]
        readable = [entry.path for entry in reviewed if entry.mode not in {SYMLINK, SUBMODULE}]
        sources = {path: source for path in readable if (source := self._check(path))}
        unread = set(readable) - sources.keys()
        if self.known is not None:
            tree = files.Tree(self.entries, reviewed, sources, self._read)
            every = (finding for check in files.CHECKS for finding in self._guarded(check(tree), "the tree"))
            self._found += identify(every)
        return Survey(
            found=tuple(self._found),
            older=frozenset(self._older),
            sources=sources,
            judged=frozenset(entry.path for entry in reviewed) - unread,
            unread=len(unread),
            tree_judged=self.known is not None and not self._limited and not self._broken,
            broken=tuple(self._broken),
        )

    def _check(self, path: str) -> SourceFile | None:
        """Read and check a file, if there is time; findings that were there before the branch are marked as older."""
        source = self._read(path) if self.spent() < _READING else None
        if source is None:
            return None
        found = list(identify(self._findings(source)))
        self._found += found
        before = self.scope.changes.get(path)
        data = self.blobs.read(before) if found and before else None
        if data is not None:
            self._older |= {one.fingerprint for one in identify(self._findings(SourceFile(path, data)))}
        source.forget()
        return source

    def _read(self, path: str) -> SourceFile | None:
        """The content of a path at the head; None when it is large, not a file, or the budget is spent."""
        entry = self.entries.get(path)
        if entry is None or entry.mode == SUBMODULE or entry.size > FILE_BYTES:
            return None
        if self.spent() > 1 or self._bytes + entry.size > _TOTAL_BYTES:
            self._limited = True
            return None
        self._bytes += entry.size
        data = self.blobs.read(entry.oid)
        return None if data is None else SourceFile(path, data)

    def _findings(self, source: SourceFile) -> list[ReviewFinding]:
        checks = [check(source) for check in SOURCE_CHECKS]
        if self.known is not None:
            checks.append(files.broken_links(source, self.known))
        guarded = (self._guarded(findings, source.path) for findings in checks)
        return list(islice(chain.from_iterable(guarded), _FINDINGS_PER_FILE))

    def _guarded(self, findings: Iterable[ReviewFinding], subject: str) -> Iterator[ReviewFinding]:
        try:
            yield from findings
        except Exception as error:  # noqa: BLE001 — one check's fault must not cost the review, which reports it
            self._broken.append(f"A check failed on {subject}: {type(error).__name__}.")
