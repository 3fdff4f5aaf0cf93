"""The model proxy: adds the key to requests, counts tokens, keeps the budget, and waits while the provider is away."""

import contextlib
import http.client
import itertools
import json
import random
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from service.agents.options import ModelAccess
from service.agents.outcome import Ending, TurnFailure
from service.agents.prices import Price, price_of
from service.egress import refusals
from service.egress.budget import BudgetSpentError, SpendingWatch, UsageMeter
from service.egress.door import Door
from service.egress.key import ModelKey, NoKeyError
from service.egress.outages import Outages, Pause
from service.egress.refusals import Refusal
from service.egress.routes import (
    PROVIDERS,
    BlockedRequestError,
    ClosedPathError,
    check_model,
    models_in,
    read_body,
    route_of,
)
from service.egress.usage import Meter

_LONGEST_REQUEST: Final = 64 << 20
_PASSED_BACK: Final = ("content-type", "retry-after", "request-id", "x-request-id")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]{1,8}")
_ELSEWHERE: Final = 3
"""The first digit of a redirect's status."""
_CONNECT_S: Final = 20.0
SILENT_S: Final = {True: 300.0, False: 600.0}
"""How long a stream, and an answer that comes as a whole, may be silent."""
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""How long a request is held before it is made again; the last one counts for all further."""
_SPREAD: Final = 0.25
"""The share by which a pause varies, as many agents may wait for one provider."""
_LOOK_S: Final = 0.5
_GOOD: Final = 2
"""The first digit of a successful status."""
_NOT_THIS_KEY: Final = frozenset({401, 403})
_CHUNK: Final = 65_536
_LONGEST_REFUSAL: Final = 64 << 10
_PASSED_ON: Final = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")


class Visit(BaseHTTPRequestHandler):
    """One connection from an agent."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, answer: Callable[["Visit"], None]) -> None:
        self._answer = answer
        self._is_away = False
        super().__init__(connection, "agent", None)  # type: ignore[arg-type]  # no server and no address are needed

    def do_GET(self) -> None:
        """Answer."""
        self._is_away = False
        self._answer(self)

    do_POST = do_GET
    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def log_message(self, *_: Any) -> None:
        """Log nothing: single requests do not belong in the agent's log."""

    def body(self) -> bytes:
        """Read the request's body.

        Raises:
            BlockedRequestError: It is too long.
        """
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            whole = bytearray()
            while True:
                given = self.rfile.readline(64).partition(b";")[0].strip()
                if not _HEXADECIMAL.fullmatch(given) or len(whole) + int(given, 16) > _LONGEST_REQUEST:
                    self.close_connection = True
                    raise BlockedRequestError("its body is too long, or cannot be read")
                piece = self.rfile.read(int(given, 16))
                self.rfile.readline(8)
                if not piece:
                    return bytes(whole)
                whole += piece
        stated = self.headers.get("content-length") or "0"
        length = int(stated) if stated.isascii() and stated.isdigit() else _LONGEST_REQUEST + 1
        if length > _LONGEST_REQUEST:
            self.close_connection = True
            raise BlockedRequestError("its body is too long")
        return self.rfile.read(length)

    def refuse(self, status: int, reason: str) -> None:
        """Answer with an error in a shape that every provider's clients can read."""
        error = {"type": "permission_error", "code": status, "status": "PERMISSION_DENIED", "message": reason}
        text = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def is_gone(self) -> bool:
        """Whether the agent has closed its connection."""
        watch = select.poll()
        watch.register(self.connection, select.POLLIN)
        try:
            # A socket with a time-out waits for the first byte, whatever the flags say.
            return bool(watch.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def begin(self, answer: http.client.HTTPResponse) -> None:
        """Begin to pass an answer back."""
        # A redirect is an error, and is not followed: the key is for one host only.
        self.send_response(502 if answer.status // 100 == _ELSEWHERE else answer.status)
        for name in _PASSED_BACK:
            if value := answer.headers.get(name):
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send(self, piece: bytes) -> None:
        """Pass a piece on, unless the agent has gone."""
        try:
            if not self._is_away:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            self._is_away = self.close_connection = True

    def finish_answer(self) -> None:
        """End the answer."""
        if not self._is_away:
            self.wfile.write(b"0\r\n\r\n")


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    """The path with its query, without a key."""
    body: bytes
    headers: dict[str, str]
    model: str
    """Empty: the request costs nothing."""
    silent_s: float
    """How long the provider may be silent."""


class ModelProxy(Door):
    """An agent's access to its model for one turn; this process sends `key` only to the provider.

    While the provider is away, the agent's requests are held and made again, for `patience_s` in all.
    """

    def __init__(
        self,
        path: Path,
        access: ModelAccess,
        key: ModelKey,
        ledger: UsageMeter,
        patience_s: float,
        models: tuple[str, ...] = (),
        report: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Open the door; `models`: the only ones that may be asked, empty: any. `report`: writes to the turn's log."""
        self._access = access
        self._provider = PROVIDERS[access.provider]
        self._base = urlsplit((access.base_url or self._provider.base_url).rstrip("/"))
        self._key = key
        self._models = models
        self._report = report
        self._budget = SpendingWatch(access, ledger)
        self._outages = Outages(patience_s, ledger.is_away_for_all)
        self.has_answered = False
        """Whether the model answered at all."""
        self.trouble: TurnFailure | None = None
        """Why the last request that costs something failed; None: it was answered."""
        self.ending: Ending | None = None
        """How the last answer ended; None: as it should."""
        self.answered_by = "the model"
        """Who gave the last answer."""
        self.end: TurnFailure | None = None
        """Why the agent has to be ended."""
        self.overspent: TurnFailure | None = None
        """Why the turn fails even if its agent makes no further request."""
        self.waiting = 0
        """How many requests are with the provider, or are held because it is away."""
        self._counting = threading.Lock()
        super().__init__(path)

    @property
    def pause(self) -> Pause | None:
        """What the turn would wait for if it ended now; None: it is no provider, or this turn alone gets no answer."""
        return self._outages.pause

    def serve(self, inside: socket.socket) -> None:
        """Answer the requests of one connection."""
        inside.settimeout(SILENT_S[False])
        Visit(inside, self.answer)

    def answer(self, visit: Visit) -> None:
        """Pass one request on, and its answer back."""
        try:
            request = self._checked(visit)
            if self.end is not None:
                visit.refuse(403, self.end.text)
                return
            price = price_of(request.model, self._access.prices)
            budget = self._access.budget
            if request.model and price is None and (budget.run_usd or budget.day_usd):
                text = f"there is no price for the model {request.model!r}: add it to prices of the agent"
                raise BlockedRequestError(text)  # noqa: TRY301 — refused as any other
            with self._counted(), self._budget.request(len(request.body), price, is_free=not request.model):
                self._forward(visit, request, price)
        except BudgetSpentError as error:
            self._fail(TurnFailure("out_of_budget", f"{error}; the agent was stopped"), is_final=True)
            visit.refuse(403, str(error))
        except BlockedRequestError as error:
            self._report(str(error), f"model: {error}")
            if not isinstance(error, ClosedPathError):
                self._fail(TurnFailure("failed", f"the model's proxy refused a request: {error}"))
            visit.refuse(403, str(error))
        except NoKeyError as error:
            self._fail(TurnFailure("no_key", str(error)), is_final=True)
            visit.refuse(403, str(error))
        except OSError:
            raise
        except Exception:
            self._fail(
                TurnFailure("failed", "what the model used cannot be recorded; the service's log says why"),
                is_final=True,
            )
            raise

    def _checked(self, visit: Visit) -> _Request:
        # The target as it was sent: the library's own reading drops slashes.
        # What is refused is read as well: it would be taken for the next request.
        body = visit.body()
        route = route_of(self._provider, visit.command, visit.requestline.split()[1])
        model, is_stream, path, query = "", False, route.path, route.query
        if route.is_billed:
            document = read_body(body)
            model = (route.model or str(document.get("model") or "unknown"))[:200]
            for name in (model, *models_in(document)):
                check_model(name, self._models)
            is_stream = bool(document.get("stream")) or "stream" in path
            if path.endswith("completions") and document.get("stream"):
                # Without this option, a stream does not report its usage.
                asked = document.get("stream_options")
                document["stream_options"] = (asked if isinstance(asked, dict) else {}) | {"include_usage": True}
                body = json.dumps(document).encode()
        headers = {name: value for name in _PASSED_ON if (value := visit.headers.get(name))}
        headers |= {name: value for name, value in visit.headers.items() if name.lower().startswith("anthropic-")}
        headers = {name.lower(): value for name, value in headers.items()}
        asked_for, added = headers.get("anthropic-beta"), self._access.headers.get("anthropic-beta")
        headers |= self._access.headers
        if asked_for and added:
            headers["anthropic-beta"] = f"{asked_for},{added}"
        headers["Accept-Encoding"] = "identity"
        if self._provider.place is not None:
            suffix = self._provider.place.sub("", path, count=1)
        else:
            suffix = path.removeprefix("/v1") if self._base.path.endswith("/v1") else path
        target = f"{self._base.path}{suffix}{f'?{query}' if query else ''}"
        return _Request(visit.command, target, body, headers, model, SILENT_S[is_stream])

    def _forward(self, visit: Visit, request: _Request, price: Price | None) -> None:
        begun = time.monotonic()
        for usual_s in itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1])):
            refusal = self._ask(visit, request, price)
            if refusal is None:
                return
            spread = random.uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311 — no secret
            pause_s = max(usual_s * spread, refusal.wait_s or 0)
            # What costs nothing, such as a list of models, is not worth waiting for.
            is_held = refusal.then == "ask_again" and bool(request.model)
            if not is_held or not self._hold(visit, begun, pause_s, refusal.failure):
                visit.refuse(502, refusal.failure.text)
                return

    def _hold(self, visit: Visit, begun: float, pause_s: float, failure: TurnFailure) -> bool:
        """Wait before a request is made again; False: it is not, as there is no time for that, or nobody waits."""
        until = time.monotonic() + pause_s
        if not self._outages.allows(begun, until):
            self._fail(failure, is_final=True)
            return False
        while (left_s := until - time.monotonic()) > 0:
            if visit.is_gone() or self.closed.wait(min(_LOOK_S, left_s)):
                return False
        return True

    def _ask(self, visit: Visit, request: _Request, price: Price | None, refused: str | None = None) -> Refusal | None:
        """Make a request once, and pass the answer back; return why there is none to pass back.

        A key that was refused is replaced once, if there is another.
        """
        asked_at, is_connected, answer, start = time.monotonic(), False, None, b""
        key = self._key.get(refused)
        headers = request.headers | {self._provider.header: self._provider.prefix + key}
        with self._connection() as outside:
            try:
                outside.connect()
                self.register(outside.sock)
                is_connected = True
                outside.sock.settimeout(request.silent_s)
                outside.request(request.method, request.path, request.body or None, headers)
                answer = outside.getresponse()
                start = answer.read1(_CHUNK)
                if not start and (answer.length or (request.model and answer.status // 100 == _GOOD)):
                    raise http.client.IncompleteRead(start)
                status = refusals.failed_stream(start) if answer.status // 100 == _GOOD else answer.status
                while status is not None and len(start) < _LONGEST_REFUSAL and (piece := answer.read1(_CHUNK)):
                    start += piece
            except (OSError, http.client.HTTPException) as error:
                silent_s = request.silent_s if is_connected else None
                refusal = refusals.unreachable(self._access, request.model, error, silent_s)
            else:
                if status is None:
                    self._pass_back(visit, request, price, answer, start, time.time() - (time.monotonic() - asked_at))
                    return None
                if status in _NOT_THIS_KEY and refused is None and self._key.get(key) != key:
                    return self._ask(visit, request, price, key)
                start = start.replace(key.encode(), b"[masked]") if key else start
                given = (status, dict(answer.headers), start, time.time())
                refusal = refusals.answered(self._access, request.model, *given)
            if request.model or refusal.then == "stop":
                self._fail(refusal.failure, is_final=refusal.then == "stop")
            if answer is None or refusal.then == "ask_again":
                if request.model:
                    self._outages.refused(asked_at, refusal)
                return refusal
            visit.begin(answer)
            visit.send(start)
            visit.finish_answer()
        return None

    def _pass_back(
        self,
        visit: Visit,
        request: _Request,
        price: Price | None,
        answer: http.client.HTTPResponse,
        start: bytes,
        asked_at: float,
    ) -> None:
        meter = Meter(len(request.body), answer.headers.get("content-type") or "")
        visit.begin(answer)
        is_complete, held = False, start
        try:
            meter.feed(start)
            # The answer is read to its end even if the agent has gone, so that its tokens are counted. Its last piece
            # is held until they are: an agent that has its answer may end.
            while piece := answer.read1(_CHUNK):
                visit.send(held)
                held = piece
                meter.feed(piece)
            is_complete = not answer.length and (not request.model or meter.is_whole)
        except (OSError, http.client.HTTPException):
            pass  # What has come is all there is.
        finally:
            if request.model:
                spent = self._budget.add(request.model, meter.total(is_complete=is_complete), price, asked_at)
                if spent is not None:
                    # The agent may still do what the answer says: what it changes is kept.
                    self.overspent = TurnFailure("out_of_budget", f"{spent}; the agent's last answer passed it")
        # An agent that sees the end may end as well, so that what it means is noted before.
        if request.model and not is_complete:
            broken = refusals.broken_off(self._access, request.model, meter.error)
            self._fail(broken, is_final=self._outages.broke_off())
        elif request.model:
            with self._counting:
                self.has_answered = True
                if self.end is None:
                    self._outages.answered()
                    self.trouble = None
                self.ending, self.answered_by = meter.ending, f"{request.model} of {self._access.shown}"
        visit.send(held)
        if is_complete:
            visit.finish_answer()
        else:
            # The program has seen the beginning, so only the program can ask again.
            visit.close_connection = True

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        host, port = self._base.hostname or "", self._base.port
        if self._base.scheme == "http":
            outside = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        else:
            context = ssl.create_default_context()
            outside = http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=context)
        try:
            yield outside
        finally:
            link = outside.sock
            outside.close()
            if link is not None:
                self.release(link)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self.waiting += 1
        try:
            yield
        finally:
            with self._counting:
                self.waiting -= 1

    def _fail(self, failure: TurnFailure, *, is_final: bool = False) -> None:
        with self._counting:
            self.trouble = failure
            self.end = self.end or (failure if is_final else None)
