"""How long a repository's runs take, from the newest ones that finished."""

import sqlite3
from collections.abc import Iterable
from math import ceil
from typing import Final

from storage.records import FINAL_STATUSES
from storage.records.following import RunDurations

SAMPLE: Final = 200
"""The newest finished runs of a repository that its figures are made of."""

_MICROSECONDS: Final = 1_000_000
_FINAL: Final = ", ".join(f"'{status}'" for status in sorted(FINAL_STATUSES))


def durations(connection: sqlite3.Connection, repositories: Iterable[str]) -> dict[str, RunDurations]:
    """Each repository's figures, by label; those of which no run has finished are left out."""
    found = {repository: _taken_us(connection, repository) for repository in dict.fromkeys(repositories)}
    return {
        repository: RunDurations(_rank(taken, 0.5) / _MICROSECONDS, _rank(taken, 0.95) / _MICROSECONDS, len(taken))
        for repository, taken in found.items()
        if taken
    }


def _taken_us(connection: sqlite3.Connection, repository: str) -> list[int]:
    found = connection.execute(
        "SELECT updated_us - active_since_us FROM runs"  # noqa: S608 — built from constants; values are bound
        f" WHERE repository = ? AND status IN ({_FINAL}) AND updated_us >= active_since_us"
        " ORDER BY created_us DESC, run_id DESC LIMIT ?",
        (repository, SAMPLE),
    )
    return sorted(taken_us for (taken_us,) in found.fetchall())


def _rank(ordered: list[int], share: float) -> int:
    """The nearest-rank percentile."""
    return ordered[ceil(share * len(ordered)) - 1]
