"""Telling: each problem once, and again until it is acknowledged, and its end; delivered under one number.

Real sinks receive it at least once, and nothing foreign becomes markup.
"""

import asyncio
import json
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import astuple, replace

from app.api.network import Network
from app.automations.acting import alert
from app.automations.bot import host_routes
from app.automations.rule import DoNotify
from app.notify.delivery import rendered, send
from app.notify.dispatcher import BACKOFF, Dispatcher
from app.notify.incidents import IncidentReader
from app.profiles import NotifyRoute, NotifySettings
from app.profiles.load import parse
from storage.claims import Owner
from storage.errors import DiskFullError
from storage.ledger import Ledger
from storage.records import PollOutcome
from storage.records.alert import Delivery, Message
from storage.records.decision import Decision, Occurrence
from storage.records.inbox import Mark
from storage.state import State
from tests.lab import Respond, Server
from tests.notify.conftest import World, outward
from tests.service.mail_servers import MailServer

TO_ALL = '[notify.routes.oncall]\ncommand = ["true"]\n[[notify.rules]]\nroute = "oncall"\n'
"""Everything goes to one route."""


@dataclass
class Desk:
    """One profile's folder, and the processes that tell what happens in it."""

    world: World
    ledger: Ledger
    state: State
    said: list[dict[str, Any]] = field(default_factory=list)
    """Lines of the log."""
    _seen: int = 0

    def dispatcher(self, text: str = TO_ALL) -> Dispatcher:
        """Another process, with this configuration."""
        settings = parse(Path("/etc/config.toml"), text)
        notify = settings.notify
        incidents = IncidentReader(self.world.cache, {"ok"}, 30.0, timedelta(seconds=notify.hold_s))
        files = (self.state, self.world.cache, self.ledger)
        routes = host_routes(settings.automations)
        return Dispatcher(*files, incidents, notify, "acme", self.world.clock, self._say, host_routes=routes)

    async def began(self, text: str = TO_ALL) -> Dispatcher:
        """A process that has looked once, a minute ago."""
        dispatcher = self.dispatcher(text)
        await dispatcher.look()
        self.world.pass_(minutes=1)
        return dispatcher

    async def made(self) -> list[Message]:
        """The messages that were made since the last call, oldest first."""
        found = [each.message for each in await self.state.recent_deliveries(10_000)][::-1]
        fresh, self._seen = found[self._seen :], len(found)
        return fresh

    async def titles(self) -> list[str]:
        """Their titles."""
        return [message.title for message in await self.made()]

    async def pass_(self, dispatcher: Dispatcher, looks: int = 1, **by: float) -> list[str]:
        """Lets time pass before each look; the titles of what was made then."""
        for _ in range(looks):
            self.world.pass_(**by)
            await dispatcher.look()
        return await self.titles()

    async def deliver(self, dispatcher: Dispatcher) -> list[str]:
        """Deliver what is due; the events that the log tells of it."""
        self.said.clear()
        await dispatcher.deliver()
        return [line["event"] for line in self.said]

    async def owned_by(self, owner: Owner) -> None:
        """What is being delivered, is by this process."""
        query = "UPDATE deliveries SET owner_json = ? WHERE owner_json IS NOT NULL"
        await self.state.writer.run(lambda connection: connection.execute(query, (json.dumps(astuple(owner)),)))

    def _say(self, event: str, **facts: Any) -> None:
        self.said.append({"event": event, **facts})


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world, world.ledger, world.state)


@pytest.mark.parametrize("repositories", [1, 50])
async def test_a_storm_of_failures_is_one_message_with_its_recovery(desk: Desk, repositories: int) -> None:
    """Whether one repository fails or many do; further ones wait for the interval."""
    dispatcher, names = await desk.began(), [f"acme/r{number}" for number in range(repositories)]
    await desk.world.storm(500, *names)
    await dispatcher.look()
    assert await desk.titles() == []

    desk.world.pass_(seconds=30)
    await dispatcher.look()
    (message,) = await desk.made()
    assert re.fullmatch(r"Run failed: acme/r\d+ \(and 499 more\)", message.title)
    assert f"{names[0]} {500 // repositories}" in message.body
    assert ("and 45 other places" in message.body) == (repositories == 50)

    for name in names:
        await desk.world.run(name, "completed", repository=name)
    await dispatcher.look()
    (over,) = await desk.made()
    assert over.title.startswith("Runs complete again: acme/r")
    assert "500 in all" in over.body
    assert (over.level, await desk.pass_(dispatcher, hours=2)) == ("information", [])


async def test_what_comes_during_the_interval_is_told_after_it(desk: Desk) -> None:
    """As one message, and nothing of it twice, by whichever process."""
    dispatcher = await desk.began()
    told = []
    for number in range(5):
        await desk.world.run(f"run_{number}", "failed")
        told += await desk.pass_(dispatcher, seconds=40)
    assert told == ["Run failed: acme/api (and 1 more)"]
    assert await desk.pass_(desk.dispatcher(), minutes=5) == ["Run failed: acme/api (and 2 more)"]
    assert await desk.pass_(desk.dispatcher(TO_ALL + '[notify]\non = ["failed", "completed"]'), minutes=9) == []


async def test_what_rules_tell_is_grouped_for_each_rule(desk: Desk) -> None:
    """With their own titles; its recovery names the rule."""
    dispatcher = await desk.began('[notify.routes.oncall]\ncommand = ["true"]')
    await desk.world.storm(20, "acme/api")
    for number in range(20):
        occurrence = Occurrence(f"run:run_{number}:failed", desk.world.now)
        facts = {"run.id": f"run_{number}", "run.repository": "acme/api", "run.status": "failed"}
        decision = Decision(number, "r", occurrence, desk.world.now, "acting", "")
        for _again_after_a_crash in range(2):
            one = alert(DoNotify("oncall", "Broken: {run.repository}"), decision, facts, "acme")
            await desk.state.enter_alerts([one], desk.world.now)
    assert await desk.pass_(dispatcher, seconds=30) == ["Broken: acme/api (and 19 more)"]

    await desk.world.run("good", "completed")
    assert await desk.pass_(dispatcher, seconds=1) == ["r: Runs complete again: acme/api"]


async def test_while_the_link_is_down_nothing_is_said_to_be_over(desk: Desk) -> None:
    """What cannot be known is not told; the link itself is."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == ["Run failed: acme/api"]
    await desk.world.run("run_2", "completed")
    for _ in range(2):
        await desk.world.link("unreachable")
        desk.world.pass_(minutes=1)

    assert await desk.pass_(dispatcher, looks=2, seconds=30) == ["No link to the service: acme"]
    await desk.world.link()
    assert await desk.pass_(dispatcher, seconds=30) == [
        "Runs complete again: acme/api",
        "The link to the service is back (runs)",
    ]


async def test_history_is_not_told(desk: Desk) -> None:
    """What failed before the bot was there, and what is so old that a bot that was away does not tell it."""
    await desk.world.run("run_1", "failed")
    desk.world.pass_(seconds=10)
    dispatcher = desk.dispatcher()
    await dispatcher.look()
    assert await desk.pass_(dispatcher, minutes=10) == []
    await desk.world.run("run_2", "failed")

    assert await desk.pass_(desk.dispatcher(), looks=2, hours=25) == []


SHARED = '[notify]\ncommand = ["true"]\n'


@pytest.mark.parametrize("first", ["console", "bot"])
async def test_a_console_and_a_bot_tell_once_over_the_channels_they_share(desk: Desk, first: str) -> None:
    """Whichever comes first, with its recovery."""
    bot, console = await desk.began(SHARED), await desk.world.watch(command=("true",))
    await desk.world.health(github="unreachable")
    desk.world.pass_(minutes=2)
    await desk.world.health(github="unreachable")
    told: dict[str, list[str]] = {"console": [], "bot": []}
    for _ in range(2):
        for who in (first, "bot", "console"):
            if who == "bot":
                told["bot"] += await desk.pass_(bot, looks=2, seconds=30)
            else:
                told["console"] += outward(await console.look())
        for _ in range(3):
            await desk.world.health(github="ok")
            desk.world.pass_(minutes=1)

    other = "bot" if first == "console" else "console"
    assert told == {first: ["Code host github is unreachable", "Code host github has recovered"], other: []}


async def test_in_quiet_hours_the_channels_of_notify_wait(desk: Desk) -> None:
    """What is still so when they end is told then, and its recovery waits as well; other routes do not."""
    now = desk.world.now.astimezone()
    hours = f"{now:%H:%M}-{now + timedelta(hours=2):%H:%M}"
    quiet = await desk.began(f'{SHARED}quiet = "{hours}"')
    for run, repository in (("run_1", "acme/api"), ("run_2", "acme/web")):
        await desk.world.run(run, "failed", repository=repository)
    assert await desk.pass_(quiet, looks=3, minutes=20) == []
    await desk.world.run("run_1", "completed")
    assert "unrouted" not in [line["event"] for line in desk.said]

    assert await desk.pass_(quiet, looks=2, hours=1) == ["Run failed: acme/web"]


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
async def test_what_was_told_has_its_recovery(desk: Desk, how: str) -> None:
    """Whatever came in between; and only once."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, minutes=1) == [FAILED]
    later = desk.world.now + timedelta(days=30)
    marks = {"muted": Mark(is_muted=True), "snoozed": Mark(snoozed_until=later), "acknowledged": Mark(done_until=later)}
    if how in marks:
        await desk.state.mark({"failed:acme/api": marks[how]}, desk.world.now)
    else:
        dispatcher = desk.dispatcher()
        assert await desk.pass_(dispatcher, minutes=1) == []

    await desk.world.run("run_1", "completed")
    assert await desk.pass_(dispatcher, looks=3, minutes=1) == [OVER]


async def test_what_was_put_off_is_told_if_it_still_is_so(desk: Desk) -> None:
    """A host that is bad for weeks, though not that a run once failed; what is muted never is, nor an event."""
    dispatcher = await desk.began(TO_ALL + '[notify]\non = ["failed", "completed", "link"]')
    until = desk.world.now + timedelta(days=20)
    snoozed = ("failed:acme/web", "run:acme/api", "link:runs")
    marks = {"failed:acme/api": Mark(is_muted=True), **dict.fromkeys(snoozed, Mark(snoozed_until=until))}
    await desk.state.mark(marks, desk.world.now)
    await desk.world.run("run_1", "failed")
    await desk.world.run("run_2", "completed")
    await desk.world.run("run_3", "failed", repository="acme/web")
    for _ in range(2):
        await desk.world.link("unreachable")
        assert await desk.pass_(dispatcher, minutes=10) == []
    desk.world.pass_(days=20)
    (title,) = await desk.pass_(dispatcher, minutes=1)

    assert title.startswith("No link to the service")


async def test_it_is_repeated_until_it_is_acknowledged_or_given_up(desk: Desk) -> None:
    """Every hour, and not months later; what fails after it was acknowledged is news, and is repeated in its turn."""
    dispatcher, again = await desk.began(REPEATED), f"Still so: {FAILED}"
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await desk.pass_(dispatcher, looks=4, minutes=20) == [again]
    await desk.state.mark({"failed:acme/api": Mark(done_until=desk.world.now)}, desk.world.now)
    assert await desk.pass_(dispatcher, looks=8, minutes=30) == []

    await desk.world.run("run_2", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await desk.pass_(dispatcher, looks=24 * 4, minutes=15) == [again] * 6
    assert await desk.pass_(desk.dispatcher(REPEATED), looks=3, days=40) == []

    await desk.world.run("run_1", "completed")
    assert await desk.pass_(dispatcher, minutes=1) == [OVER]


BY_RULE = '[notify]\non = []\n[notify.routes.oncall]\ncommand = ["true"]\n'


async def samples(desk: Desk, looks: int = 1, *, every_s: float = 5, **statuses: str) -> None:
    """Health answers, one after the other."""
    for _ in range(looks):
        await desk.world.health(**statuses)
        desk.world.pass_(seconds=every_s)


async def enter_rule(desk: Desk, dispatcher: Dispatcher, platform: str) -> None:
    """A rule reports the host's incident that is on now."""
    incident = next(each for each in await dispatcher.incidents.read(desk.world.now) if each.platform == platform)
    facts = {"host.platform": platform, "host.status": incident.word}
    occurrence = Occurrence(f"health:{platform}:{incident.start.isoformat()}:bad", incident.start, "", facts)
    decision = Decision(1, "outage", occurrence, desk.world.now, "acting", "")
    await desk.state.enter_alerts([alert(DoNotify("oncall"), decision, facts, "acme")], desk.world.now)


async def test_a_host_is_reported_at_once_though_another_one_was_just_reported(desk: Desk) -> None:
    """Neither waits for the other's interval, nor for more of the same; each message says since when."""
    dispatcher = await desk.began(BY_RULE)
    await samples(desk, 4, github="ok", gitlab="down")
    began = desk.world.now - timedelta(seconds=20)
    await enter_rule(desk, dispatcher, "gitlab")
    await dispatcher.look()
    (first,) = await desk.made()
    assert (first.title, f"since {began.astimezone():%H:%M:%S}" in first.body) == ("outage: gitlab down", True)

    await samples(desk, 4, github="down", gitlab="down")
    await enter_rule(desk, dispatcher, "github")
    await dispatcher.look()
    assert await desk.titles() == ["outage: github down"]

    await samples(desk, 14, github="ok", gitlab="down")
    await dispatcher.look()
    assert await desk.titles() == ["outage: Code host github has recovered"]


async def test_a_recovery_says_how_long_the_outage_lasted(desk: Desk) -> None:
    """From the first bad answer to the first good one, whenever either was reported."""
    dispatcher = await desk.began(BY_RULE)
    await samples(desk, 13, github="down")
    await enter_rule(desk, dispatcher, "github")
    await dispatcher.look()
    await samples(desk, 20, github="ok")
    await dispatcher.look()

    (_, over) = await desk.made()
    assert over.title == "outage: Code host github has recovered"
    assert over.body.startswith("after 1m05s, from ")


async def test_hosts_that_fail_and_recover_together_each_say_their_own_times(desk: Desk) -> None:
    """In a message each: one for both could give the times of one alone."""
    dispatcher = await desk.began(BY_RULE)
    await samples(desk, 6, github="down", gitlab="ok")
    await samples(desk, 6, github="down", gitlab="down")
    for platform in ("github", "gitlab"):
        await enter_rule(desk, dispatcher, platform)
    await dispatcher.look()
    assert sorted(await desk.titles()) == ["outage: github down", "outage: gitlab down"]

    await samples(desk, 20, github="ok", gitlab="ok")
    await dispatcher.look()
    over = {message.groups: message.body.partition(",")[0] for message in await desk.made()}
    assert over == {("host:github",): "after 1m00s", ("host:gitlab",): "after 30s"}


async def test_an_outage_that_ended_before_it_could_be_reported_is_reported_once(desk: Desk) -> None:
    """As one sentence with both times; not when quiet hours kept it back."""
    dispatcher = await desk.began(BY_RULE)
    await samples(desk, 13, github="down")
    await enter_rule(desk, dispatcher, "github")
    await samples(desk, 20, github="ok")
    await dispatcher.look()
    (message,) = await desk.made()
    assert (message.title, message.phase) == ("outage: Code host github was down for 1m05s", "over")
    assert re.match(r"from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d", message.body)
    assert await desk.pass_(dispatcher, looks=3, minutes=5) == []


async def test_a_host_that_disappears_while_it_is_down_has_not_recovered(desk: Desk) -> None:
    """The service no longer names it: nobody knows how it is."""
    dispatcher = await desk.began(BY_RULE)
    await samples(desk, 4, github="down", gitlab="ok")
    await enter_rule(desk, dispatcher, "github")
    await dispatcher.look()
    await samples(desk, 4, gitlab="ok")
    await dispatcher.look()

    assert await desk.titles() == [
        "outage: github down",
        "outage: Code host github is no longer connected: its state is unknown",
    ]


WATCHING = f'{BY_RULE}[[automations]]\nname = "outage"\non = {{ health = "not ok" }}\ndo = {{ notify = "oncall" }}\n'
"""Only an automation reports code hosts."""


@pytest.mark.parametrize(
    ("text", "is_reported"),
    [
        (TO_ALL, True),
        (WATCHING, True),
        (WATCHING.replace("on = []", ""), True),
        (WATCHING.replace("on = []", "") + '[[notify.rules]]\nroute = "oncall"\n', True),
        (WATCHING + "enabled = false\n", False),
        (BY_RULE, False),
    ],
)
async def test_health_that_nobody_can_read_is_an_alert_with_an_end(desk: Desk, text: str, *, is_reported: bool) -> None:
    """After 15 minutes, once; it blames no host, and says nothing of its own while the whole link is down.

    It is reported where `[notify]` says, otherwise where an automation reports outages.
    """
    dispatcher = await desk.began(text)
    await samples(desk, 4, github="ok")
    since = desk.world.now
    for _ in range(16):
        await desk.world.cache.record_poll(PollOutcome("health", desk.world.now, "server_error", "503"))
        await desk.world.link()
        await dispatcher.look()
        desk.world.pass_(minutes=1)
    await samples(desk, 1, github="ok")
    await dispatcher.look()

    assert [(message.route, message.title) for message in await desk.made()] == is_reported * [
        ("oncall", f"Code hosts unobserved since {since.astimezone():%H:%M:%S}"),
        ("oncall", "The health of the code hosts can be read again"),
    ]


async def test_a_job_that_keeps_failing_is_an_alert_with_an_end(desk: Desk) -> None:
    """Whatever `on` says, once; a file that is locked for a moment is none."""
    dispatcher, broken = await desk.began("[notify]\non = []\n" + TO_ALL), {"follow-ups": "It broke (ValueError: odd)."}
    dispatcher.broken = lambda: broken
    assert await desk.pass_(dispatcher, looks=2, seconds=29) == []
    assert await desk.pass_(dispatcher, looks=9, seconds=30) == ['Runwarden\'s job "follow-ups" fails: acme']
    broken.clear()

    assert await desk.pass_(dispatcher, looks=3, seconds=30) == ['Runwarden\'s job "follow-ups" works again']


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


async def tell(route: NotifyRoute, **network: Any) -> str | None:
    """A failed run, told over this route by a profile with this network."""
    return await send(NotifySettings(routes=(route,)), DELIVERY, "acme", Network(**network))


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


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Respond(302, headers={"Location": "/elsewhere"}), "It answered 302 Found. Write the address that"),
        (Respond(401), "It answered 401 Unauthorized. Renew the login or token in its address."),
    ],
)
async def test_what_is_not_taken_is_a_failure_that_names_no_address(
    server: Server, tmp_path: Path, answer: Respond, said: str
) -> None:
    """It says what was answered and what to do. A redirect, too: it would have swallowed the text."""
    server.otherwise = lambda _: answer
    host = server.origin.removeprefix("http://")

    trouble = await tell(route(tmp_path, f"json://user:secret@{host}/"))

    assert trouble is not None
    assert trouble.startswith(f"Route oncall: 1 of 1 addresses did not take it. {said}")
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
    hostile = Delivery(8, replace(MESSAGE, about={"branch": "*a* {id}"}), NOW, origin=7)

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
