"""A small service to back up, and what a back-up holds."""

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from service.backup import archive
from service.cli import main
from service.clock import now_micros
from service.settings import DataFolder
from service.store import organizations, runs, turn_files, turns
from service.store.database import Database
from service.store.runs import TurnRequest
from service.store.turns import TurnOutcome


def attempt(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def a_service(database: Database, folder: DataFolder) -> str:
    """Make an organization with three ended runs and their logs; return the first one."""
    folder.create()
    database.migrate()
    now = now_micros()
    with database.write() as connection:
        owner = organizations.create(connection, name="Acme \N{SNOWMAN}", now=now).id
        metadata = {"a": [1, None, "\N{SNOWMAN}\n"]}
        order = TurnRequest(owner, "scribe", "github", "acme/api", "/srv/api.git", None, "do it", {}, metadata)
        made = [runs.accept(connection, order, now).id for _ in range(3)]
        for run_id in made:
            turns.end(connection, run_id, 1, TurnOutcome("completed"), now)
            folder.turn_log(run_id, 1).parent.mkdir()
            folder.turn_log(run_id, 1).write_text(f"log of {run_id}", "utf-8")
            turn_files.append_log(connection, (run_id, 1), 0, folder.turn_log(run_id, 1).read_bytes())
            turn_files.put(connection, (run_id, 1), 0, "diff", b"a patch")
    return made[0]


def contents(file: Path) -> dict[str, bytes]:
    return {name: source.read() for name, source in archive.members(file)}


@contextlib.contextmanager
def opened(folder: DataFolder, url: str | None) -> Iterator[Database]:
    with contextlib.closing(Database(url or folder.database_url)) as database:
        yield database


def rebuilt(
    source: Path,
    change: Callable[[dict[str, bytes]], Any],
    *extra: tarfile.TarInfo,
    schema_version: int | None = None,
) -> Path:
    """Return an archive with other contents and entries more, under the same manifest unless a version is given."""
    found = contents(source)
    change(found)
    if schema_version is not None:
        manifest = json.loads(found.pop("manifest.json"))
        members = {name: {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()} for name, raw in found.items()}
        found["manifest.json"] = json.dumps(manifest | {"schema_version": schema_version, "members": members}).encode()
    with tarfile.open(source.with_name("forged.tar.gz"), "w:gz") as tar:
        for entry in extra:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
        for name, content in found.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return source.with_name("forged.tar.gz")
