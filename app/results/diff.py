"""A git patch as files, hunks and lines: pure, line by line on demand, and trusting nothing in the patch."""

import re
import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from storage.records.results import SUBMODULE_MODE, ChangedFile, ChangeKind

HEADER: Final = ord("d")
"""The kind of a line outside of every hunk. Others: `@`, ` `, `+`, `-` and `\\` (no newline at the end)."""
HUNK: Final = ord("@")
_HUNK: Final = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_INDEX: Final = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?")
_ESCAPE: Final = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED: Final = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_MAX_HEADER: Final = 10_000
"""Bytes of a header's line that are read: paths are shorter."""
_STEP: Final = 4_096


@dataclass(slots=True)
class Hunk:
    """One hunk; its lines are those of the patch from `line` (its `@@`) up to `end`."""

    line: int
    end: int


@dataclass(slots=True)
class FilePatch:
    """One file of a patch: its lines and its header. It grows while the patch is being read."""

    line: int
    """The first line of the file in the patch, from 0."""
    end: int
    hunks: list[Hunk] = field(default_factory=list)
    additions: int = 0
    deletions: int = 0
    is_binary: bool = False
    names: dict[str, str] = field(default_factory=dict)
    """The file's names, by the header line that gives the name."""
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The file's name; the old one if it was deleted."""
        names = (self.names.get(key) for key in ("rename to", "copy to", "+++", "---", "new"))
        return next((name for name in names if name is not None), "")

    def changed_file(self) -> ChangedFile:
        """The patch's facts of the file so far."""
        facts = self.facts
        kind = self.kind
        mode = facts.get("mode")
        return ChangedFile(
            self.path,
            kind,
            self.names.get(f"{'rename' if kind == 'renamed' else 'copy'} from"),
            additions=None if self.is_binary else self.additions,
            deletions=None if self.is_binary else self.deletions,
            is_binary=self.is_binary,
            old_blob=unless_zeros(facts.get("old")),
            new_blob=unless_zeros(facts.get("new")),
            old_mode=facts.get("old mode") or facts.get("deleted file mode") or mode,
            new_mode=facts.get("new mode") or facts.get("new file mode") or mode,
        )

    @property
    def kind(self) -> ChangeKind:
        """The patch's effect on the file."""
        facts = self.facts
        if SUBMODULE_MODE in facts.values():
            return "submodule"
        if "new file mode" in facts or "deleted file mode" in facts:
            return "added" if "new file mode" in facts else "deleted"
        if "rename to" in self.names or "copy to" in self.names:
            return "renamed" if "rename to" in self.names else "copied"
        if self.hunks:  # A patch that git did not write only has /dev/null for it.
            if "---" not in self.names:
                return "added"
            return "deleted" if "+++" not in self.names else "modified"
        if "old mode" in facts and not self.is_binary:
            return "mode"
        return "modified"


class Patch:
    """A patch, indexed from its start as far as requested: one thread reads ahead while another displays."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.files: list[FilePatch] = []
        self.problem = ""
        """Where the patch is cut off or damaged: a sentence for the user."""
        self.is_complete = not data
        self.kinds = bytearray()
        """The kind of each line, see `HEADER`; the length is the number of lines read so far."""
        self._offsets = array("Q")
        self._numbers = {ord("-"): array("I"), ord("+"): array("I")}
        self._at = 0
        self._lock = threading.Lock()
        self._steps = self._read()

    def read(self, lines: int | None = None) -> None:
        """Read on until so many lines, or all of them, are known; call it on a thread for more than a screenful."""
        while not self.is_complete and (lines is None or len(self.kinds) < lines):
            with self._lock:  # Locked for one step only: a screen must not wait for the thread that reads to the end.
                self.is_complete = next(self._steps, None) is None

    def line(self, number: int, limit: int = 4_096) -> bytes:
        """A line that was read, without its newline, cut after `limit` bytes."""
        start = self._offsets[number]
        end = self.data.find(b"\n", start, start + limit)
        return self.data[start : start + limit if end < 0 else end]

    def numbers(self, number: int) -> tuple[int | None, int | None]:
        """The line's number in the old and in the new file."""
        kind = self.kinds[number]
        old, new = (numbers[number] for numbers in self._numbers.values())
        return (old if kind in b" -" else None, new if kind in b" +" else None)

    def changed_files(self) -> tuple[ChangedFile, ...]:
        """All files of the patch; reads all of it."""
        self.read()
        return tuple(file.changed_file() for file in self.files)

    def _read(self) -> Iterator[bool]:
        while self._at < len(self.data):
            end = self.data.find(b"\n", self._at, self._at + _MAX_HEADER)
            line = self.data[self._at : self._at + _MAX_HEADER if end < 0 else end]
            if head := _HUNK.match(line):
                yield from self._hunk(head)
            elif line.startswith(b"GIT binary patch"):
                # The data stops before the next file: base85 has neither blanks nor a `diff --git`.
                if self.files:
                    self.files[-1].is_binary = True
                self._take(HEADER)
                while self._at < len(self.data) and not self.data.startswith(b"diff --git ", self._at):
                    self._take(HEADER)
                    if len(self.kinds) % _STEP == 0:
                        yield True
            else:
                if line.startswith(b"diff --git "):
                    self._begin().names |= _both_names(line.removeprefix(b"diff --git "))
                elif line.startswith(b"--- ") and (not self.files or self.files[-1].hunks):
                    self._begin()  # A patch that git did not write begins a file with its names.
                if self.files and not self.files[-1].hunks:
                    _note(self.files[-1], line)
                self._take(HEADER)
                if len(self.kinds) % _STEP == 0:
                    yield True

    def _take(self, kind: int, old: int = 0, new: int = 0) -> None:
        self._offsets.append(self._at)
        self._numbers[ord("-")].append(old)
        self._numbers[ord("+")].append(new)
        end = self.data.find(b"\n", self._at)
        self._at = len(self.data) if end < 0 else end + 1
        self.kinds.append(kind)  # This is appended last: other threads see by it that the line can be read.
        if self.files:
            self.files[-1].end = len(self.kinds)

    def _begin(self) -> FilePatch:
        self.files.append(FilePatch(len(self.kinds), len(self.kinds)))
        return self.files[-1]

    def _hunk(self, head: re.Match[bytes]) -> Iterator[bool]:
        old, olds, new, news = (1 if part is None else int(part) for part in head.groups())
        file = self.files[-1] if self.files else self._begin()
        hunk = Hunk(len(self.kinds), len(self.kinds) + 1)
        file.hunks.append(hunk)
        self._take(HUNK)
        old_end = old + olds
        new_end = new + news
        while (old < old_end or new < new_end) and self._at < len(self.data):
            kind = self.data[self._at]
            kind = ord(" ") if kind == ord("\n") else kind  # An empty line that lost its blank in the mail.
            is_old = kind in b" -" and old < old_end
            is_new = kind in b" +" and new < new_end
            if kind != ord("\\") and not ((is_old or kind == ord("+")) and (is_new or kind == ord("-"))):
                break
            self._take(kind, old, new)
            old = old + is_old
            new = new + is_new
            file.additions += kind == ord("+")
            file.deletions += kind == ord("-")
            hunk.end = len(self.kinds)
            if len(self.kinds) % _STEP == 0:
                yield True
        if self.data.startswith(b"\\ ", self._at):
            self._take(ord("\\"))
            hunk.end = len(self.kinds)
        if (old < old_end or new < new_end) and not self.problem:
            fault = "is damaged"
            if self._at >= len(self.data):
                fault = "ends in the middle of a hunk"
            self.problem = f"The patch {fault} (line {len(self.kinds)}): what follows is missing or wrong."
        yield True


def new_side(patch: Patch, file: FilePatch) -> bytes:
    """A file's new text as far as the patch contains it; the whole text if the file is new."""
    lines = (number for hunk in file.hunks for number in range(hunk.line + 1, hunk.end) if patch.kinds[number] in b"+ ")
    return b"\n".join(patch.line(number, len(patch.data))[1:] for number in lines)


def _note(file: FilePatch, line: bytes) -> None:
    if parts := _INDEX.match(line):
        file.facts |= {"old": parts[1].decode(), "new": parts[2].decode()}
        if parts[3]:
            file.facts["mode"] = parts[3].decode()
    elif line.startswith(b"Binary files "):
        file.is_binary = True
    else:
        for key in ("old mode", "new mode", "new file mode", "deleted file mode"):
            if line.startswith(f"{key} ".encode()):
                file.facts[key] = line[len(key) + 1 :].decode("ascii", "replace")
        for key in ("rename from", "rename to", "copy from", "copy to", "---", "+++"):
            if line.startswith(f"{key} ".encode()):
                written = line[len(key) + 1 :]
                # git puts a tab after a name with blanks, other programs a date after the tab.
                name = unquote_name(written) if written.startswith(b'"') else written.split(b"\t")[0]
                if key in {"---", "+++"}:
                    if name == b"/dev/null":
                        continue
                    name = name[2:] if name[:2] in {b"a/", b"b/"} else name
                file.names[key] = as_name(name)


def _both_names(written: bytes) -> dict[str, str]:
    """The new name in a `diff --git` line, given the old one.

    Nothing separates the two names: if they differ, later lines of the header give both.
    """
    if written.endswith(b'"'):
        quoted = written.rfind(b' "b/')
        name = unquote_name(written[quoted + 1 :])
    else:
        name = written[len(written) // 2 + 1 :]
    return {"new": as_name(name[2:])} if name.startswith(b"b/") else {}


def unquote_name(written: bytes) -> bytes:
    """A name from git's C-style quotes, without quotes and escapes."""
    end = re.match(rb'"(?:[^"\\]|\\.)*"', written)
    inner = written[1:-1] if end is None else end[0][1:-1]
    return _ESCAPE.sub(lambda escape: bytes([_ESCAPED.get(escape[1]) or int(escape[1], 8) & 0xFF]), inner)


def as_name(name: bytes) -> str:
    """A file's name as text that can be turned back into its bytes."""
    return name.decode("utf-8", "surrogateescape")


def unless_zeros(written: str | None) -> str | None:
    """A mode or an id; git writes zeros for a missing one."""
    return written if written and written.strip("0") else None
