"""The survey: every file under review is read once, every check is asked, and what was left out is written down."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from service.reviewer.checks import CODE_CHECKS, PATH_CHECKS, TEXT_CHECKS, TREE_CHECKS
from service.reviewer.checks.paths import folders_of
from service.reviewer.checks.subject import FileCheck, Tree, TreeCheck
from service.reviewer.finding import Finding, Identified, identify, normalised
from service.reviewer.git import Blobs
from service.reviewer.limits import CODE_SHARE, FILE_BYTES, FINDINGS_A_FILE, TEXT_SHARE, TOTAL_BYTES
from service.reviewer.scope import Scope, gone
from service.reviewer.source import PYTHON, Source
from service.reviewer.tree import SUBMODULE, SYMLINK, Entry
from service.reviewer.wishes import Wishes


@dataclass(frozen=True, slots=True)
class Survey:
    """What the checks said."""

    found: tuple[Identified, ...]
    """Everything, whether the branch brought it or not."""
    older: frozenset[str]
    """Fingerprints of what was there before the branch."""
    sources: Mapping[str, Source]
    """The files whose content was checked."""
    too_large: int
    unread: int
    """Files that time or the limit on bytes left unread."""
    unparsed: frozenset[str]
    """Python files among the sources for which there was no time to parse them."""
    unjudged: frozenset[str]
    """Rules that could not be applied to the tree."""
    broken: tuple[str, ...]
    """Checks that failed, and on which file."""


class Surveyor:
    """One pass over the files of a scope; `spent` tells which part of the time is used up, 1 being all of it."""

    def __init__(
        self, scope: Scope, entries: dict[str, Entry], wishes: Wishes, blobs: Blobs, spent: Callable[[], float]
    ) -> None:
        self._scope = scope
        self._entries = entries
        self._wishes = wishes
        self._blobs = blobs
        self._spent = spent
        self._bytes = 0
        self._broken: list[str] = []
        self._found: list[Identified] = []
        self._older: set[str] = set()

    def survey(self, reviewed: tuple[Entry, ...], *, whole_tree_known: bool) -> Survey:
        """Check the entries.

        Args:
            reviewed: files, links and submodules under review.
            whole_tree_known: False leaves out the checks that must know every path.

        Raises:
            GitError: the repository stopped answering.
        """
        files = [entry for entry in reviewed if entry.mode not in {SYMLINK, SUBMODULE}]
        small = [entry for entry in files if entry.size <= FILE_BYTES]
        sources = self._sources(small)
        unparsed = {path for path, source in sources.items() if not self._code(source)}
        unjudged = self._tree(reviewed, sources, known=whole_tree_known)
        if len(sources) < len(small):
            unjudged |= _rules(TREE_CHECKS)  # they say less about a part of the files
        return Survey(
            found=tuple(self._found),
            older=frozenset(self._older),
            sources=sources,
            too_large=len(files) - len(small),
            unread=len(small) - len(sources),
            unparsed=frozenset(unparsed),
            unjudged=unjudged,
            broken=tuple(self._broken),
        )

    def _sources(self, entries: list[Entry]) -> dict[str, Source]:
        """Read the files and check their text, as long as there is time."""
        sources: dict[str, Source] = {}
        for entry in entries:
            source = self._read(entry.path) if self._spent() < TEXT_SHARE else None
            if source is not None:
                self._file(source, TEXT_CHECKS)
                source.forget()
                sources[entry.path] = source
        return sources

    def _code(self, source: Source) -> bool:
        """Check a Python file; False when there is no time left for it."""
        if source.suffix not in PYTHON:
            return True
        if self._spent() > CODE_SHARE:
            return False
        self._file(source, CODE_CHECKS)
        source.forget()
        return True

    def _file(self, source: Source, checks: tuple[FileCheck, ...]) -> None:
        """Ask checks about a file as it is and, if it was there before the branch, as it was."""
        found = list(identify(self._ask(source, checks)))
        self._found += found
        old = self._before(source) if found else None
        if old is not None:
            before = {one.fingerprint for one in identify(self._ask(old, checks))}
            self._older |= before & {one.fingerprint for one in found}

    def _read(self, path: str) -> Source | None:
        """The content of a path at the head; None when it is large, no file, or the budget is spent."""
        entry = self._entries.get(path)
        if entry is None or entry.mode == SUBMODULE or entry.size > FILE_BYTES:
            return None
        if self._spent() > 1 or self._bytes + entry.size > TOTAL_BYTES:
            return None
        self._bytes += entry.size
        data = self._blobs.read(entry.oid)
        return None if data is None else Source(path, data, entry.mode)

    def _ask(self, source: Source, checks: tuple[FileCheck, ...]) -> list[Finding]:
        """What checks of single files say, up to the limit for a file."""
        asked = (check for check in checks if any(self._wishes.wants(rule.id) for rule in check.rules))
        every = (finding for check in asked for finding in self._guarded(check.look(source), source.path))
        return list(islice((finding for finding in every if self._wishes.wants(finding.rule.id)), FINDINGS_A_FILE))

    def _guarded(self, findings: Iterable[Finding], subject: str) -> Iterator[Finding]:
        try:
            yield from findings
        except Exception as error:  # noqa: BLE001 — one check's fault must not cost the review; it is named there
            self._broken.append(f"A check failed on {subject}: {type(error).__name__}.")

    def _before(self, source: Source) -> Source | None:
        """The file as it was before the branch, under its present name; None when it was not there."""
        change = self._scope.changes.get(source.path)
        if change is None or change.old_oid is None:
            return None
        data = self._blobs.read(change.old_oid)
        return None if data is None else Source(source.path, data, source.mode)

    def _was_there(self, finding: Finding, sources: Mapping[str, Source]) -> bool:
        """Whether a finding that took more than one file stands on a line that is older than the branch."""
        if finding.fresh or not finding.anchor or finding.path not in sources:
            return False
        old = self._before(sources[finding.path])
        return old is not None and normalised(finding.anchor) in {normalised(line) for line in old.lines}

    def _tree(self, reviewed: tuple[Entry, ...], sources: Mapping[str, Source], *, known: bool) -> frozenset[str]:
        """Ask the checks of the tree; returns the rules that could not be applied."""
        if not known:
            return _rules(PATH_CHECKS) | _rules(TREE_CHECKS)
        tree = Tree(
            self._entries,
            folders_of(self._entries),
            self._scope.kind == "tree",
            gone(self._scope),
            reviewed,
            sources,
            self._read,
        )
        self._whole(tree, PATH_CHECKS)
        if self._spent() < 1:
            self._whole(tree, TREE_CHECKS)
        return _rules(TREE_CHECKS) if self._spent() > 1 else frozenset()

    def _whole(self, tree: Tree, checks: tuple[TreeCheck, ...]) -> None:
        every = (finding for check in checks for finding in self._guarded(check.look(tree), "the tree"))
        found = list(identify(finding for finding in every if self._wishes.wants(finding.rule.id)))
        self._found += found
        self._older |= {one.fingerprint for one in found if self._was_there(one.finding, tree.sources)}


def _rules(checks: tuple[TreeCheck, ...]) -> frozenset[str]:
    return frozenset(rule.id for check in checks for rule in check.rules)
