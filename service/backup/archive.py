"""The archive: a tar of known names with a manifest of checksums, which is checked before anything is used."""

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.errors import ServiceError

_FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
_LARGEST_MANIFEST: Final = 1 << 30
_PIECE: Final = 1 << 20
_NAME: Final = re.compile(
    r"service\.toml|schema/(sqlite|postgresql)\.json|tables/[a-z_]{1,60}\.jsonl|runs/run_[0-9A-Z]{26}/turn-[1-9][0-9]{0,8}\.(log|diff)",
    re.ASCII,
)
"""The names of members: no other is written or read, so none can lead out of the target folder."""


class BackupError(ServiceError):
    """A back-up cannot be made or used; the text names the cure."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(_Model):
    """One file of an archive."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(_Model):
    """The content of an archive; its last member."""

    format: int
    schema_version: int
    made_at: int
    """The instant of the database's state, in microseconds since 1970 (UTC)."""
    database: Literal["sqlite", "postgresql"]
    members: dict[str, Member]


class ArchiveWriter:
    """Adds files to an archive one by one, and the manifest at the end."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members: dict[str, Member] = {}

    def add(self, name: str, file: IO[bytes]) -> None:
        """Add a file with its present length; it may grow, but not shrink. A file with an unknown name is left out."""
        if not _NAME.fullmatch(name):
            return
        size = os.fstat(file.fileno()).st_size
        reader = _HashingFile(file)
        self._tar.addfile(_entry(name, size), reader)
        self._members[name] = Member(bytes=size, sha256=reader.digest.hexdigest())

    def finish(self, **facts: Any) -> Manifest:
        """Add the manifest; the arguments are its fields that do not follow from the files."""
        manifest = Manifest(format=_FORMAT, members=self._members, **facts)
        text = manifest.model_dump_json().encode()
        self._tar.addfile(_entry(_MANIFEST, len(text)), io.BytesIO(text))
        return manifest


class _HashingFile:
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


@contextlib.contextmanager
def writing(target: Path) -> Iterator[ArchiveWriter]:
    """Write an archive, readable by its owner alone; only a complete one replaces an earlier one.

    Raises:
        BackupError: It cannot be written.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=6) as tar:
                yield ArchiveWriter(tar)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise BackupError(
            f"the back-up {target} cannot be written: {error}; make room, or name another place"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checked(source: Path) -> Manifest:
    """Read an archive to its end and return its manifest.

    Raises:
        BackupError: It is damaged, cut off, or not a back-up.
    """
    found: dict[str, Member] = {}
    manifest = None
    try:
        for name, file in members(source):
            if manifest is not None or name in found:
                raise BackupError(f"{source} is not a back-up of this service: {name} is out of place")
            if name == _MANIFEST:
                manifest = _manifest(file.read(_LARGEST_MANIFEST), source)
            else:
                found[name] = _read(file)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise BackupError(f"{source} is damaged or not a back-up: {error}; use another one") from error
    if manifest is None:
        raise BackupError(f"{source} is cut off: it has no manifest; use another back-up")
    if wrong := sorted(
        name for name in found.keys() | manifest.members if found.get(name) != manifest.members.get(name)
    ):
        raise BackupError(f"{source} is damaged: {wrong[0]} is not what was backed up; use another back-up")
    return manifest


def _read(file: IO[bytes]) -> Member:
    digest, size = hashlib.sha256(), 0
    while piece := file.read(_PIECE):
        digest.update(piece)
        size += len(piece)
    return Member(bytes=size, sha256=digest.hexdigest())


def members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and the content of each file of an archive, in order; read each before asking for the next.

    Raises:
        BackupError: It holds a member with an unknown name.
    """
    with tarfile.open(source, mode="r|gz") as tar:
        for entry in tar:
            file = tar.extractfile(entry) if entry.isreg() else None
            if file is None or (entry.name != _MANIFEST and not _NAME.fullmatch(entry.name)):
                raise BackupError(f"{source} is not a back-up of this service: it holds {entry.name!r}")
            yield entry.name, file


def _manifest(raw: bytes, source: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate(json.loads(raw))
    except (ValueError, ValidationError, RecursionError) as error:
        raise BackupError(f"{source} is damaged: its manifest cannot be read; use another back-up") from error
    if manifest.format != _FORMAT:
        raise BackupError(
            f"{source} has format {manifest.format}, this program knows {_FORMAT}: install a newer release"
        )
    return manifest
