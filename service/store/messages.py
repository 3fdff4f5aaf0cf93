"""Messages from callers to a run during a turn. Each reaches one agent, or starts the next turn."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import sqlalchemy as sa

from service import ids
from service.clock import Micros, rfc3339
from service.store.rows import optional_filter, records_of, update
from service.store.schema import messages

Timing = Literal["now", "end", "stop"]
"""`now`: while the agent works; `end`: when its turn has ended; `stop`: stop the turn, then deliver it."""
MAX_WAITING: Final = 20


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a run."""

    run_id: str
    id: str
    number: int
    """The turn that was under way."""
    text: str
    timing: Timing
    state: str
    """`waiting`; `delivered` to the turn's agent; `continued`: it started the next turn; `dropped`: the turn was
    cancelled."""
    caller: str | None
    sent_at: Micros

    def document(self) -> dict[str, object]:
        document = {"message_id": self.id, "text": self.text, "when": self.timing, "state": self.state}
        return document | {"caller": self.caller, "sent_at": rfc3339(self.sent_at)}


def add(
    connection: sa.Connection, run_id: str, number: int, text: str, timing: Timing, caller: str | None, now: Micros
) -> Message:
    """Store a message for a turn, which the caller has found to be open in the same transaction."""
    added = Message(run_id, f"msg_{ids.ulid(now)}", number, text, timing, "waiting", caller, now)
    connection.execute(sa.insert(messages).values(asdict(added)))
    return added


def of_runs(connection: sa.Connection, run_ids: Collection[str], state: str | None = None) -> list[Message]:
    conditions = (messages.c.run_id.in_(run_ids), optional_filter(messages.c.state, state))
    return records_of(connection, Message, messages, *conditions, order=[messages.c.sent_at, messages.c.id])


def by_turn(connection: sa.Connection, run_id: str) -> defaultdict[int, list[Message]]:
    grouped = defaultdict[int, list[Message]](list)
    for message in of_runs(connection, [run_id]):
        grouped[message.number].append(message)
    return grouped


def mark(connection: sa.Connection, some: Sequence[Message], state: str) -> None:
    is_one = sa.tuple_(messages.c.run_id, messages.c.id).in_([(message.run_id, message.id) for message in some])
    update(connection, messages, is_one, messages.c.state == "waiting", state=state)


def with_messages(instructions: str, some: Sequence[Message]) -> str:
    later = (f"Said later:\n\n{message.text}" for message in some if message.state == "delivered")
    return "\n\n".join([instructions, *later])
