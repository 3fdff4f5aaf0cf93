"""A run's change and reviews as commands print them: JSON, tables, and a patch for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.cli.output import Document, Output
from app.cli.output.table import Column
from app.start.streams import printing
from app.text import safe_text
from storage.records.results import Change, ChangedFile, Finding, Review

_TONES: Final = {"+": "32", "-": "31", "@": "36", "d": "1", "\\": "2"}
"""SGR codes by the kind of a patch's line."""
_TAB: Final = 8
_LONGEST_LINE: Final = 4_000
"""Characters."""
_BAR: Final = 40
"""Cells of a file's bar of added and removed lines."""
ORIGINS: Final = {"git": "git", "service": "the service's results"}


def tell_origin(output: Output, change: Change) -> None:
    """Say where a change comes from, and between which commits."""
    if not change.patch:
        output.note(f"Nothing was changed, says {ORIGINS[change.source]}.")
        return
    ends = f" ({(change.base or 'nothing')[:12]}..{change.head[:12]})" if change.head else ""
    output.note(
        " ".join(filter(None, (f"From {ORIGINS[change.source]}, since {change.base_name}{ends}.", change.note)))
    )


def facts_of(change: Change) -> dict[str, object]:
    """A change without its files, as JSON."""
    facts = {"source": change.source, "base": change.base, "head": change.head, "base_name": change.base_name}
    return {**facts, "note": change.note}


def file_document(file: ChangedFile) -> Document:
    """A changed file as JSON."""
    counts = {"additions": file.additions, "deletions": file.deletions, "binary": file.is_binary}
    return {"path": _text(file.path), "old_path": file.old_path and _text(file.old_path), "kind": file.kind, **counts}


def review_document(each: Review) -> Document:
    """A review as JSON."""
    found = [finding_document(finding) for finding in each.findings]
    return {"path": _text(each.path), "text": each.text, "source": each.source, "note": each.note, "findings": found}


def finding_document(finding: Finding) -> dict[str, object]:
    """A finding as JSON."""
    path = _text(finding.path)
    return {"path": path, "line": finding.line, "severity": finding.severity, "text": finding.text}


def _text(name: str) -> str:
    """A file's name as Unicode: JSON has no bytes."""
    return name.encode("utf-8", "surrogateescape").decode(errors="replace")


def quoted(name: str) -> str:
    """A name on one line, in quotes as git writes it where a terminal or a script would stumble over it."""
    if name.isprintable() and not set(name) & {'"', "\\"}:
        return name
    raw = name.encode("utf-8", "surrogateescape")
    return (
        '"'
        + "".join(
            chr(c) if chr(c).isascii() and chr(c).isprintable() and c not in b'"\\' else f"\\{c:03o}" for c in raw
        )
        + '"'
    )


def _named(file: ChangedFile) -> str:
    return quoted(file.path) if file.old_path is None else f"{quoted(file.old_path)} -> {quoted(file.path)}"


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def total(change: Change) -> str:
    """The totals of a change."""
    added = sum(file.additions or 0 for file in change.files)
    removed = sum(file.deletions or 0 for file in change.files)
    files = "1 file" if len(change.files) == 1 else f"{len(change.files)} files"
    lines = "1 line" if added == 1 else f"{added} lines"
    return f"{files}, {lines} added, {removed} removed"


def _bar(file: ChangedFile) -> str:
    if file.is_binary:
        return "binary"
    added, removed = file.additions or 0, file.deletions or 0
    scale = min(1.0, _BAR / max(1, added + removed))
    return "+" * round(added * scale) + "-" * round(removed * scale)


def write_bytes(output: Output, data: bytes) -> None:
    """Write bytes on stdout as they are."""
    output.flush()
    with printing():
        output.stdout.buffer.write(data)
        output.stdout.buffer.flush()


def show_patch(output: Output, data: bytes) -> None:
    """Print a patch's lines for people."""
    for line in _shown(data, colour=output.colour or output.width is None):
        output.print(line)


def show_text(output: Output, text: str) -> None:
    """Print a text's lines, printable, each cut at `_LONGEST_LINE`."""
    for line in text.split("\n"):
        output.print(safe_text(line.rstrip("\r").expandtabs(_TAB), limit=_LONGEST_LINE))


def _shown(data: bytes, *, colour: bool) -> Iterator[str]:
    """A patch's lines, printable, each cut at `_LONGEST_LINE`, and coloured."""
    from app.results.diff import Patch

    patch = Patch(data)
    patch.read()
    is_binary = False
    for number, kind in enumerate(patch.kinds):
        if patch.line(number) == b"GIT binary patch":
            is_binary = True
            yield "(binary content, not shown)"
        is_binary = is_binary and not patch.line(number).startswith(b"diff --git ")
        if is_binary:
            continue
        text = patch.line(number).decode(errors="replace").expandtabs(_TAB)
        tone = _TONES.get(chr(kind)) if colour else None
        safe = safe_text(text, limit=_LONGEST_LINE)
        yield f"\x1b[{tone}m{safe}\x1b[0m" if tone else safe


FINDINGS: Final[Sequence[Column[Finding]]] = (
    Column("severity", lambda finding: finding.severity or "", "severity"),
    Column("file", lambda finding: finding.path, "path"),
    Column("line", lambda finding: _count(finding.line), "line", lambda finding: finding.line),
    Column("text", lambda finding: finding.text, "text"),
)
FILES: Final[Sequence[Column[ChangedFile]]] = (
    Column("change", lambda file: file.kind, "kind"),
    Column("+", lambda file: _count(file.additions), "additions", lambda file: file.additions),
    Column("-", lambda file: _count(file.deletions), "deletions", lambda file: file.deletions),
    Column("", _bar, tone=lambda _: "dim"),
    Column("file", _named, "path", lambda file: file.path, flexible=True),
)
