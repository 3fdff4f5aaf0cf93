"""The door of `runwarden web`: who comes in, how, and what stays behind."""

import asyncio
import os
import pty
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import aiohttp
import httpx
import pytest

from app.profiles import Profile
from app.profiles.token import EnvToken
from app.profiles.write import add_profile
from app.web.server import WebConsole
from tests.console.scenes import a_day
from tests.lab import Lab
from tests.program import ROOT, Program
from tests.waiting import eventually, until

PATIENCE_S = 120.0


class Web:
    """`runwarden web` in a process of its own, at a terminal's keyboard."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.keyboard, terminal = pty.openpty()
        self._said = Path(environment["HOME"]) / "said"
        with self._said.open("w") as said:
            streams = (terminal, PIPE, said.fileno())
            self.process = Program(("web", *arguments), environment, streams=streams)
        os.close(terminal)
        self.link = self._printed()

    def enter(self) -> str:
        """The link that Enter prints."""
        os.write(self.keyboard, b"\n")
        self.link = self._printed()
        return self.link

    def _printed(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    @property
    def origin(self) -> str:
        return self.link.partition("/open/")[0]

    @property
    def said(self) -> str:
        """On standard error, so far."""
        return self._said.read_text()

    @property
    def consoles(self) -> list[int]:
        """The processes that it started and that live."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.stdout.close()
            os.close(self.keyboard)
        return status


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A home of its own, and a service with a day's runs configured."""
    with Lab() as board:
        a_day(board)
        yield {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path_factory.mktemp("home")),
            "PYTHONPATH": str(ROOT),
            "RUNWARDEN_BASE_URL": board.base_url,
            "RUNWARDEN_TOKEN": "token-of-the-browser",
        }


@pytest.fixture(scope="module")
def shared_web(environment: dict[str, str]) -> Iterator[Web]:
    """The console, served; shared: each test follows a link of its own and leaves no console behind."""
    web = Web(environment)
    yield web
    web.end()


@pytest.fixture
def web(shared_web: Web) -> Web:
    """The console, served, with a link that was not followed yet."""
    shared_web.enter()
    return shared_web


def browser_of(web: Web) -> aiohttp.ClientSession:
    """A client with a place for cookies."""
    return aiohttp.ClientSession(base_url=web.origin, cookie_jar=aiohttp.CookieJar(unsafe=True))


async def come_in(client: aiohttp.ClientSession, web: Web) -> str:
    """Follows the link; the room's path."""
    async with client.get(web.link) as answer:
        assert answer.status == 200
        return answer.url.path


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_link_is_good_once(web: Web) -> None:
    """Looking at it and fetching it ahead spend nothing; the cookie is for the room alone and for no script."""
    async with browser_of(web) as client:
        async with client.head(web.link) as looked:
            pass
        async with client.get(web.link, headers={"Sec-Purpose": "prefetch;prerender"}) as ahead:
            pass
        async with client.get(web.link, allow_redirects=False) as first:
            cookie = first.headers["Set-Cookie"]
        async with client.get(web.link, allow_redirects=False) as second:
            words = await second.text()

    assert (looked.status, ahead.status, first.status, second.status) == (405, 503, 303, 403)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert f"Path={first.headers['Location']};" in cookie
    assert "press Enter there for a new one" in words


async def test_nothing_is_shown_without_a_pass(web: Web) -> None:
    """Not the page, not its files, not the websocket; a guessed link or pass is as good as none."""
    async with browser_of(web) as client:
        room = await come_in(client, web)
    places = ("/", room, f"{room}ws", f"{room}static/js/textual.js", "/open/guessed", "/download/guessed")
    async with browser_of(web) as stranger:
        answers = []
        for place in places:
            async with stranger.get(place, headers={"Cookie": "runwarden_pass=guessed"}) as answer:
                answers.append(answer.status)

    assert answers == [403] * len(places)
    assert web.consoles == []


FOREIGN = ({"Host": "runwarden.example"}, {"Host": "127.0.0.1:1"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "null"})


async def test_a_pass_is_good_only_from_our_own_pages(web: Web) -> None:
    """A foreign name for this machine, and a page from elsewhere, are refused; so is a websocket without an Origin."""
    answers = []
    async with browser_of(web) as client:
        room = await come_in(client, web)
        for headers in (*FOREIGN, {}):
            if headers:
                async with client.get(room, headers=headers) as page:
                    answers.append(page.status)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{room}ws", headers=headers)
            answers.append(refused.value.status)

    assert answers == [403] * 9


async def test_every_answer_tells_the_browser_to_be_careful(web: Web) -> None:
    """Not kept, not framed, no address passed on, nothing loaded from elsewhere."""
    async with browser_of(web) as client:
        room = await come_in(client, web)
        for place in (room, f"{room}static/css/xterm.css", "/nowhere"):
            async with client.get(place) as answer:
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


async def talk(client: aiohttp.ClientSession, web: Web, room: str) -> aiohttp.ClientWebSocketResponse:
    """A console of one's own, once it has drawn something."""
    tab = await Tab.opened(client, web, room)
    await tab.drawn(b"runwarden")
    return tab.socket


@dataclass
class Tab:
    """A tab's connection, and what its console drew that was not read yet."""

    socket: aiohttp.ClientWebSocketResponse
    unread: bytes = b""

    @classmethod
    async def opened(cls, client: aiohttp.ClientSession, web: Web, room: str) -> "Tab":
        """A tab as large as a window."""
        size = {"width": "140", "height": "40"}
        return cls(await client.ws_connect(f"{room}ws", origin=web.origin, params=size))

    async def drawn(self, words: bytes) -> None:
        """Reads on, up to the end of these words."""
        while words not in self.unread:
            message: Any = await self.socket.receive(PATIENCE_S)
            assert message.type is aiohttp.WSMsgType.BINARY, self.unread[-2000:]
            self.unread = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self.unread + message.data)
        self.unread = self.unread.partition(words)[2]


async def test_a_tab_that_closes_takes_its_console_along(web: Web) -> None:
    """Each tab has a process; the other one's stays."""
    async with browser_of(web) as client:
        room = await come_in(client, web)
        first = await talk(client, web, room)
        second = await talk(client, web, room)
        before = web.consoles
        await first.close()
        eventually(lambda: len(web.consoles) == 1, "the closed tab's console has ended", saw=lambda: web.consoles)
        await second.close()
        eventually(lambda: web.consoles == [], "both consoles have ended", saw=lambda: web.consoles)

    assert len(before) == 2


async def test_profiles_are_switched_without_ending(environment: dict[str, str], tmp_path: Path) -> None:
    """The same console goes on in the same tab, with another service."""
    file = tmp_path / "config.toml"
    for name in ("prod", "staging"):
        add_profile(file, Profile(name, environment["RUNWARDEN_BASE_URL"], EnvToken()))
    given = {name: value for name, value in environment.items() if name != "RUNWARDEN_BASE_URL"}
    several = Web(given, "--config", str(file), "--profile", "prod")
    try:
        async with browser_of(several) as client:
            room = await come_in(client, several)
            tab = await Tab.opened(client, several, room)
            await tab.drawn(b"[All 60]")
            for keys, words in (("\x0f", "Switch profile"), ("stag\r", "staging  ▾"), ("", "[All 60]")):
                await tab.socket.send_json(["stdin", keys])
                await tab.drawn(words.encode())
            await tab.socket.close()
    finally:
        several.end()


@pytest.mark.parametrize("nonsense", ["{", "[]", '["resize", 1]'])
async def test_nonsense_ends_its_own_connection_only(tmp_path: Path, nonsense: str) -> None:
    """The console behind it, for which a script stands in, is asked to leave; the server goes on."""
    script = f"echo __GANGLION__; head -c 1 > /dev/null; echo > {tmp_path}/left"
    listener = socket.create_server(("127.0.0.1", 0))
    server = WebConsole(("sh", "-c", script), listener)
    serving = asyncio.create_task(server.run())
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        async with client.get(server.new_link()) as page:
            room = page.url
        connection = await client.ws_connect(room / "ws", origin=str(room.origin()))
        await connection.send_str(nonsense)

        assert (await connection.receive(PATIENCE_S)).type is aiohttp.WSMsgType.CLOSE
        async with client.get(room) as page:
            assert page.status == 200
    await until((tmp_path / "left").exists, "the console has left")
    serving.cancel()
    await asyncio.wait([serving])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_its_end_is_the_end_of_every_console(environment: dict[str, str], number: signal.Signals) -> None:
    """Asked in order, or killed: no console goes on in the dark."""
    web = Web(environment)
    async with browser_of(web) as client:
        room = await come_in(client, web)
        socket = await talk(client, web, room)
        consoles = web.consoles
        status = web.end(number)
        await socket.close()
        eventually(lambda: not any(is_alive(pid) for pid in consoles), "no console is left")

    assert len(consoles) == 1
    assert status == (-number if number is signal.SIGKILL else 128 + number)


def test_enter_prints_another_link(web: Web) -> None:
    """The one before is void, used or not."""
    first, second = web.link, web.enter()
    answers = [httpx.get(link, trust_env=False).status_code for link in (first, second)]

    assert first != second
    assert answers == [403, 303]
    assert "works once" in web.said


def refused(environment: dict[str, str], *arguments: str) -> str:
    """What a process says that ends with exit code 2 and serves nothing."""
    program = Program(arguments, environment, streams=(PIPE, PIPE, PIPE))
    out, err = program.communicate("token\n")
    assert (program.returncode, out) == (2, "")
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "ssh -L"),
        (("--host", "runwarden.example"), "other machines"),
        (("--token-stdin",), "each tab needs it"),
        (("--profile", "nobody"), "nobody"),
        ((), "No service is configured."),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_cure(
    environment: dict[str, str], arguments: tuple[str, ...], words: str
) -> None:
    """Exit code 2, before anything listens; so is a start without a profile: only a terminal asks for one."""
    given = environment if arguments else {**environment, "RUNWARDEN_BASE_URL": ""}

    assert words in refused(given, "web", *arguments)


def test_a_port_in_use_is_said(web: Web, environment: dict[str, str]) -> None:
    """With the way out."""
    port = web.origin.rpartition(":")[2]

    assert "Choose another --port." in refused(environment, "web", "--port", port)
