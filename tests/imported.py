"""For the fork server: imports what programs need once, and excludes it from their garbage collection."""

import gc
import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from storage import database

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore", "rich.progress_bar")
OTHERS = ("app/demo/", "app/__main__")

for file in (path.relative_to(ROOT) for name in ("app", "widgets", "storage") for path in (ROOT / name).rglob("*.py")):
    if not str(file).startswith(OTHERS):
        import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
for library in LIBRARIES:
    import_module(library)


def leave_unsynced(connection: Any, *_: object) -> None:
    """Skip syncing, since files survive a killed process without it; the service sets its own mode when it connects."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


# No test simulates a power cut; see conftest.py.
database.DURABLE["synchronous"] = "OFF"
event.listen(Pool, "checkout", leave_unsynced)
gc.collect()
gc.freeze()
