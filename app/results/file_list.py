"""The changed files as git lists them, with their modes, contents and counts of lines."""

from collections.abc import Iterator
from typing import Final

from app.results.diff import as_name, unless_zeros
from storage.records.results import SUBMODULE_MODE, ChangedFile, ChangeKind

_KINDS: Final[dict[bytes, ChangeKind]] = {
    b"A": "added",
    b"D": "deleted",
    b"R": "renamed",
    b"C": "copied",
    b"T": "mode",
}


def files_of(raw: bytes, numstat: bytes) -> tuple[ChangedFile, ...]:
    """The files that `git diff --raw -z --no-abbrev -M` and `git diff --numstat -z -M` list."""
    counts = dict(_counts(numstat))
    return tuple(_files(raw, counts))


def _files(raw: bytes, counts: dict[bytes, tuple[int | None, int | None]]) -> Iterator[ChangedFile]:
    fields = iter(raw.split(b"\0"))
    for head in fields:
        try:
            old_mode, new_mode, old_blob, new_blob, status = head.lstrip(b":").split()
        except ValueError:
            return
        first = next(fields, b"")
        path = next(fields, b"") if status[:1] in b"RC" else first
        added, removed = counts.get(path, (None, None))
        kind = _KINDS.get(status[:1], "modified")
        if kind == "modified" and old_blob == new_blob:
            kind = "mode"
        yield ChangedFile(
            as_name(path),
            "submodule" if SUBMODULE_MODE.encode() in {old_mode, new_mode} else kind,
            as_name(first) if path is not first else None,
            added,
            removed,
            is_binary=path in counts and added is None,
            old_blob=unless_zeros(old_blob.decode()),
            new_blob=unless_zeros(new_blob.decode()),
            old_mode=unless_zeros(old_mode.decode()),
            new_mode=unless_zeros(new_mode.decode()),
        )


def _counts(numstat: bytes) -> Iterator[tuple[bytes, tuple[int | None, int | None]]]:
    fields = iter(numstat.split(b"\0"))
    for each in fields:
        added, _, rest = each.partition(b"\t")
        removed, tab, path = rest.partition(b"\t")
        if not tab:
            return
        if not path:  # A renamed file has both names.
            next(fields, b"")
            path = next(fields, b"")
        yield path, (None if added == b"-" else int(added), None if removed == b"-" else int(removed))
