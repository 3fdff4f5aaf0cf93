"""Telling: Apprise's own servers' protocols, received by real sinks."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.automations.telling import Telling
from app.config import NotifyRoute, NotifySettings
from app.rules.rule import DoNotify
from storage.records.decision import Decision, Occurrence
from tests.fault_server import FaultServer, Respond
from tests.service.mail_servers import MailServer

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FACTS = {"run.repository": "acme/api", "run.status": "failed", "run.branch": "x\x1b[31m<b>", "run.id": "run_1"}


async def tell(route: NotifyRoute, **facts: str) -> str | None:
    """A failed run, told over this route."""
    decision = Decision(7, "r", Occurrence("run:run_1:failed", NOW), NOW, "acting", "")
    return await Telling(NotifySettings(routes=(route,)), "acme").tell(DoNotify(route.name), decision, FACTS | facts)


def route(folder: Path, *urls: str) -> NotifyRoute:
    """A route whose addresses are in a file that its owner alone can read."""
    file = folder / "urls"
    file.write_text("\n".join(["# ours", *urls]))
    file.chmod(0o600)
    return NotifyRoute("oncall", urls_file=file)


async def test_one_notification_reaches_every_kind_of_sink(server: FaultServer, tmp_path: Path) -> None:
    """JSON, form and XML over HTTP; nothing of a terminal's is in it, and an id that tells repetitions apart."""
    server.otherwise = lambda _: Respond(200, b"{}")
    host = server.origin.removeprefix("http://")

    assert await tell(route(tmp_path, *(f"{kind}://{host}/{kind}" for kind in ("json", "form", "xml")))) is None

    paths = sorted(request.path for request in server.requests)
    assert paths == ["/form", "/json", "/xml"]
    (sent,) = [json.loads(request.body) for request in server.requests if request.path == "/json"]
    assert sent["title"] == "r: acme/api failed"
    assert sent["message"].endswith("· run_1 · acme [7]")
    assert "\x1b" not in sent["message"]


async def test_mail_arrives(tmp_path: Path) -> None:
    """At a real SMTP server."""
    server = await asyncio.to_thread(MailServer)
    try:
        url = f"mailto://127.0.0.1:{server.port}/?mode=insecure&from=bot@example.com&to=ann@example.com"
        assert await tell(route(tmp_path, url)) is None
    finally:
        await asyncio.to_thread(server.close)

    (message,) = server.messages
    assert message["subject"] == "r: acme/api failed"


@pytest.mark.parametrize("answer", [Respond(500), Respond(302, headers={"Location": "/elsewhere"})])
async def test_what_is_not_taken_is_a_failure_that_names_no_address(
    server: FaultServer, tmp_path: Path, answer: Respond
) -> None:
    """A redirect, too: it would have swallowed the text."""
    server.otherwise = lambda _: answer
    host = server.origin.removeprefix("http://")

    trouble = await tell(route(tmp_path, f"json://user:secret@{host}/"))

    assert trouble == "Route oncall: 1 of 1 addresses did not take it."
    assert {request.path for request in server.requests} == {"/"}


async def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """It holds secrets; the cure is named."""
    one = route(tmp_path, "json://127.0.0.1:9/")
    assert one.urls_file is not None
    one.urls_file.chmod(0o644)

    assert "chmod 600" in (await tell(one) or "")
    assert "has no address" in (await tell(NotifyRoute("oncall", urls_env="NOT_SET")) or "")


async def test_a_command_of_a_route_gets_the_facts(tmp_path: Path) -> None:
    """As the command of [notify] does."""
    out = tmp_path / "out"
    program = "import sys; open(sys.argv[1], 'w').write('|'.join(sys.argv[2:]))"
    argv = (sys.executable, "-c", program, str(out), "{title}", "{run_id}", "{status}")

    assert await tell(NotifyRoute("oncall", command=argv)) is None
    assert out.read_text() == "r: acme/api failed|run_1|failed"
