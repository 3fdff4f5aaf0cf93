"""An attempt at a turn: its data, its shared log, the agent's task, and the trailer of its commit."""

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from service.clock import Clock, rfc3339
from service.execution.change import TurnChange
from service.execution.git import GitRunner
from service.execution.mirror import RepositorySnapshot
from service.execution.secrets import Secrets
from service.execution.workspace import Workspace
from service.store import turn_files
from service.store.agents import Agent
from service.store.database import Database
from service.store.runs import Run
from service.store.turn_files import Key
from service.store.turns import Turn, TurnOutcome

TRAILER: Final = "Runwarden-Run"
# git allows blanks around a key, and looks for no trailer below a scissors line.
_FORGED: Final = re.compile(rf"\s*{TRAILER}\s*:|.*-{{24}} >8 -{{24}}", re.IGNORECASE)
_SEARCHED_COMMITS: Final = 500
_SUBJECT_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed turn with the data of its steps."""

    run: Run
    turn: Turn
    agent: Agent
    conversation: list[Turn]
    workspace: Workspace
    git: GitRunner
    log: IO[bytes]
    secrets: Secrets
    """The values that are masked in everything stored about the attempt."""

    @property
    def trailer(self) -> str:
        """The line that marks this turn's commit, so that a second attempt recognizes it."""
        return f"{self.run.id} turn {self.turn.number}"

    @property
    def fields(self) -> dict[str, str | int]:
        """The attributes of its trace span."""
        run = self.run
        named = {"agent": run.agent, "organization_id": run.organization_id, "repository": f"{run.platform}:{run.path}"}
        return {"run_id": run.id, "turn": self.turn.number, "attempt": self.turn.attempt, **named}

    def say(self, text: str, clock: Clock) -> None:
        """Write a line into the turn's log."""
        self.log.write(f"{rfc3339(clock())} {self.secrets.mask(text)}\n".encode("utf-8", "replace"))
        self.log.flush()


@dataclass(slots=True)
class TurnAtWork:
    """A turn that this process works on."""

    key: Key
    attempt: int
    log_file: Path
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once a caller or an operator has ended the turn."""
    _shared: int = field(init=False)
    """The offset up to which the log is shared; an earlier attempt's part comes before it."""
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Start sharing at the present end of the file."""
        self._shared = self.log_file.stat().st_size if self.log_file.exists() else 0

    def share(self, database: Database) -> None:
        """Store what was added to the log since the last call; SQLite needs none of this, having one machine."""
        if database.is_sqlite:
            return
        with self._sharing:
            with self.log_file.open("rb") as file:
                file.seek(self._shared)
                added = file.read(turn_files.LARGEST_FILE)
            if added:
                with database.write() as connection:
                    turn_files.append_log(connection, self.key, self.attempt, added)
                self._shared += len(added)

    def share_all(self, database: Database, diffs: dict[str, Path]) -> None:
        """Store the rest of the log, and the patches."""
        if database.is_sqlite:
            return
        self.share(database)
        kept = {kind: file.read_bytes() for kind, file in diffs.items() if file.exists()}
        with database.write() as connection:
            turn_files.pack_log(connection, self.key)
            for kind, content in kept.items():
                turn_files.put(connection, self.key, self.attempt, kind, content)


def task_of(attempt: Attempt, snapshot: RepositorySnapshot) -> dict[str, object]:
    """Return the document for the agent's standard input, as docs/service.md describes it."""
    return {
        "run_id": attempt.run.id,
        "turn": attempt.turn.number,
        "agent": attempt.run.agent,
        "repository": attempt.run.reference.body,
        "branch": attempt.run.branch,
        "default_branch": snapshot.default_branch,
        "instructions": attempt.turn.instructions,
        "inputs": attempt.turn.inputs,
        "conversation": [
            {
                "turn": past.number,
                "instructions": past.instructions,
                "status": past.status,
                "commit": past.commit_sha,
                "summary": past.summary,
                "finished_at": None if past.finished_at is None else rfc3339(past.finished_at),
            }
            for past in attempt.conversation
        ],
    }


def completed(
    attempt: Attempt, commit: str | None, summary: str | None, change: TurnChange | None = None
) -> TurnOutcome:
    """Return the outcome of an attempt that came to its end."""
    changed: dict[str, Any] = {} if change is None else change.fields()
    return TurnOutcome("completed", commit_sha=commit, summary=summary, attempt=attempt.turn.attempt, **changed)


def masked(attempt: Attempt, text: str | None) -> str | None:
    """Return a text without the secrets that the attempt knows."""
    return None if text is None else attempt.secrets.mask(text)


def own_commit(attempt: Attempt, snapshot: RepositorySnapshot) -> tuple[str, str] | None:
    """Return the commit and subject that an earlier attempt at this turn pushed before it could report it."""
    head = snapshot.branches.get(attempt.run.branch)
    if head is None:
        return None
    form = f"--format=%H%x09%s%x09%(trailers:key={TRAILER},valueonly,separator=%x2C)"
    listed = attempt.git("log", f"--max-count={_SEARCHED_COMMITS}", form, head, "--", git_dir=snapshot.git_dir)
    for line in listed.splitlines():
        commit, _, rest = line.partition("\t")
        subject, _, marks = rest.rpartition("\t")
        if attempt.trailer in marks.split(","):
            # Others can push a commit with this trailer, and its message need not be valid text.
            return commit, subject.encode("utf-8", "replace").decode()
    return None


def commit_message(attempt: Attempt, given: str | None) -> str:
    """Return the commit's message, the agent's own if it gave one, with the service's trailer."""
    first_line = " ".join(attempt.turn.instructions.split())[:_SUBJECT_LENGTH]
    lines = (given or f"{attempt.run.agent}: {first_line}".rstrip(": ")).splitlines()
    # Only the service may write the trailer: with one, an agent could make a later turn look done.
    text = "\n".join(line for line in lines if not _FORGED.match(line)).strip()
    return f"{text or attempt.run.agent}\n\n{TRAILER}: {attempt.trailer}\n"
