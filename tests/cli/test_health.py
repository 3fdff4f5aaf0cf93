import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.health.command import ExitLevel, HostView, detail
from storage.records import PlatformHealth
from tests.cli.conftest import CommandLine
from tests.lab import Respond, Server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EMPTY = "The inbox is empty.\n"


def hosts(**statuses: str) -> Respond:
    return Respond(200, {"code_hosting": {platform: {"status": status} for platform, status in statuses.items()}})


@pytest.mark.parametrize(
    ("answer", "code", "word"),
    [
        (hosts(github="ok"), 0, "OK"),
        (hosts(github="OK", gitlab="degraded"), 1, "WARNING"),
        (hosts(github="degraded", gitlab="unreachable"), 2, "CRITICAL"),
        (hosts(github="a word nobody knows"), 2, "CRITICAL"),
        (hosts(), 3, "UNKNOWN"),
        (Respond(200, {"code_hosting": {"github": None}}), 3, "UNKNOWN"),
        (Respond(200, {"code_hosting": {"github": {"status": None, "host": 3, "group": []}}}), 3, "UNKNOWN"),
        (Respond(200, {"code_hosting": {"github": {}, "gitlab": {"status": "ok"}}}), 3, "UNKNOWN"),
        (Respond(200, {"code_hosting": {"github": None, "gitlab": {"status": "ok"}}}), 0, "OK"),
        (Respond(200, {"code_hosting": {"github": {}, "gitlab": {"status": "down"}}}), 2, "CRITICAL"),
        (Respond(200, {"code_hosting": {"github": {}, "gitlab": {"status": "degraded"}}}), 1, "WARNING"),
        (Respond(200, {"code_hosting": {"github": 0}}), 2, "CRITICAL"),
        (Respond(404, {"message": "no installation"}), 3, "UNKNOWN"),
        (Respond(401, {"message": "who?"}), 3, "UNKNOWN"),
        (Respond(200, b"{"), 3, "UNKNOWN"),
    ],
)
def test_the_exit_code_is_a_plugins(faulty: CommandLine, server: Server, answer: Respond, code: int, word: str) -> None:
    """0 ok, 1 warning, 2 critical, 3 unknown: the worst host that is known counts.

    A link that is down says nothing of hosts, and neither does a host without a status.
    """
    server.script(answer, answer)

    line, document = faulty("health"), faulty("health", "--json")

    assert (line.code, document.code) == (code, code)
    assert line.out.startswith(f"RUNWARDEN {word} - ")
    parsed: dict[str, Any] = document.json()
    assert parsed.get("status", "unknown") == word.lower()
    assert ("error" in parsed) == (answer.status not in {200, 404} or answer.body == b"{")


def test_unreachable_is_unknown_and_what_was_seen_stays_readable(faulty: CommandLine, server: Server) -> None:
    """`--cached` shows the last answer."""
    server.script(hosts(github="degraded"))
    faulty("health")
    server.close()

    down, cached = faulty("health", "--json"), faulty("health", "--cached", "--json")

    assert (down.code, down.json()["error"]["kind"]) == (3, "unreachable")
    assert down.json()["status"] == "unknown"
    assert (cached.code, cached.json()["source"], cached.json()["status"]) == (1, "cache", "warning")


def test_even_a_mistake_is_unknown(lone: CommandLine) -> None:
    """A monitoring system reads 2 as critical; a typing error is not."""
    for arguments in (["--bogus"], ["--config", "/nowhere.toml"]):
        result = lone("health", *arguments)
        assert (result.code, result.out.startswith("RUNWARDEN UNKNOWN - ")) == (3, True)


def test_a_host_is_printed_as_received_until_it_is_disconnected(faulty: CommandLine, server: Server) -> None:
    """With fields that no spec names; ours have a name of their own. A healthy host that is gone raises no alarm."""
    odd = {"status": "ok", "version": "17.1", "group": None}
    both = Respond(200, {"code_hosting": {"github": {"status": "ok"}, "gitlab": odd}})
    server.script(both, hosts(github="ok"))

    before, after = faulty("health", "--json"), faulty("health", "--json")

    gitlab = before.json()["code_hosting"]["gitlab"]
    observed = gitlab.pop("observed")
    assert (gitlab, observed["connected"]) == (odd, True)
    assert (before.code, after.code) == (0, 0)
    assert set(after.json()["code_hosting"]) == {"github"}


@pytest.mark.parametrize("gone", [hosts(github="ok"), Respond(404, {"message": "no installation"})])
def test_a_host_that_is_gone_while_it_is_down_is_neither_bad_nor_recovered(
    faulty: CommandLine, server: Server, gone: Respond
) -> None:
    """It is unknown for a day, in the exit code, in JSON and in the inbox; named again, it has recovered."""
    server.script(hosts(github="ok", gitlab="unreachable"), gone, gone, hosts(github="ok", gitlab="ok"))
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


def test_health_that_could_not_be_read_for_long_is_not_what_was_last_seen(faulty: CommandLine, server: Server) -> None:
    """Neither for `--cached`, nor in the inbox, nor in a snapshot."""
    server.script(hosts(github="ok"), Respond(503), Respond(503))
    faulty("health")
    assert (faulty("health").code, faulty("health", "--cached").code, faulty("inbox").err) == (3, 0, EMPTY)
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


def test_a_host_that_was_seen_once_has_no_beginning() -> None:
    """`since 0s ago` would be when it was asked, not when it began."""
    for since, old, said in (
        (timedelta(hours=-3), "degraded", "github: ok since 3h ago"),
        (timedelta(0), None, "github: ok, since when is not known yet"),
        (timedelta(0), "degraded", "github: ok, degraded when last asked"),
    ):
        host = PlatformHealth("github", "ok", None, None, NOON + since, NOON, connected=True, before=old)
        assert detail(HostView(host, ExitLevel.OK, NOON)) == said
