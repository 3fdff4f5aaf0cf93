"""The heartbeat is sent while the service works, and never to a forbidden address."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from app.api.network import Network
from app.automations.bot import Heartbeat
from app.profiles import NotifySettings
from tests.lab import Drop, Respond, Server


@dataclass
class Profile:
    """A watched profile with a scripted health."""

    well: bool = True
    settings: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(notify=NotifySettings(heartbeat_env="BEAT"))
    )

    async def is_healthy(self) -> bool:
        return self.well


def heartbeat(address: str, said: list[dict[str, Any]], *watched: Profile) -> Heartbeat:
    def say(event: str, **facts: Any) -> None:
        said.append({"event": event, **facts})

    return Heartbeat(watched, say, Network(env={"BEAT": address}))


async def test_the_heartbeat_is_sent_while_all_profiles_are_healthy(server: Server) -> None:
    """One unhealthy profile silences it, since silence is the alarm. It never contains the token."""
    server.otherwise = lambda _: Respond(200)
    one, said = Profile(), list[dict[str, Any]]()
    beats = heartbeat(f"{server.origin}/ping/secret?a=b", said, Profile(), one)

    for well in (True, False, True):
        one.well = well
        await beats.beat()

    assert [request.target for request in server.requests] == ["/ping/secret?a=b"] * 2
    assert "authorization" not in server.requests[0].headers
    assert (dict(beats.counts), said) == ({"taken": 2}, [])


async def test_a_failing_heartbeat_is_logged_once(server: Server) -> None:
    """The failure is logged without the address, which may be secret, and so is the recovery."""
    said: list[dict[str, Any]] = []
    server.script(Respond(500), Respond(500), Respond(302, headers={"Location": "/stolen"}), Drop(), Respond(204))
    beats = heartbeat(f"{server.origin}/secret", said, Profile())

    for _ in range(5):
        await beats.beat()

    assert [line["event"] for line in said] == ["heartbeat_failed"] * 3 + ["heartbeat_taken"]
    assert {request.path for request in server.requests} == {"/secret"}
    assert "secret" not in str(said)


async def test_the_heartbeat_needs_https_or_loopback() -> None:
    """Other addresses are refused."""
    for address in ("http://example.com/x", "ftp://127.0.0.1/x", "https:///x", "https://[x/", "x"):
        said: list[dict[str, Any]] = []
        await heartbeat(address, said, Profile()).beat()

        assert [(line["event"], "address" in line["message"]) for line in said] == [("heartbeat_failed", True)]
