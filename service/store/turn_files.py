"""Files of turns: findings, logs and diffs.

Findings are in the database. So are logs and diffs on PostgreSQL, since every machine needs them; on SQLite they are in
the data folder.
"""

import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from service.clock import Micros
from service.settings import DataFolder
from service.store.rows import delete, insert_new, of_turn
from service.store.runs import OPEN
from service.store.schema import artifacts, log_pieces, runs, turn_files, turns

FINDINGS: Final = "findings"
UNREAD: Final = "unread"
"""The fault of an agent's findings: some, or all, are left out."""
COMMIT: Final = "commit"
"""The file kind of a turn's commit that waits for its push, as a pack of git."""
MAX_LOG: Final = 16 << 20
MAX_DIFF: Final = 8 << 20
"""The largest patch that is shown; a larger one is an artifact as well."""
FILES: Final = (turn_files, log_pieces)
ARTIFACTS: Final = (artifacts,)
PATCHES: Final[dict[str, "DiffKind"]] = {"change.patch": "diff", "run.patch": "run.diff"}
"""The artifacts that are too large patches."""
_MAX_LISTED: Final = 1000

Key = tuple[str, int]
"""A run's id and a turn's number."""
DiffKind = Literal["diff", "run.diff"]
"""A turn's own change, or the whole run's change up to that turn."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a turn's log."""

    offset: int
    size: int
    """The size of the whole log, in bytes."""
    data: bytes


def log_piece(connection: sa.Connection, folder: DataFolder, key: Key, offset: int, limit: int) -> LogPiece | None:
    """Return up to `limit` bytes of a log from an offset, from the end if negative; None if there is no log."""
    file, size = folder.turn_file(*key, "log"), None
    if connection.dialect.name != "sqlite":
        size = log_size(connection, key)
    elif file.exists():
        size = file.stat().st_size
    if size is None:
        return None
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    limit = min(limit, size - start)
    if connection.dialect.name != "sqlite":
        return LogPiece(start, size, read_log(connection, key, start, limit))
    with file.open("rb") as log:
        log.seek(start)
        return LogPiece(start, size, log.read(limit))


def diff(connection: sa.Connection, folder: DataFolder, key: Key, kind: DiffKind) -> bytes | None:
    if connection.dialect.name != "sqlite":
        return content(connection, key, kind)
    file = folder.turn_file(*key, kind)
    return file.read_bytes() if file.exists() else None


def save(connection: sa.Connection, key: Key, attempt: int, kind: str, content: bytes) -> None:
    """Store a file, replacing an earlier one of its kind, unless a later attempt took over or the run was deleted."""
    _put(connection, turn_files, key, attempt, {"kind": kind}, {"content": zlib.compress(content)})


def _put(
    connection: sa.Connection, table: sa.Table, key: Key, attempt: int, name: dict[str, str], values: dict[str, object]
) -> None:
    names = {"run_id": key[0], "number": key[1], **name}
    if _is_latest(connection, key, attempt) and not insert_new(connection, table, names | values):
        connection.execute(sa.update(table).filter_by(**names).values(values))


def content(connection: sa.Connection, key: Key, kind: str) -> bytes | None:
    query = sa.select(turn_files.c.content).where(*of_turn(turn_files, *key), turn_files.c.kind == kind)
    packed = connection.scalar(query)
    return None if packed is None else zlib.decompress(packed)


def remove(connection: sa.Connection, key: Key, kind: str) -> None:
    delete(connection, turn_files, *of_turn(turn_files, *key), kind=kind)


def newest(connection: sa.Connection, run_id: str, kind: str, most_bytes: int) -> dict[int, bytes]:
    """Return a run's files of one kind by turn number, newest first, as many as fit in `most_bytes`."""
    columns = (turn_files.c.number, turn_files.c.content)
    query = sa.select(*columns).where(turn_files.c.run_id == run_id, turn_files.c.kind == kind)
    files: dict[int, bytes] = {}
    left = most_bytes
    for number, packed in connection.execute(query.order_by(turn_files.c.number.desc())):
        content = zlib.decompress(packed)
        left -= len(content)
        if left < 0:
            break
        files[number] = content
    return files


def artifacts_of(connection: sa.Connection, run_id: str) -> dict[int, list[dict[str, object]]]:
    """Return the artifacts of a run's turns by number, as the API lists them; at most 1,000, of the newest turns."""
    query = sa.select(artifacts.c.number, artifacts.c.name, artifacts.c.size).where(artifacts.c.run_id == run_id)
    listed = defaultdict[int, list[dict[str, object]]](list)
    order = (artifacts.c.number.desc(), artifacts.c.name)
    for number, name, size in connection.execute(query.order_by(*order).limit(_MAX_LISTED)):
        listed[number].append({"name": name, "bytes": size})
    return listed


def artifacts_held(connection: sa.Connection, organization_id: str, key: Key) -> tuple[dict[str, int], int]:
    """Return the sizes of a turn's artifacts by name, and how many bytes all others of the organization have."""
    query = sa.select(artifacts.c.name, artifacts.c.size).where(*of_turn(artifacts, *key))
    sizes = {row.name: row.size for row in connection.execute(query)}
    total = sa.select(sa.func.sum(artifacts.c.size)).where(artifacts.c.organization_id == organization_id)
    return sizes, int(connection.scalar(total) or 0) - sum(sizes.values())


def put_artifact(
    connection: sa.Connection, key: Key, attempt: int, name: str, size: int, content: bytes | None
) -> None:
    """Store an artifact as `save` does; without content it is one of `PATCHES`."""
    owner = connection.scalar(sa.select(runs.c.organization_id).where(runs.c.id == key[0]))
    values = {"organization_id": owner, "size": size, "content": None if content is None else zlib.compress(content)}
    _put(connection, artifacts, key, attempt, {"name": name}, values)


def artifact(connection: sa.Connection, folder: DataFolder, key: Key, name: str) -> bytes | None:
    query = sa.select(artifacts.c.content).where(*of_turn(artifacts, *key), artifacts.c.name == name)
    row = connection.execute(query).first()
    if row is None:
        return None
    if row[0] is None:
        return diff(connection, folder, key, PATCHES[name])
    return zlib.decompress(row[0])


def append_log(connection: sa.Connection, key: Key, attempt: int, piece: bytes) -> None:
    """Append to a turn's log, unless a later attempt took over or the run was deleted."""
    if not _is_latest(connection, key, attempt):
        return
    starts_at = log_size(connection, key) or 0
    piece = piece[: max(0, MAX_LOG - starts_at)]
    if piece:
        insert_new(connection, log_pieces, _piece(key, starts_at, piece))


def pack_log(connection: sa.Connection, key: Key) -> None:
    """Join the pieces of a log that is no longer written."""
    whole = read_log(connection, key, 0, MAX_LOG)
    if whole:
        delete(connection, log_pieces, *of_turn(log_pieces, *key), log_pieces.c.ends_at <= len(whole))
        insert_new(connection, log_pieces, _piece(key, 0, whole))


def _piece(key: Key, starts_at: Micros, piece: bytes) -> dict[str, object]:
    columns = {"run_id": key[0], "number": key[1], "starts_at": starts_at, "ends_at": starts_at + len(piece)}
    return columns | {"content": zlib.compress(piece)}


def log_size(connection: sa.Connection, key: Key) -> int | None:
    """Return the size of a turn's log in bytes; None if it has no log."""
    size: int | None = connection.scalar(sa.select(sa.func.max(log_pieces.c.ends_at)).where(*of_turn(log_pieces, *key)))
    return size


def read_log(connection: sa.Connection, key: Key, offset: int, limit: int) -> bytes:
    inside = (log_pieces.c.ends_at > offset, log_pieces.c.starts_at < offset + limit)
    query = sa.select(log_pieces.c.starts_at, log_pieces.c.content).where(*of_turn(log_pieces, *key), *inside)
    rows = connection.execute(query.order_by(log_pieces.c.starts_at))
    return b"".join(zlib.decompress(piece)[max(0, offset - starts_at) :] for starts_at, piece in rows)[:limit]


def count_ended(connection: sa.Connection, before: int, tables: tuple[sa.Table, ...]) -> int:
    """Return how many rows belong to turns that ended before an instant, in runs without open turns."""
    counts = (sa.select(sa.func.count()).select_from(_ended_before(table, before).subquery()) for table in tables)
    return sum(connection.execute(query).scalar_one() for query in counts)


def remove_ended(connection: sa.Connection, before: int, tables: tuple[sa.Table, ...], limit: int) -> int:
    """Remove up to `limit` of these rows from each table; return how many were removed."""
    return sum(
        delete(connection, table, sa.tuple_(*table.primary_key).in_(_ended_before(table, before).limit(limit)))
        for table in tables
    )


def _ended_before(table: sa.Table, before: int) -> sa.Select[tuple[object, ...]]:
    still_open = sa.select(turns.c.run_id).where(turns.c.status.in_(OPEN))
    return (
        sa.select(*table.primary_key)
        .join(turns, sa.and_(turns.c.run_id == table.c.run_id, turns.c.number == table.c.number))
        .where(turns.c.finished_at < before, table.c.run_id.not_in(still_open))
    )


def _is_latest(connection: sa.Connection, key: Key, attempt: int) -> bool:
    """Whether the run exists and no later attempt has the turn; locks the run against deletion in this transaction."""
    run = sa.select(runs.c.id).where(runs.c.id == key[0]).with_for_update(read=True, key_share=True)
    if connection.execute(run).first() is None:
        return False
    return connection.scalar(sa.select(turns.c.attempt).where(*of_turn(turns, *key))) == attempt
