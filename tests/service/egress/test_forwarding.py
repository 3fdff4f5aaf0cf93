"""Forwarding: one request of a program, from a socket to a made-up provider and back."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.agents.options import ModelAccess
from service.egress.budget import MemoryMeter, SpendingWatch
from service.egress.forwarding import Forwarder, ModelRequest
from service.egress.http import AgentConnection
from service.egress.key import ModelKey
from service.egress.outages import ModelState, Outages, Patience
from service.egress.server import SandboxServer
from tests.lab import Raw, Respond, Step
from tests.service.agents.model_server import ModelServer

WHOLE = b'{"usage": {"input_tokens": 7, "output_tokens": 3}}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ASKED = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


class Closable(SandboxServer):
    """A server that nobody uses."""

    def serve(self, inside: socket.socket) -> None:
        """Serve nothing."""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


class Turn:
    """A turn with a short patience, whose program sends one request."""

    def __init__(self, server: ModelServer, folder: Path, total_s: float = 0.5) -> None:
        access = ModelAccess.model_validate({"provider": "anthropic", "key_env": "K", "base_url": server.origin})
        self.state = ModelState(Outages(Patience(total_s, 0.01, 30, 30), lambda: False))
        self.meter = MemoryMeter()
        self._server = Closable(folder / "socket")
        self._forwarder = Forwarder(
            access, ModelKey(access), SpendingWatch(access, self.meter), self.state, self._server
        )

    def ask(self, model: str = "claude-x", *, leaves: bool = False) -> bytes:
        """Return the bytes that the program receives; with `leaves` it closes its connection instead of reading."""
        program, inside = socket.socketpair()
        with program, inside, self._server:
            program.sendall(ASKED)
            agent = AgentConnection(inside)
            for _ in agent.requests():
                body = agent.body()
                if leaves:
                    program.close()
                self._forwarder.forward(agent, ModelRequest("POST", "/v1/messages", body, {}, model, None, 30))
                break
            inside.shutdown(socket.SHUT_WR)
            return b"" if leaves else b"".join(iter(lambda: program.recv(65_536), b""))


@pytest.mark.parametrize(
    "step",
    [
        Respond(200, WHOLE),
        Raw(b"HTTP/1.0 200 OK\r\n\r\n" + WHOLE),
        Raw(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + WHOLE),
        Raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n%b\r\n2b;x=y\r\n%b\r\n0\r\n\r\n"
            % (WHOLE[:7], WHOLE[7:])
        ),
    ],
)
def test_an_answer_is_passed_back_and_counted_in_any_framing(server: ModelServer, tmp_path: Path, step: Step) -> None:
    """By length, in chunks, or until the connection closes; after what announces it."""
    server.script(step)
    turn = Turn(server, tmp_path)
    head, _, body = turn.ask().partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200")
    assert b"".join(body.split(b"\r\n")[1::2]) == WHOLE, "the pieces without the lengths of the chunks"
    assert body.endswith(b"0\r\n\r\n")
    assert [usage.tokens for _, usage, _ in turn.meter.used] == [10]
    assert (turn.state.has_answered, turn.state.trouble, turn.state.answered_by) == (
        *(True, None),
        f"claude-x of {server.origin.removeprefix('http://')}",
    )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Raw(b"SSH-2.0-x\r\n\r\n"), "the server there does not speak HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), "does not speak HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\n"), "the connection was cut before an answer"),
        (Raw(b""), "the connection was cut before an answer"),
        (Raw(b"HTTP/1.1 200 OK\r\n\r\n"), "the connection was cut before an answer"),
    ],
)
def test_what_is_no_answer_is_asked_for_again_until_patience_ends(
    server: ModelServer, tmp_path: Path, step: Step, words: str
) -> None:
    """Then the program gets 502, and the turn ends with the reason."""
    server.otherwise = lambda _: step
    turn = Turn(server, tmp_path)

    assert turn.ask().startswith(b"HTTP/1.1 502")
    assert turn.state.end is not None
    assert words in turn.state.end.text
    assert len(server.requests) > 1


def test_a_redirect_is_an_error_and_is_not_followed(server: ModelServer, tmp_path: Path) -> None:
    """The key is for one host."""
    server.script(Respond(307, b"", {"Location": f"{server.origin}/elsewhere"}))

    answer = Turn(server, tmp_path).ask()

    assert answer.startswith(b"HTTP/1.1 502")
    assert b"elsewhere" not in answer
    assert [one.path for one in server.requests] == ["/v1/messages"]


def test_nothing_is_asked_again_for_an_agent_that_has_gone(server: ModelServer, tmp_path: Path) -> None:
    """Its turn is not stopped for that."""
    server.otherwise = lambda _: Respond(503)
    turn = Turn(server, tmp_path, total_s=60)
    turn.ask(leaves=True)

    assert (len(server.requests), turn.state.end) == (1, None)
