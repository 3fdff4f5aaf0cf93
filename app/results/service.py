"""The service's own results (docs/dev/api.md); a service without them is asked again a day later."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec import Struct

from app.api.client import Client
from app.api.errors import ApiError, NotFoundError, NotOfferedError, RejectedError, UnusableAnswerError
from storage.records.results import FailureFacts, LogChunk, RunTurns, Unavailable

T = TypeVar("T")
_PULL_KEYS: Final = ("pull_request", "pull_request_number", "pull_request_url", "pr_number", "pr_url")
_MERGE_KEYS: Final = ("merge_request", "merge_request_iid", "merge_request_url")
_NUMBER_KEYS: Final = ("number", "iid", "url", "html_url")
_NUMBER: Final = re.compile(r"(?:^|/)0*([1-9]\d{0,8})/?$")
_MAX_NUMBER: Final = 1_000_000_000
WAIT_S: Final = 20
"""How long the service may hold an answer back until a followed log grows."""
REST_S: Final = 1.0
"""The pause after an answer without new output: a service may answer at once, although it was asked to wait."""
NOT_OFFERED: Final = Unavailable("This service does not offer results of runs. It is asked again tomorrow.")


class ServiceExtension(Struct, frozen=True):
    """The service's own data about runs; refusals are `Unavailable`, other failures an `ApiError`."""

    client: Client
    is_missing: Callable[[], Awaitable[bool]]
    """Whether the service reported within the last day that it has no results."""
    note_missing: Callable[[], Awaitable[None]]

    async def turns(self, run_id: str) -> RunTurns | Unavailable:
        """The run's turns as the service reports them."""
        return await self.ask(lambda client: client.run_detail(run_id))

    async def page(self, run_id: str) -> str | None:
        """The address of the run's page at the service; None if there is no page or it is unknown."""
        turns = await self.turns(run_id)
        return None if isinstance(turns, Unavailable) else turns.url

    async def reason(self, run_id: str) -> str:
        """Why the run's last turn failed; empty: unknown, or the service cannot be asked."""
        turns = await self.turns_now(run_id)
        if turns is None or not turns.turns:
            return ""
        return turns.turns[-1].reason or ""

    async def turns_now(self, run_id: str) -> RunTurns | None:
        """The run's turns, empty if the service does not know them; None: it cannot be asked now."""
        try:
            turns = await self.turns(run_id)
        except ApiError:
            return None
        return RunTurns(run_id, ()) if isinstance(turns, Unavailable) else turns

    async def log(
        self, run_id: str, turn: int, *, offset: int = 0, wait_s: int = 0, before: int | None = None
    ) -> LogChunk | Unavailable:
        """A piece of a turn's log, see `Client.run_log`."""
        return await self.ask(lambda client: client.run_log(run_id, turn, offset=offset, wait_s=wait_s, before=before))

    async def failure_facts(self) -> FailureFacts | Unavailable:
        """The subjects of failed runs; an older service may have the rest, but not this."""
        if await self.is_missing():
            return NOT_OFFERED
        try:
            return await self.client.failure_facts()
        except (NotFoundError, NotOfferedError, RejectedError, UnusableAnswerError):
            return NOT_OFFERED

    async def ask(self, question: Callable[[Client], Awaitable[T]]) -> T | Unavailable:
        """The answer to a request for results of runs."""
        if await self.is_missing():
            return NOT_OFFERED
        try:
            return await question(self.client)
        except NotOfferedError:
            await self.note_missing()
            return NOT_OFFERED
        except (NotFoundError, RejectedError) as error:
            return Unavailable(f"The service says: {error.message}")


def pull_number(raw_json: str) -> int | None:
    """The number of a run's pull or merge request, if the service has one."""
    try:
        run = json.loads(raw_json)
    except ValueError:
        return None
    for pull in [run.get(key) for key in (*_PULL_KEYS, *_MERGE_KEYS)] if isinstance(run, dict) else []:
        for value in map(pull.get, _NUMBER_KEYS) if isinstance(pull, dict) else (pull,):
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_NUMBER:
                return value
            # A pull request's address ends with its number.
            if isinstance(value, str) and (match := _NUMBER.search(value)):
                return int(match[1])
    return None
