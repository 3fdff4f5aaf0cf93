"""For the fork server: all that programs import, imported once, and kept out of their garbage collections."""

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
    """What a killed process wrote is there all the same; the service's own choice is made when it connects."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


# No test cuts the power: see conftest.py.
database.DURABLE["synchronous"] = "OFF"
event.listen(Pool, "checkout", leave_unsynced)
gc.collect()
gc.freeze()
