"""The lines of a patch as pieces to draw, in the colours known so far."""

from collections.abc import Sequence
from typing import Final

from app.text import safe_text
from storage.records.results import ChangedFile
from widgets.cells import shorten
from widgets.diff.colours import Colours, ColourSpan, Spans, changed_words
from widgets.diff.rows import ADDED, CONTEXT, NONE, REMOVED, PatchLines
from widgets.text_view import LONGEST, TAB, TextPiece, overlay, safe_line

GROUNDS: Final = {ADDED: "added", REMOVED: "removed"}
SIGNED: Final = {ADDED, REMOVED, CONTEXT}
"""The first character of a file's lines."""
COUNTS: Final = 24
"""Cells left for the counts behind a file's name."""
LEAST_NAME: Final = 10


class DiffLines:
    """One patch, and what is known of its files."""

    def __init__(self, patch: PatchLines, files: Sequence[ChangedFile]) -> None:
        self._patch = patch
        self._facts = {file.path: file for file in files}
        self.colours: dict[int, tuple[Colours, Colours]] = {}
        """By file, those of its old and its new text."""

    @property
    def count(self) -> int:
        """The number of files, as far as it is known."""
        return len(self._facts)

    def path(self, file: int) -> str:
        """A file's name; not safe text."""
        return self._patch.files[file].path

    def changed(self, file: int) -> ChangedFile:
        """The facts of a file so far."""
        return self._facts.get(self.path(file)) or self._patch.files[file].changed()

    def kind(self, line: int) -> int:
        """The first byte of a line."""
        kind = self._patch.kinds[line]
        return CONTEXT if kind == ord("\n") else kind

    def text(self, line: int) -> str:
        """A whole line."""
        return safe_line(self._raw(line))

    def heading(self, file: int, width: int, *, is_folded: bool) -> list[TextPiece]:
        """A file's name, its counts, and whether it was renamed, added or deleted."""
        facts = self.changed(file)
        notes = [f"from {safe_text(facts.old_path)}"] if facts.old_path else []
        notes += [facts.kind] if facts.kind not in {"modified", "mode"} else []
        notes += ["binary"] if facts.is_binary else []
        if facts.old_mode and facts.new_mode and facts.old_mode != facts.new_mode:
            notes.append(f"mode {safe_text(facts.old_mode)} → {safe_text(facts.new_mode)}")
        counts = [] if facts.additions is None else [TextPiece(f"  +{facts.additions:,}", "good")]
        counts += [] if facts.deletions is None else [TextPiece(f" -{facts.deletions:,}", "bad")]
        name = shorten(safe_line(facts.path), max(LEAST_NAME, width - COUNTS), "middle")
        return [
            TextPiece("▸ " if is_folded else "▾ ", "quiet"),
            TextPiece(name),
            *counts,
            TextPiece(f"  {' · '.join(notes)}", "quiet"),
        ]

    def changed_words(self, left: int, right: int) -> tuple[Spans, Spans]:
        """The words that differ between an old line and the one beside it."""
        if NONE in {left, right} or left == right:
            return (), ()
        return changed_words(self._raw(left)[1:], self._raw(right)[1:])

    def pieces(self, file: int, line: int, words: Spans = ()) -> Sequence[TextPiece]:
        """A line without its sign, with these changed words."""
        raw = self._raw(line)[1:]
        text, kind = safe_line(raw), self.kind(line)
        wider = len(TAB) - 1
        if len(text) != len(raw) + wider * raw.count("\t"):
            return [TextPiece(text)]  # Characters were left out: places in the line are not known.

        def place(column: int) -> int:
            return column + wider * raw.count("\t", 0, column)

        pieces, at = [], 0
        for begin, end, tone in self._spans(file, line, kind):
            pieces += [TextPiece(text[at : place(begin)]), TextPiece(text[place(begin) : place(end)], tone)]
            at = place(end)
        pieces.append(TextPiece(text[at:]))
        if words:
            pieces = overlay(pieces, [(place(a), place(b)) for a, b in words], f"{GROUNDS[kind]}-word")
        return pieces

    def _raw(self, line: int) -> str:
        return self._patch.line(line, LONGEST + 2).decode("utf-8", "replace")

    def _spans(self, file: int, line: int, kind: int) -> Sequence[ColourSpan]:
        sides = self.colours.get(file)
        if sides is None:
            return ()
        side = 0 if kind == REMOVED else 1
        number = self._patch.numbers(line)[side]
        return sides[side][number - 1] if number and number <= len(sides[side]) else ()
