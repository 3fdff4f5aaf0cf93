"""The service's API: records in, records out, every failure an `ApiError`."""

from copy import copy
from typing import Any, Final, Self
from urllib.parse import quote

from app.api import wire
from app.api.budget import Budget, Priority
from app.api.errors import NotFoundError, NotSendableError
from app.api.network import Network
from app.api.requests import ALL_RUNS, Answer, ContinueRun, RunQuery, StartRun, WriteRequest, agent_segment, as_json
from app.api.transport import Call, CommitHook, Reply, Transport
from app.engine.times import rfc3339
from app.profiles.token import Token, TokenError, TokenSource
from storage.records import WRITE_KINDS, HealthSample, RunPage
from storage.records.organization import Invitation, NamedAgent
from storage.records.results import Artifact, Change, FailureFacts, LogChunk, RunTurns

_RESULTS: Final = "results of runs"
_MAX_PATCH: Final = 64 << 20
"""The size of the largest change that a service keeps without pushing it."""
_ARTIFACT_S: Final = 600.0
"""How much longer than other answers a large file may take."""


class Client:
    """One service with one token; connections are kept between reads. Used and closed on one loop.

    Each request raises `ApiError`, see `app.api.errors`: `NotOfferedError` for an extension that the service does not
    offer, so that asking again within a day is useless.
    """

    def __init__(
        self,
        base_url: str,
        token: Token | TokenError | None,
        *,
        deadline_s: float = 20.0,
        budget: Budget | None = None,
        network: Network | None = None,
        source: TokenSource | None = None,
    ) -> None:
        """Prepare, without any I/O; `ValueError` if `app.profiles.values.base_address` refuses the address.

        Each request must be answered in full within `deadline_s`. Where the token is an error, it fails with
        `NoTokenError`. A refused token is read again from `source`, if that may hold another.
        """
        self.budget = budget or Budget()
        """Every request through this client waits here for its turn."""
        self.transport = Transport(base_url, token, deadline_s, self.budget.read_headers, network or Network(), source)
        self.base_url = self.transport.base_url
        """Where requests go; it holds no credentials."""
        self.priority = Priority.ASKED

    def at(self, priority: Priority) -> Self:
        """This client with another priority; it shares budget and connections, and is closed with this one."""
        other = copy(self)
        other.priority = priority
        return other

    async def aclose(self) -> None:
        """Close all connections, and share the last answers' budget with other processes."""
        await self.transport.aclose()
        await self.budget.settle()

    async def list_runs(
        self, query: RunQuery = ALL_RUNS, *, page_size: int = 100, page_token: str | None = None
    ) -> RunPage:
        """One page of runs, newest first (spec 4.2)."""
        # The spec leaves the filter's form open (2.9): the path if there is one, otherwise the reference in two parts.
        place = dict[str, str]()
        repository = query.repository
        if repository is not None and repository.path == repository.data_json:
            place = {"platform": repository.platform, "data": repository.data_json}
        elif repository is not None:
            place = {"repository": repository.path}
        parameters = {
            "page_size": str(page_size),
            "page_token": page_token,
            "status": query.status,
            **place,
            "date_from": rfc3339(query.since),
            "date_to": rfc3339(query.until),
        }
        pairs = [(name, value) for name, value in parameters.items() if value is not None]
        return wire.run_page((await self._read(Call("/external/runs", pairs))).body)

    async def health(self) -> tuple[HealthSample, ...]:
        """The health of the connected code hosts; empty if the service knows of no installation (spec 4.5)."""
        try:
            return wire.health_report((await self._read(Call("/external/installation/health"))).body)
        except NotFoundError:
            return ()

    async def send(
        self, request: WriteRequest, *, before_first_byte: CommitHook, body_json: str | None = None
    ) -> Answer:
        """Send a write once (spec 4.1, 4.3, 4.4, 4.6), by default with a body made from the request.

        `before_first_byte` is awaited just before the first byte leaves; its error is passed on, and nothing was
        sent. An `ApiError` has its known effect in `surely_not_sent` and `may_have_been_executed`.
        """
        body = as_json(request) if body_json is None else body_json
        try:
            call = Call(request.path, body=body)
            if isinstance(request, ContinueRun) and request.start_from is not None:
                call = Call(StartRun.address, (("start_from", request.start_from),), body)
        except ValueError as error:
            raise NotSendableError(f"The request cannot be sent: {error}") from error
        with wire.translate_absence(WRITE_KINDS[request.kind].extension, is_write=True):
            async with self.budget.turn(Priority.WRITE):
                reply = await self.transport.exchange(call, before_first_byte=before_first_byte)
        return wire.answer(request, reply.status, reply.body)

    async def agents(self) -> tuple[NamedAgent, ...]:
        """The agents that may be started, if the service lists them (docs/dev/api.md)."""
        return wire.named_agents(await self._read(Call("/external/agents"), "a list of agents"))

    async def invitations(self) -> tuple[Invitation, ...]:
        """The invitations with their states, newest first, if the service reports them."""
        rows = wire.read_list(await self._invitations(), "invitations")
        return tuple(wire.record(Invitation, row) for row in rows)

    async def may_create_organizations(self) -> bool:
        return (await self._invitations()).get("may_create") is True

    async def _invitations(self) -> dict[str, Any]:
        return wire.read((await self._read(Call("/external/invitations"), "invitations")).body)

    async def failure_facts(self) -> FailureFacts:
        """The questions and cancellations behind failed runs, newest first (docs/dev/api.md)."""
        reply = await self._read(Call("/external/questions"), "questions of agents")
        return wire.record(FailureFacts, {"questions": None, **wire.read(reply.body)})

    async def run_detail(self, run_id: str) -> RunTurns:
        """A run's turns, if the service offers them (docs/dev/api.md); `NotFoundError`: there is no such run."""
        return wire.run_turns(await self._read(Call(_of_run(run_id)), _RESULTS))

    async def run_log(
        self, run_id: str, turn: int, *, offset: int = 0, wait_s: int = 0, before: int | None = None
    ) -> LogChunk:
        """A piece of a turn's log from an offset on, counted from the end if negative.

        With `before` it comes as steps, if the service knows them, and ends there; 0: at the log's end. Without new
        output, the answer waits up to `wait_s` (at most 30) for more.
        """
        query = [("offset", str(offset)), ("wait", str(wait_s))]
        if before is not None:
            query += [("form", "steps"), ("before", str(before))]
        call = Call(_of_run(run_id, f"/turns/{turn}/log"), query, patience_s=wait_s)
        return wire.log_chunk(await self._read(call, _RESULTS), offset, before)

    async def run_diff(self, run_id: str, turn: int | None = None) -> Change:
        """The change of a turn, or of the whole run (None)."""
        below = "/diff" if turn is None else f"/turns/{turn}/diff"
        call = Call(_of_run(run_id, below), most_bytes=_MAX_PATCH)
        return wire.change(await self._read(call, _RESULTS), turn)

    async def run_artifact(self, run_id: str, turn: int, artifact: Artifact) -> bytes:
        path = _of_run(run_id, f"/turns/{turn}/artifacts/{quote(artifact.name, safe='/')}")
        call = Call(path, patience_s=_ARTIFACT_S, most_bytes=artifact.bytes)
        return (await self._read(call, _RESULTS)).body

    async def _read(self, call: Call, extension: str = "") -> Reply:
        with wire.translate_absence(extension):
            return await self.budget.in_turn(self.priority, lambda: self.transport.exchange(call))


def _of_run(run_id: str, below: str = "") -> str:
    try:
        return f"/external/runs/{agent_segment(run_id)}{below}"
    except ValueError as error:
        raise NotSendableError(f"The request cannot be sent: {error}") from error
