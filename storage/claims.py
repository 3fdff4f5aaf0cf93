"""Claims: only one process works on a row (an action, a decision or a delivery), and only one holds a lease.

A claim is made under the write lock and names its process. When that process has ended, the row is abandoned, and
another process finds out, or assumes, how far the work came. A reused process id does not count as the same process.
A lease is for lasting work, such as polling: one that is not renewed in time is free again.
"""

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from storage.database import execute, scalar
from storage.values import Value, bound, from_us, from_us_or_none, to_us

UNSEEN_FOR: Final = timedelta(hours=1)
"""When the claim of a process that cannot be seen from here counts as abandoned: requests take seconds at most."""
NOT_REPORTED: Final = "?"
"""Stands for a fact that the system does not report; it counts as equal to any value."""
_SECOND_US: Final = 1_000_000
PROC: Final = Path("/proc")
"""Where Linux lists its processes; other systems are asked with programs."""
_PROBE_S: Final = 5.0
Values = Mapping[str, Value]


class Owner(Struct, frozen=True):
    """A process, distinguishable from every other, even if its process id is reused."""

    pid: int
    started: str
    """When the process started, in the system's own format."""
    boot: str
    """The boot of the machine that the process belongs to."""
    namespace: str
    """The namespace of the process id: each container has its own."""


class Claims(Struct, frozen=True):
    """The rows of a table that processes claim; it has the columns `owner_json` and `owned_us`."""

    table: str
    key: str
    """The column that identifies a row."""
    under_way: str
    """The condition, in SQL, of the rows that a process works on."""

    def claim(
        self, connection: sqlite3.Connection, key: str | int, at: datetime, *, expected: Values, change: Values
    ) -> bool:
        """Change and claim a row if it is still as expected: one process wins."""
        assignments = ", ".join(f"{column} = ?" for column in ("owner_json", "owned_us", *change))
        conditions = " AND ".join((f"{self.key} = ?", *(f"{column} IS ?" for column in expected)))
        sql = f"UPDATE {self.table} SET {assignments} WHERE {conditions}"
        owner = astuple(this_process())
        return execute(connection, sql, owner, at, *change.values(), key, *expected.values()).rowcount == 1

    def adopt(self, connection: sqlite3.Connection, key: str | int, at: datetime) -> bool:
        """Claim an abandoned row; False if its process may still be running. Needs a transaction."""
        query = f"SELECT owner_json, owned_us FROM {self.table} WHERE {self.key} = ? AND {self.under_way}"
        row = connection.execute(query, (key,)).fetchone()
        if row is None or not (row[0] == bound(astuple(this_process())) or _is_abandoned(row[0], row[1], at)):
            return False
        return self.claim(connection, key, at, expected={}, change={})

    def list_abandoned(self, connection: sqlite3.Connection, at: datetime) -> tuple[str | int, ...]:
        """The keys of rows in progress whose process has exited, oldest first."""
        rows = connection.execute(
            f"SELECT {self.key}, owner_json, owned_us FROM {self.table}"
            f" WHERE {self.under_way} AND owner_json IS NOT NULL ORDER BY rowid"
        )
        return tuple(key for key, owner, owned_us in rows.fetchall() if _is_abandoned(owner, owned_us, at))


def _is_abandoned(owner_json: str, owned_us: int, at: datetime) -> bool:
    is_over = is_dead(Owner(*json.loads(owner_json)))
    return at - from_us(owned_us) > UNSEEN_FOR if is_over is None else is_over


def acquire_lease(connection: sqlite3.Connection, now: datetime, name: str, owner: str, ttl_s: float) -> bool:
    """Take the lease for `ttl_s` seconds; return whether it was free, expired, or the owner's.

    An owner's lease is left as it is until half of its time has passed: each change waits for the disk.
    """
    # `now` is read under the lock: before the wait for it, the time could be earlier than the holder's.
    now_us, ttl_us = to_us(now), round(ttl_s * _SECOND_US)
    query = "SELECT until_us - ? FROM leases WHERE name = ? AND owner = ?"
    left_us = scalar(connection, query, now_us, name, owner) or 0
    if ttl_us / 2 < left_us <= ttl_us:
        return True
    taken = connection.execute(
        "INSERT INTO leases (name, owner, until_us) VALUES (:name, :owner, :until) ON CONFLICT (name) DO UPDATE"
        " SET owner = excluded.owner, until_us = excluded.until_us"
        " WHERE owner = excluded.owner OR until_us <= :now OR until_us > :unbelievable",
        # No lease lasts this long: the clock was set back, and the lease would outlive its holder.
        {"name": name, "owner": owner, "until": now_us + ttl_us, "now": now_us, "unbelievable": now_us + 2 * ttl_us},
    )
    return taken.rowcount == 1


def release_lease(connection: sqlite3.Connection, name: str, owner: str) -> None:
    connection.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))


def lease_until(connection: sqlite3.Connection, name: str) -> datetime | None:
    """When a lease expires; None if nobody holds it."""
    return from_us_or_none(scalar(connection, "SELECT until_us FROM leases WHERE name = ?", name))


def lease_owner(connection: sqlite3.Connection, name: str, now: datetime) -> str | None:
    """The name of the process that holds a lease now, or None."""
    owner: str | None = scalar(connection, "SELECT owner FROM leases WHERE name = ? AND until_us > ?", name, now)
    return owner


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(pid, _start_of(pid) or NOT_REPORTED, *_this_system())


def is_dead(owner: Owner) -> bool | None:
    """Whether the process has certainly ended; None: it runs in another container and cannot be seen from here."""
    boot, namespace = _this_system()
    if _is_other(owner.boot, boot):
        return True
    if _is_other(owner.namespace, namespace):
        return None
    started = _start_of(owner.pid)
    return started is None or _is_other(owner.started, started)


def _is_other(known: str, current: str) -> bool:
    return NOT_REPORTED not in (known, current) and known != current


def _start_of(pid: int) -> str | None:
    """When the process started; None: it does not exist, or is a zombie."""
    if not (PROC / "self" / "stat").exists():
        output = _output_of("ps", "-o", "state=,lstart=", "-p", str(pid))
        if output is None:
            return NOT_REPORTED
        state, _, started = output.strip().partition(" ")
        return None if not started or state.startswith("Z") else started.strip()
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name, before these fields, may contain anything, brackets and spaces too.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else fields[18]  # `starttime` in proc(5)


@cache
def _this_system() -> tuple[str, str]:
    """The boot of this machine, and the namespace of its process ids."""
    try:
        boot = (PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = (_output_of("sysctl", "-n", "kern.bootsessionuuid") or "").strip() or NOT_REPORTED
    try:
        return boot, str((PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return boot, NOT_REPORTED


def _output_of(*command: str) -> str | None:
    """The output of a program; None: it cannot be run."""
    # Every process must get the same answer: ps uses the user's language and time zone.
    plain = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout
