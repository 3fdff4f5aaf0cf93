"""The checkout under review, read with git: no hook, filter, pager or program of the repository runs."""

import os
import re
from pathlib import Path
from typing import Final

from service.execution.git import GitCommandError, GitRunner

REVIEWS: Final = "reviews/"
"""The folder of all reviews, whose files are not reviewed themselves."""
_OFFLINE: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_ALLOW_PROTOCOL": "none"}
# With this option on submodules, git reads no `.gitmodules`: the repository could make it fail with that file.
_DIFF: Final = (
    *("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-commit-id"),
    "--ignore-submodules=none",
)
_HUNK: Final = re.compile(r"^@@ -[0-9,]+ \+([0-9]+)(?:,([0-9]+))? @@", re.MULTILINE)


class Checkout:
    """A repository's working tree as of its last commit, and the changes of its branch."""

    def __init__(self, root: Path, default_branch: str | None) -> None:
        """Compare with the commit where the branch left the default branch, or count the whole tree as changed."""
        self.root = root
        given = {"GIT_DIR": os.environ["GIT_DIR"]} if "GIT_DIR" in os.environ else {}
        self._git = GitRunner(root, 120.0, _OFFLINE | given)
        self.head = self._ask("rev-parse", "HEAD^{commit}").strip()
        self.sizes: dict[str, int] = {}
        """The size of each regular file, by path; links and submodules are left out."""
        for record in self._ask("ls-tree", "-r", "-l", "-z", "--full-tree", self.head).split("\0"):
            about, _, path = record.partition("\t")
            # A content that was not fetched has no size.
            if about.startswith("100") and (size := about.split()[3]).isdecimal():
                self.sizes[path] = int(size)
        self.reason = "not compared with another branch"
        self.base, self.changes = "", dict[str, tuple[int, int] | None]()
        """Lines added and deleted, by path; None: the file is binary."""
        if default_branch:
            try:
                self.base = self._ask("merge-base", f"refs/remotes/origin/{default_branch}", self.head).strip()
                self.changes = self._changes()
                self.reason = f"the branch does not differ from {default_branch}"
            except GitCommandError:
                self.reason = f"{default_branch} is not in this checkout, or shares no history with this branch"
        self._lines: dict[str, frozenset[int]] = {}
        self.is_whole = not self.changes
        if self.is_whole:
            self.base = self._ask("hash-object", "-t", "tree", "--stdin").strip()  # a tree without a file
            self.changes = self._changes()
        else:
            self.reason = f"compared with {default_branch} where the branch left it"

    def has_changed(self, path: str, line: int | None, end: int | None) -> bool:
        """Whether the branch added or changed one of these lines of a file; without a line, the file."""
        if self.is_whole or line is None or path not in self.changes:
            return path in self.changes
        if path not in self._lines:
            patch = self._ask(*_DIFF, "-p", "-U0", self.base, self.head, "--", f":(literal,top){path}")
            spans = ((int(hunk[1]), int(hunk[2] or "1")) for hunk in _HUNK.finditer(patch))
            self._lines[path] = frozenset(number for start, length in spans for number in range(start, start + length))
        return not self._lines[path].isdisjoint(range(line, (end or line) + 1))

    def _changes(self) -> dict[str, tuple[int, int] | None]:
        found: dict[str, tuple[int, int] | None] = {}
        for record in self._ask(*_DIFF, "--numstat", "-z", self.base, self.head).split("\0"):
            added, _, rest = record.partition("\t")
            deleted, _, path = rest.partition("\t")
            if path and not path.startswith(REVIEWS):
                found[path] = None if added == "-" else (int(added), int(deleted))
        return found

    def _ask(self, *arguments: str) -> str:
        # Each missing content would cost a process that cannot fetch it.
        offline = ("-c", "remote.not-fetched.promisor=false")
        return self._git.feed("", *offline, *arguments, work_tree=self.root)
