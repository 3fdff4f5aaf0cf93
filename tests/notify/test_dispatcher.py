"""Each problem is notified once, repeated until it is acknowledged, and resolved, under one delivery number.

Real sinks receive it at least once, and nothing foreign becomes markup.
"""

import asyncio
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from app.api.network import Network
from app.automations.acting import make_alert
from app.automations.rule import DoNotify
from app.notify.channels import relay, render, send
from app.notify.dispatcher import BACKOFF, Dispatcher
from app.notify.plan import routes_of
from app.profiles import NotifyRoute, NotifySettings
from app.profiles.load import parse
from app.profiles.settings import DEFAULT_ROUTE, Markup
from storage.claims import Owner
from storage.errors import DiskFullError
from storage.records import PollOutcome
from storage.records.alert import Alert, Delivery, Message
from storage.records.decision import Decision, Occurrence
from storage.records.inbox import Mark
from tests.lab import Respond, Server
from tests.notify.conftest import TO_ALL, World, outward
from tests.service.servers import MailServer
from tests.waiting import present


async def test_a_storm_of_failures_is_one_message_with_its_recovery(world: World) -> None:
    """All repositories' failures are one message with one recovery; further failures wait for the interval."""
    dispatcher, names = await world.began(), [f"acme/r{number}" for number in range(50)]
    await world.storm(500, *names)
    await dispatcher.make_messages()
    assert await world.titles() == []
    world.move(seconds=30)
    await dispatcher.make_messages()
    (message,) = await world.made()
    assert re.fullmatch(r"Run failed: acme/r\d+ \(and 499 more\)", message.title)
    assert f"{names[0]} 10" in message.body
    assert "and 45 other places" in message.body

    await world.arrive()
    for name in names:
        await world.run(name, "completed", repository=name)
    await dispatcher.make_messages()
    (over,) = await world.made()
    assert over.title.startswith("Runs complete again: acme/r")
    assert "500 in all" in over.body
    assert (over.level, await world.after(dispatcher, hours=2)) == ("information", [])


async def test_failures_during_the_interval_become_one_message(world: World) -> None:
    """Failures during the interval become one message without repeats, whichever process sends it."""
    dispatcher = await world.began()
    told = []
    for number in range(5):
        await world.run(f"run_{number}", "failed")
        told += await world.after(dispatcher, seconds=40)
    assert told == ["Run failed: acme/api (and 1 more)"]
    assert await world.after(world.dispatcher(), minutes=5) == ["Run failed: acme/api (and 2 more)"]
    assert await world.after(world.dispatcher(TO_ALL + '[notify]\non = ["failed", "completed"]'), minutes=9) == []


async def test_no_recovery_is_reported_while_the_link_is_down(world: World) -> None:
    """Nothing is reported as recovered while its state is unknown; the link itself is reported."""
    dispatcher = await world.began()
    await world.run("run_1", "failed")
    assert await world.after(dispatcher, looks=2, seconds=30) == ["Run failed: acme/api"]
    await world.run("run_2", "completed")
    for _ in range(2):
        await world.link("unreachable")
        world.move(minutes=1)

    assert await world.after(dispatcher, looks=2, seconds=30) == ["No link to the service: acme"]
    await world.link()
    assert await world.after(dispatcher, seconds=30) == [
        "Runs complete again: acme/api",
        "The link to the service is back (runs)",
    ]


async def test_old_failures_are_not_notified(world: World) -> None:
    """Failures from before the bot's first start, or too old when it returns, are not notified."""
    await world.run("run_1", "failed")
    world.move(seconds=10)
    dispatcher = world.dispatcher()
    await dispatcher.make_messages()
    assert await world.after(dispatcher, minutes=10) == []
    await world.run("run_2", "failed")

    assert await world.after(world.dispatcher(), looks=2, hours=25) == []


SHARED = '[notify]\ncommand = ["true"]\n'


@pytest.mark.parametrize("first", ["console", "bot"])
async def test_console_and_bot_notify_once(world: World, first: str) -> None:
    """Whichever of them is first notifies, and the other does not repeat it, including the recovery."""
    bot, console = await world.began(SHARED), await world.watch(command=("true",))
    await world.health(github="unreachable")
    world.move(minutes=2)
    await world.health(github="unreachable")
    told: dict[str, list[str]] = {"console": [], "bot": []}
    for _ in range(2):
        for who in (first, "bot", "console"):
            if who == "bot":
                told["bot"] += await world.after(bot, looks=2, seconds=30)
            else:
                told["console"] += outward(await console.read_news())
        for _ in range(3):
            await world.health(github="ok")
            world.move(minutes=1)

    other = "bot" if first == "console" else "console"
    assert told == {first: ["Code host github is unreachable", "Code host github has recovered"], other: []}


async def test_quiet_hours_delay_notifications(world: World) -> None:
    """Problems that last are notified after quiet hours, and recoveries wait too; other routes are unaffected."""
    now = world.now.astimezone()
    hours = f"{now:%H:%M}-{now + timedelta(hours=2):%H:%M}"
    quiet = await world.began(f'{SHARED}quiet = "{hours}"')
    for run, repository in (("run_1", "acme/api"), ("run_2", "acme/web")):
        await world.run(run, "failed", repository=repository)
    assert await world.after(quiet, looks=3, minutes=20) == []
    await world.run("run_1", "completed")
    assert "unrouted" not in [line["event"] for line in world.said]

    assert await world.after(quiet, looks=2, hours=1) == ["Run failed: acme/web"]


REPEATED = """
[notify.routes.oncall]
command = ["true"]
repeat = "1h"
give_up = "6h"
[[notify.rules]]
route = "oncall"
"""
FAILED, OVER = "Run failed: acme/api", "Runs complete again: acme/api"


@pytest.mark.parametrize("how", ["muted", "snoozed", "acknowledged", "reloaded"])
async def test_each_notified_problem_has_its_recovery(world: World, how: str) -> None:
    """A recovery follows each notified problem once, whatever happened in between."""
    dispatcher = await world.began()
    await world.run("run_1", "failed")
    assert await world.after(dispatcher, looks=2, minutes=1) == [FAILED]
    later = world.now + timedelta(days=30)
    marks = {"muted": Mark(is_muted=True), "snoozed": Mark(snoozed_until=later), "acknowledged": Mark(done_until=later)}
    if how in marks:
        await world.state.mark({"failed:acme/api": marks[how]}, world.now)
    else:
        dispatcher = world.dispatcher()
        assert await world.after(dispatcher, minutes=1) == []

    await world.run("run_1", "completed")
    assert await world.after(dispatcher, looks=3, minutes=1) == [OVER]


async def test_a_snoozed_problem_is_notified_if_it_lasts(world: World) -> None:
    """A lost connection is notified after its snooze; a snoozed failure, a muted problem or an event is not."""
    dispatcher = await world.began(TO_ALL + '[notify]\non = ["failed", "completed", "link"]')
    until = world.now + timedelta(days=20)
    snoozed = ("failed:acme/web", "run:acme/api", "link:runs")
    marks = {"failed:acme/api": Mark(is_muted=True), **dict.fromkeys(snoozed, Mark(snoozed_until=until))}
    await world.state.mark(marks, world.now)
    await world.run("run_1", "failed")
    await world.run("run_2", "completed")
    await world.run("run_3", "failed", repository="acme/web")
    for _ in range(2):
        await world.link("unreachable")
        assert await world.after(dispatcher, minutes=10) == []
    world.move(days=20)
    (title,) = await world.after(dispatcher, minutes=1)

    assert title.startswith("No link to the service")


async def test_a_message_repeats_until_acknowledged(world: World) -> None:
    """A message repeats hourly for some time; a failure after the acknowledgement is new and repeats as well."""
    dispatcher, again = await world.began(REPEATED), f"Ongoing: {FAILED}"
    await world.run("run_1", "failed")
    assert await world.after(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await world.after(dispatcher, looks=4, minutes=20) == [again]
    await world.state.mark({"failed:acme/api": Mark(done_until=world.now)}, world.now)
    assert await world.after(dispatcher, looks=8, minutes=30) == []

    await world.run("run_2", "failed")
    assert await world.after(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await world.after(dispatcher, looks=24 * 4, minutes=15) == [again] * 6
    assert await world.after(world.dispatcher(REPEATED), looks=3, days=40) == []

    await world.run("run_1", "completed")
    assert await world.after(dispatcher, minutes=1) == [OVER]


BY_RULE = '[notify]\non = []\n[notify.routes.oncall]\ncommand = ["true"]\n'


async def samples(world: World, looks: int, **statuses: str) -> None:
    """Adds health samples, one every five seconds."""
    for _ in range(looks):
        await world.health(**statuses)
        world.move(seconds=5)


async def enter_rule(world: World, dispatcher: Dispatcher, *platforms: str) -> None:
    """Records that a rule reports the present incidents of the hosts."""
    for incident in await dispatcher.incidents.read(await world.cache.health(), world.now):
        if incident.platform in platforms:
            facts = {"host.platform": incident.platform, "host.status": incident.word}
            occurrence = Occurrence(f"health:{incident.platform}:{incident.start.isoformat()}:bad", incident.start)
            decision = Decision(1, "outage", occurrence, world.now, "acting", "")
            await world.state.enter_alerts([make_alert(DoNotify("oncall"), decision, facts, "acme")], world.now)


async def test_a_reminder_waits_for_the_message_before(world: World) -> None:
    """Without this order, a retried older message would arrive after a newer one."""
    dispatcher = await world.began(REPEATED)
    await world.run("run_1", "failed")
    assert await world.after(dispatcher, looks=2, seconds=30) == [FAILED]
    world.move(hours=2)
    await dispatcher.make_messages()
    assert await world.titles() == []

    assert await world.after(dispatcher, minutes=1) == [f"Ongoing: {FAILED}"]


async def test_a_recovery_waits_for_the_message_before(world: World) -> None:
    """A retried problem would otherwise arrive after its own recovery."""
    dispatcher = await world.began()
    await world.run("run_1", "failed")
    assert await world.after(dispatcher, looks=2, seconds=30) == [FAILED]
    await world.run("run_2", "completed")
    world.move(minutes=1)
    await dispatcher.make_messages()
    assert await world.titles() == []

    assert await world.after(dispatcher, minutes=1) == [OVER]


async def test_a_recovered_host_is_not_repeated(world: World) -> None:
    """Repeats stop when the host is healthy, even before its recovery has been sent."""
    dispatcher = await world.began(REPEATED.replace("1h", "1m"))
    await samples(world, 14, github="down")
    assert await world.after(dispatcher) == ["Code host github is down"]
    await samples(world, 13, github="down")
    assert await world.after(dispatcher) == ["Ongoing: Code host github is down"]
    await samples(world, 11, github="down")
    await samples(world, 3, github="ok")
    assert await world.after(dispatcher) == []
    await samples(world, 12, github="ok")
    assert await world.after(dispatcher) == ["Code host github has recovered"]


async def test_each_host_is_reported_without_waiting_for_another(world: World) -> None:
    """Each host is reported without waiting for another host's interval, and the message says since when.

    A host that the service no longer lists has not recovered: its status is unknown.
    """
    dispatcher = await world.began(BY_RULE)
    await samples(world, 4, github="ok", gitlab="down")
    began = world.now - timedelta(seconds=20)
    await enter_rule(world, dispatcher, "gitlab")
    await dispatcher.make_messages()
    (first,) = await world.made()
    assert (first.title, f"since {began.astimezone():%H:%M:%S}" in first.body) == ("outage: gitlab down", True)

    await samples(world, 4, github="down", gitlab="down")
    await enter_rule(world, dispatcher, "github")
    await dispatcher.make_messages()
    assert await world.titles() == ["outage: github down"]

    await world.arrive()
    await samples(world, 14, github="ok", gitlab="down")
    await dispatcher.make_messages()
    assert await world.titles() == ["outage: Code host github has recovered"]
    await samples(world, 4, github="ok")
    await dispatcher.make_messages()
    assert await world.titles() == ["outage: Code host gitlab is no longer connected: its state is unknown"]


async def test_an_outage_that_ended_unreported_is_reported_once(world: World) -> None:
    """One sentence has both times; an outage entirely within quiet hours is not reported."""
    dispatcher = await world.began(BY_RULE)
    await samples(world, 13, github="down")
    await enter_rule(world, dispatcher, "github")
    await samples(world, 20, github="ok")
    await dispatcher.make_messages()
    (message,) = await world.made()
    assert (message.title, message.phase) == ("outage: Code host github was down for 1m05s", "over")
    assert re.match(r"from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d", message.body)
    assert await world.after(dispatcher, looks=3, minutes=5) == []


WATCHING = f'{BY_RULE}[[automations]]\nname = "outage"\non = {{ health = "not ok" }}\ndo = {{ notify = "oncall" }}\n'
"""Only an automation reports code hosts."""


@pytest.mark.parametrize(("text", "is_reported"), [(TO_ALL, True), (WATCHING, True), (BY_RULE, False)])
async def test_unreadable_health_is_alerted_and_ended(world: World, text: str, *, is_reported: bool) -> None:
    """The alert is sent once after 15 minutes, if `[notify]` or an automation reports outages; it blames no host."""
    dispatcher = await world.began(text)
    await samples(world, 4, github="ok")
    since = world.now
    for _ in range(16):
        await world.cache.record_poll(PollOutcome("health", world.now, "server_error", "503"))
        await world.link()
        await dispatcher.make_messages()
        world.move(minutes=1)
    await world.arrive()
    await samples(world, 1, github="ok")
    await dispatcher.make_messages()

    assert [(message.route, message.title) for message in await world.made()] == is_reported * [
        ("oncall", f"Code hosts unobserved since {since.astimezone():%H:%M:%S}"),
        ("oncall", "The health of the code hosts can be read again"),
    ]


async def test_a_failing_job_is_alerted_and_ended(world: World) -> None:
    """The alert is sent once, whatever `on` says; a briefly locked file does not count."""
    dispatcher, broken = (
        await world.began("[notify]\non = []\n" + TO_ALL),
        {"follow-ups": "It failed unexpectedly (odd)."},
    )
    dispatcher.broken = lambda: broken
    assert await world.after(dispatcher, looks=2, seconds=29) == []
    assert await world.after(dispatcher, looks=9, seconds=30) == ['Runwarden\'s job "follow-ups" fails: acme']
    broken.clear()

    assert await world.after(dispatcher, looks=3, seconds=30) == ['Runwarden\'s job "follow-ups" works again']


# delivery

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
DELIVERY = Delivery(7, MESSAGE, NOW)


async def tell(route: NotifyRoute) -> str | None:
    """Send a failed run over this route."""
    return await send(NotifySettings(routes=(route,)), DELIVERY, "acme", Network())


def assert_harmless(text: str) -> None:
    """Check that it has no control characters, mention, or link with a misleading text."""
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert not any(word in text for word in ("<!channel", "@everyone", "](http", "<http", "<b>"))


def route(folder: Path, *urls: str, **more: Any) -> NotifyRoute:
    """A route whose addresses are in a private file."""
    file = folder / "urls"
    file.write_text("\n".join(["# ours", *urls]))
    file.chmod(0o600)
    return NotifyRoute("oncall", urls_file=file, **more)


async def test_every_sink_gets_text_without_foreign_markup(server: Server, tmp_path: Path) -> None:
    """Each kind of sink is tested, with mail at a real SMTP server.

    The route's markup stays, foreign markup does not.
    """
    server.otherwise = lambda _: Respond(200, b"{}")
    host = server.origin.removeprefix("http://")
    urls = [f"{kind}://{host}/{kind}" for kind in ("json", "form", "xml", "ntfy")]
    urls.append(f"mmost://{host}/abcdefghijklmnopqrstuvwxyz")
    post = await asyncio.to_thread(MailServer)
    urls.append(f"mailto://127.0.0.1:{post.port}/?mode=insecure&from=bot@example.com&to=ann@example.com")
    try:
        assert await tell(route(tmp_path, *urls, markup="markdown")) is None
    finally:
        await asyncio.to_thread(post.close)

    sent = {request.path.split("/")[1]: request.body.decode() for request in server.requests}
    assert sorted(sent) == ["", "form", "hooks", "json", "xml"]
    assert json.loads(sent["json"])["title"] == "Run failed: acme/api"
    assert json.loads(sent[""])["topic"] == "ntfy"
    form = parse_qs(sent["form"])["message"][0]
    assert "[7]" in form.replace("\\", "")
    (mail,) = post.messages
    assert mail["subject"] == "Run failed: acme/api"
    assert "<b>" not in mail.get_body(("html", "plain")).get_content()  # type: ignore[union-attr] # the mail has a body
    for body in (*sent.values(), json.loads(sent["hooks"])["text"], form):
        assert_harmless(body.replace("\\u", ""))
    for markup in get_args(Markup):
        assert_harmless(render(DELIVERY, NotifyRoute("oncall", markup=markup), "acme", markup)[1])


async def test_a_redirected_delivery_fails_without_naming_the_address(server: Server, tmp_path: Path) -> None:
    """The failure has the status: following the redirect would have lost the text."""
    server.otherwise = lambda _: Respond(302, headers={"Location": "/elsewhere"})
    host = server.origin.removeprefix("http://")

    trouble = await tell(route(tmp_path, f"json://user:secret@{host}/"))

    assert present(trouble).startswith("Route oncall: 1 of 1 addresses did not accept it. It answered 302 Found.")
    assert {request.path for request in server.requests} == {"/"}


async def test_a_program_that_dies_silently_is_a_failure(tmp_path: Path) -> None:
    """An example is a program that was killed."""
    (tmp_path / "apprise.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n", "utf-8")
    network = Network(env={**os.environ, "PYTHONPATH": str(tmp_path)})

    trouble = await relay(route(tmp_path, "json://127.0.0.1:9/"), "title", "body", "information", network)

    assert present(trouble).startswith("Route oncall: the program that sends it ended (status -9): ")


async def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """The file has secrets, and the error gives the fix."""
    one = route(tmp_path, "json://127.0.0.1:9/")
    present(one.urls_file).chmod(0o644)

    assert "chmod 600" in (await tell(one) or "")
    assert "has no address" in (await tell(NotifyRoute("oncall", urls_env="NOT_SET")) or "")


FAILS = """
[notify.routes.oncall]
command = ["false"]
fallback = "team"
[notify.routes.team]
command = ["true"]
[[notify.rules]]
route = "oncall"
"""


async def test_a_failed_delivery_is_retried_then_rerouted(world: World) -> None:
    """Pauses between attempts grow, the number stays, and the failure stays listed."""
    dispatcher = await world.began(FAILS)
    await world.run("run_1", "failed")
    await world.after(dispatcher, looks=2, seconds=30)
    for pause in BACKOFF:
        assert await world.deliver(dispatcher) == ["delivery_failed"]
        assert await world.deliver(dispatcher) == []
        world.now += pause
    assert await world.deliver(dispatcher) == ["failed"]
    assert await world.deliver(dispatcher) == ["delivered"]
    assert (world.said[0]["route"], world.said[0]["delivery"]) == ("team", 1)

    (failed,) = await world.state.recent_deliveries(outcome="failed")
    assert failed.error == "false exited with status 1 without an error message."
    assert await world.state.delivery_counts() == {("oncall", "failed"): 1, ("team", "delivered"): 1}
    assert await world.deliver(dispatcher) == []


async def test_a_dead_processs_delivery_is_taken_over(world: World) -> None:
    """The delivery keeps its number; a living process's deliveries are left alone, and expired ones are not sent."""
    dispatcher = await world.began(FAILS.replace("false", "true"))
    await world.run("run_1", "failed")
    await world.after(dispatcher, looks=2, seconds=30)
    (due,) = await world.state.due_deliveries(world.now)
    assert await world.state.claim_delivery(due, world.now, world.now + BACKOFF[-1])
    assert not await world.state.claim_delivery(due, world.now, world.now + BACKOFF[-1])
    assert await world.deliver(dispatcher) == []

    await world.owned_by(Owner(2**22 + 1, "1", "?", "?"))
    assert await world.deliver(world.dispatcher(FAILS.replace("false", "true"))) == ["delivered"]
    assert world.said[0]["delivery"] == due.number

    await world.run("run_1", "completed")
    await world.after(dispatcher, minutes=9)
    world.move(days=90)
    assert await world.deliver(dispatcher) == ["expired"]


async def test_a_state_failure_during_delivery_is_reported_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command and a console show the error with its fix, and not as an exception group."""
    dispatcher = await world.began()
    await world.run("run_1", "failed")
    await dispatcher.make_messages(at_once=True)

    async def settle(*_: object, **__: object) -> None:
        raise DiskFullError("No space left.", path=Path("state.sqlite3"))

    monkeypatch.setattr(world.state, "settle_delivery", settle)
    with pytest.raises(DiskFullError):
        await world.deliver(dispatcher)


# routing: the first matching rule counts; errors in the file are reported with their line


NIGHT = datetime(2026, 5, 1, 3).astimezone()
BROKEN = Alert(
    *("failed:acme/api", "", DEFAULT_ROUTE, "error", "t", {"repository": "acme/api"}), key="k", body="", at=NIGHT
)
ROUTES = "\n".join(f"[notify.routes.{name}]\ndesktop = true" for name in ("oncall", "team", "log")) + "\n"
ROUTING = """
[[notify.rules]]
severity = "error"
repository = ["acme/*", "other"]
hours = "22:00-07:00"
route = "oncall"
[[notify.rules]]
kind = "host"
route = ["oncall", "team"]
[[notify.rules]]
severity = "warning"
route = "team"
"""


@pytest.mark.parametrize(
    ("hour", "change", "routes"),
    [
        (3, {}, ("oncall",)),
        (12, {}, ("team",)),
        (3, {"about": {"repository": "acmes"}}, ("team",)),
        (3, {"level": "warning"}, ("team",)),
        (3, {"group": "host:github", "about": {}}, ("oncall", "team")),
        (3, {"level": "information"}, ()),
        (3, {"route": "log"}, ("log",)),
    ],
)
def test_the_first_matching_route_is_chosen(hour: int, change: dict[str, object], routes: tuple[str, ...]) -> None:
    """The first match decides, and a message that names its route needs none. Without rules, `[notify]` decides."""
    notify = parse(Path("/c.toml"), ROUTES + ROUTING).notify

    assert routes_of(BROKEN, parse(Path("/c.toml"), "").notify, NIGHT) == ("default",)
    assert routes_of(replace(BROKEN, **change), notify, NIGHT + timedelta(hours=hour - 3)) == routes  # type: ignore[arg-type] # `change` has field names and their values
