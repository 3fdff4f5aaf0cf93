"""Delivery: real sinks receive what is told, at least once and under one number, and nothing foreign becomes markup."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from app.config import NotifyRoute, NotifySettings
from app.notify.delivery import rendered, send
from app.notify.dispatcher import BACKOFF
from storage.claims import Owner
from storage.errors import DiskFullError
from storage.records.alert import Delivery, Message
from tests.lab import Respond, Server
from tests.notify.conftest import Desk
from tests.service.mail_servers import MailServer

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOSTILE = "x\x1b[31m<b> <!channel> @everyone [pay](http://evil.example) <http://evil.example|here>\u202e\x9b2J"
MESSAGE = Message(
    "oncall",
    ":failed",
    "new",
    "error",
    "Run failed: acme/api",
    f"{HOSTILE} · run_1",
    ("failed:acme/api",),
    {"branch": HOSTILE},
)
DELIVERY = Delivery(7, MESSAGE, NOW, NOW)


async def tell(route: NotifyRoute) -> str | None:
    """A failed run, told over this route."""
    return await send(NotifySettings(routes=(route,)), DELIVERY, "acme", os.environ)


def route(folder: Path, *urls: str, **more: Any) -> NotifyRoute:
    """A route whose addresses are in a file that its owner alone can read."""
    file = folder / "urls"
    file.write_text("\n".join(["# ours", *urls]))
    file.chmod(0o600)
    return NotifyRoute("oncall", urls_file=file, **more)


async def test_every_kind_of_sink_gets_it_without_foreign_markup(server: Server, tmp_path: Path) -> None:
    """JSON, form, XML, ntfy and a chat; neither controls, nor a mention, nor a link with a text of its own."""
    server.otherwise = lambda _: Respond(200, b"{}")
    host = server.origin.removeprefix("http://")
    kinds = [f"{kind}://{host}/{kind}" for kind in ("json", "form", "xml", "ntfy")]
    one = route(tmp_path, *kinds, f"mmost://{host}/abcdefghijklmnopqrstuvwxyz", markup="markdown")

    assert await tell(one) is None

    sent = {request.path.split("/")[1]: request.body.decode() for request in server.requests}
    assert sorted(sent) == ["", "form", "hooks", "json", "xml"]
    assert json.loads(sent["json"])["title"] == "Run failed: acme/api"
    assert json.loads(sent[""])["topic"] == "ntfy"
    assert "[7]" in parse_qs(sent["form"])["message"][0].replace("\\", "")
    for body in (*sent.values(), json.loads(sent["hooks"])["text"], parse_qs(sent["form"])["message"][0]):
        text = body.replace("\\u", "")
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
        assert not any(word in text for word in ("<!channel", "@everyone", "](http", "<http", "<b>"))


async def test_mail_arrives(tmp_path: Path) -> None:
    """At a real SMTP server."""
    server = await asyncio.to_thread(MailServer)
    try:
        url = f"mailto://127.0.0.1:{server.port}/?mode=insecure&from=bot@example.com&to=ann@example.com"
        assert await tell(route(tmp_path, url)) is None
    finally:
        await asyncio.to_thread(server.close)

    (message,) = server.messages
    assert message["subject"] == "Run failed: acme/api"
    assert "<b>" not in message.get_body(("html", "plain")).get_content()  # type: ignore[union-attr] # it has one


@pytest.mark.parametrize("answer", [Respond(500), Respond(302, headers={"Location": "/elsewhere"})])
async def test_what_is_not_taken_is_a_failure_that_names_no_address(
    server: Server, tmp_path: Path, answer: Respond
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
    """As the command of [notify] does; with the number, which stands in the text as well."""
    out = tmp_path / "out"
    program = "import sys; open(sys.argv[1], 'w').write('|'.join(sys.argv[2:]))"
    argv = (sys.executable, "-S", "-c", program, str(out), "{title}", "{kind}", "{count}", "{id}", "{body}")

    assert await tell(NotifyRoute("oncall", command=argv)) is None
    title, kind, count, number, body = out.read_text().split("|", 4)
    assert (title, kind, count, number) == ("Run failed: acme/api", "failed", "1", "7")
    assert body.endswith("run_1 [7]")


@pytest.mark.parametrize("markup", ["text", "markdown", "html"])
def test_no_markup_lets_foreign_text_mention_or_link(markup: Any) -> None:
    """Neither controls, nor a mention, nor a link with a text of its own."""
    text = rendered(DELIVERY, NotifyRoute("oncall", markup=markup), "acme", markup)[1]

    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert not any(word in text for word in ("<!channel", "@everyone", "](http", "<http", "<b>"))


def test_a_route_has_its_own_words() -> None:
    """Its own markup stays, what is filled in is none; the number is added where the words leave it out."""
    own = NotifyRoute("r", title="*{title}* @ops", text="on {branch}{branch", markup="markdown", repeat=BACKOFF[0])
    hostile = Delivery(8, replace(MESSAGE, about={"branch": "*a* {id}"}), NOW, NOW, origin=7)

    assert rendered(hostile, own, "acme", "markdown") == ("*Run failed: acme/api* @ops", r"on \*a\* \{id\}{branch [7]")
    assert rendered(DELIVERY, replace(own, text="{id}"), "acme", "text")[1] == "7"
    text = rendered(DELIVERY, replace(own, text=""), "acme", "text", "runwarden --config '{id}.toml'")[1]
    assert text.endswith("· runwarden --config '{id}.toml' notify ack 7 [7]")


FAILS = """
[notify.routes.oncall]
command = ["false"]
fallback = "team"
[notify.routes.team]
command = ["true"]
[[notify.rules]]
route = "oncall"
"""


async def test_what_fails_is_tried_again_and_then_told_elsewhere(desk: Desk) -> None:
    """With longer and longer pauses, and under its number; the failure stays known."""
    dispatcher = await desk.began(FAILS)
    await desk.world.run("run_1", "failed")
    await desk.pass_(dispatcher, looks=2, seconds=30)
    for pause in BACKOFF:
        assert await desk.deliver(dispatcher) == ["delivery_failed"]
        assert await desk.deliver(dispatcher) == []
        desk.world.now += pause
    assert await desk.deliver(dispatcher) == ["failed"]
    assert await desk.deliver(dispatcher) == ["delivered"]
    assert (desk.said[0]["route"], desk.said[0]["delivery"]) == ("team", 1)

    (failed,) = await desk.state.recent_deliveries(outcome="failed")
    assert failed.error == "false ended with 1: it said nothing."
    assert await desk.state.delivery_counts() == {("oncall", "failed"): 1, ("team", "delivered"): 1}
    assert await desk.deliver(dispatcher) == []


async def test_what_a_dead_process_was_delivering_is_delivered_by_the_next(desk: Desk) -> None:
    """At once, under the same number; a living one's is left to it; what is too old by then is not sent."""
    dispatcher = await desk.began(FAILS.replace("false", "true"))
    await desk.world.run("run_1", "failed")
    await desk.pass_(dispatcher, looks=2, seconds=30)
    (due,) = await desk.state.due_deliveries(desk.world.now)
    assert await desk.state.claim_delivery(due, desk.world.now, desk.world.now + BACKOFF[-1])
    assert not await desk.state.claim_delivery(due, desk.world.now, desk.world.now + BACKOFF[-1])
    assert await desk.deliver(dispatcher) == []

    await desk.owned_by(Owner(2**22 + 1, "1", "?", "?"))
    assert await desk.deliver(desk.dispatcher(FAILS.replace("false", "true"))) == ["delivered"]
    assert desk.said[0]["delivery"] == due.number

    await desk.world.run("run_1", "completed")
    await desk.pass_(dispatcher, minutes=9)
    desk.world.pass_(days=90)
    assert await desk.deliver(dispatcher) == ["expired"]


async def test_a_state_that_fails_during_a_delivery_is_one_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere else: a command and a console show it with its cure, without a group around it."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    await dispatcher.look(at_once=True)

    async def settle(*_: object, **__: object) -> None:
        raise DiskFullError("No space left.", path=Path("state.sqlite3"))

    monkeypatch.setattr(desk.state, "settle_delivery", settle)
    with pytest.raises(DiskFullError):
        await desk.deliver(dispatcher)
