import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.health.command import detail
from storage.records import PlatformHealth
from tests.cli.conftest import CommandLine
from tests.lab import Respond, Server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def hosts(**statuses: str) -> Respond:
    return Respond(200, {"code_hosting": {platform: {"status": status} for platform, status in statuses.items()}})


@pytest.mark.parametrize(
    ("answer", "code", "word"),
    [
        (hosts(github="ok"), 0, "OK"),
        (hosts(github="OK", gitlab="degraded"), 1, "WARNING"),
        (hosts(github="degraded", gitlab="unreachable"), 2, "CRITICAL"),
        (hosts(), 3, "UNKNOWN"),
        (Respond(200, {"code_hosting": {"github": {"status": None, "host": 3, "group": []}}}), 3, "UNKNOWN"),
        (Respond(200, b"{"), 3, "UNKNOWN"),
    ],
)
def test_health_exits_like_a_monitoring_plugin(
    faulty: CommandLine, server: Server, answer: Respond, code: int, word: str
) -> None:
    """The worst known host decides the exit code, as in monitoring plugins.

    A lost connection says nothing about hosts.
    """
    server.otherwise = lambda request: answer if request.path.endswith("/health") else Respond(200, {"runs": []})

    line, document = faulty("health"), faulty("health", "--json")

    assert (line.code, document.code) == (code, code)
    assert line.out.startswith(f"RUNWARDEN {word} - ")
    parsed: dict[str, Any] = document.json()
    assert parsed.get("status", "unknown") == word.lower()
    assert ("error" in parsed) == (answer.body == b"{")


def test_an_address_without_v1_is_named(faulty: CommandLine, server: Server) -> None:
    """Then the list of runs is missing too; a service that only has no code host yet is still unknown."""
    server.script(Respond(404, {"message": "nothing here"}), Respond(404, {"message": "nothing here"}))
    wrong = faulty("health")
    server.script(Respond(404, {"message": "no installation"}), Respond(200, {"runs": [], "next_token": None}))
    bare = faulty("health")
    server.script(hosts(github="ok"), Respond(404, {"message": "nothing here"}))
    checked = faulty("token", "check")

    assert (wrong.code, bare.code, checked.code) == (3, 3, 7)
    assert wrong.out.startswith("RUNWARDEN UNKNOWN - nothing here. Check the base address: it ends with the version")
    assert bare.out == "RUNWARDEN UNKNOWN - no code host is connected\n"
    assert "Check the base address: it ends with the version" in checked.err


def test_a_host_that_vanishes_while_down_is_unknown_for_a_day(faulty: CommandLine, server: Server) -> None:
    """The host is unknown for a day in the exit code, in JSON and in the inbox; once listed again, it has recovered."""
    gone = (hosts(github="ok"), Respond(404, {"message": "no installation"}))
    server.script(hosts(github="ok", gitlab="unreachable"), *gone, hosts(github="ok", gitlab="ok"))
    codes = [faulty("health").code]

    line, document = faulty("health"), faulty("health", "--json")
    (item,) = faulty("inbox", "--json").json()["items"]
    codes += [line.code, document.code, faulty("health").code]
    (back,) = faulty("inbox", "--json").json()["items"]

    assert codes == [2, 3, 3, 0]
    assert "gitlab no longer connected" in line.out
    assert document.json()["code_hosting"]["gitlab"]["observed"]["connected"] is False
    assert item["title"].startswith("gitlab is no longer connected; unreachable when last seen, since ")
    assert re.fullmatch(r"gitlab unreachable from [\d:]{8} to [\d:]{8}", back["title"])


def test_health_is_unknown_after_a_long_outage(faulty: CommandLine, server: Server) -> None:
    """After a long outage, `--cached`, the inbox and the snapshot show health as unknown instead of the last status."""
    server.script(hosts(github="ok"), Respond(503), Respond(503))
    faulty("health")
    assert (faulty("health").code, faulty("health", "--cached").code, faulty("inbox").err) == (
        3,
        0,
        "The inbox is empty.\n",
    )
    with closing(sqlite3.connect(next(faulty.home.rglob("cache.sqlite3")))) as cache, cache:
        cache.execute("UPDATE links SET failing_since_us = failing_since_us - 901000000")

    cached = faulty("health", "--cached")
    server.otherwise = lambda _: Respond(503)
    snapshot = faulty()

    assert cached.code == 3
    assert cached.out.startswith("RUNWARDEN UNKNOWN - code hosts unobserved since 15m")
    assert faulty("inbox", "--json").json()["items"][0]["key"] == "link:health"
    assert "code hosts unobserved since 20" in snapshot.out
    assert "github ok when last seen" in snapshot.out
    assert "ok since" not in snapshot.out


def test_a_host_seen_once_has_no_duration() -> None:
    """A host that was seen once shows no duration: `since 0s ago` would be when it was polled, not when it started."""
    for since, old, said in (
        (timedelta(hours=-3), "degraded", "github: ok since 3h ago"),
        (timedelta(0), None, "github: ok, since when is not known yet"),
        (timedelta(0), "degraded", "github: ok, degraded when last asked"),
    ):
        host = PlatformHealth("github", "ok", None, None, NOON + since, NOON, connected=True, before=old)
        assert detail(host, NOON) == said
