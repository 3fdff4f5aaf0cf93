"""An answer's runs, prepared for storing: each once, with its digest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, Self
from zlib import adler32, crc32

from storage.records import Repository, Run, RunChanges
from storage.values import sqlite_text, to_sortable_us, to_us


class ArrivedRun(NamedTuple):
    """A run of an answer."""

    run: Run
    updated_us: int
    digest: int
    """Stands for the run as received, which is fifty times as long, when runs are compared."""


@dataclass(slots=True, eq=False, repr=False)
class PreparedRuns:
    """The runs of an answer, prepared for storing."""

    asked_us: int
    arrived: Mapping[str, ArrivedRun]
    changes: RunChanges | None = None
    """None: it is not stored yet."""

    @classmethod
    def of(cls, runs: Sequence[Run], asked_at: datetime) -> Self:
        """Prepare each run once, as last updated: pages that shift during a walk repeat runs."""
        arrived: dict[str, ArrivedRun] = {}
        for run in runs:
            updated_us = to_sortable_us(run.updated_at)
            text = f"{run.run_id}\n{run.status}\n{run.branch_name}\n{run.repository.data_json}\n{run.raw_json}"
            octets = text.encode("utf-8", "replace")
            digest = crc32(octets) << 31 ^ adler32(octets) ^ updated_us
            stored = run if text.isascii() else _without_surrogates(run)
            if stored.run_id not in arrived or updated_us >= arrived[stored.run_id].updated_us:
                arrived[stored.run_id] = ArrivedRun(stored, updated_us, digest)
        return cls(to_us(asked_at), arrived)


def _without_surrogates(run: Run) -> Run:
    repository = Repository(sqlite_text(run.repository.platform), sqlite_text(run.repository.data_json))
    run_id, status, branch, raw = map(sqlite_text, (run.run_id, run.status, run.branch_name, run.raw_json))
    return replace(run, run_id=run_id, status=status, branch_name=branch, repository=repository, raw_json=raw)
