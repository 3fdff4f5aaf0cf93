"""A real Chromium, driven over its own protocol."""

import asyncio
import base64
import itertools
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1200,760",
)
PATIENCE_S: Final = 120.0
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?:<>=]*[ -/]*[@-~]|\x1b[@-_]")


def find() -> str | None:
    """Where Chromium is; None: nowhere."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser process with a profile of its own."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._port_file = folder / "DevToolsActivePort"

    def address(self) -> str:
        """Where it listens, as soon as it does."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                port, path = self._port_file.read_text().split("\n")[:2]
            except (FileNotFoundError, ValueError):
                # Nothing tells that the file is there but the file.
                time.sleep(0.02)
                continue
            return f"ws://127.0.0.1:{port}{path}"
        raise AssertionError("Chromium did not start")

    def close(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)


@dataclass
class Page:
    """A tab, and what its websockets received."""

    connection: aiohttp.ClientWebSocketResponse
    session: str = ""
    target: str = ""
    requests: list[str] = field(default_factory=list)
    """Every address that the tab asked for."""
    drawn: str = ""
    """What consoles drew, without escape sequences."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def open(self, context: str) -> Self:
        """Makes the tab, in a browser context that shares no cookies with another."""
        made = await self.ask("Target.createTarget", url="about:blank", browserContextId=context)
        self.target = made["targetId"]
        attached = await self.ask("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            await self.ask(f"{domain}.enable")
        return self

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self.connection.send_json(message | ({"sessionId": self.session} if self.session else {}))
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._answers[number]
        del self._answers[number]
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def go(self, address: str) -> None:
        """Follows an address."""
        await self.ask("Page.navigate", url=address)

    async def evaluate(self, script: str) -> Any:
        """The value of a script, awaited."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return answer["result"].get("value")

    async def until(self, fact: Callable[[], Awaitable[object]]) -> None:
        """Waits until the fact holds; looked at again whenever the browser says anything."""
        end = time.monotonic() + PATIENCE_S
        while not await fact():
            assert time.monotonic() < end, self.drawn[-3000:] or await self.evaluate("document.body.innerText")
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.1)
                except TimeoutError:
                    continue

    async def until_drawn(self, *words: str, after: int = 0) -> None:
        """Waits until a console has drawn these words, behind what it had drawn before."""

        async def fact() -> bool:
            return all(word in self.drawn[after:] for word in words)

        await self.until(fact)

    async def until_said(self, words: str) -> None:
        """Waits until the page's own text has these words."""

        async def fact() -> bool:
            return words in str(await self.evaluate("document.body ? document.body.innerText : ''"))

        await self.until(fact)

    async def press(self, key: str) -> None:
        """Types one character."""
        for kind in ("keyDown", "keyUp"):
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    async def click(self, x: float, y: float) -> None:
        """Clicks a point, in pixels."""
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def listen(self) -> None:
        """Hears the browser until it hangs up."""
        async for message in self.connection:
            heard = message.json()
            if (number := heard.get("id")) in self._answers:
                self._answers[number].set_result(heard)
            self._note(heard.get("method", ""), heard.get("params", {}))
            async with self._changed:
                self._changed.notify_all()

    def _note(self, method: str, told: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(told["url"])
            case "Network.webSocketFrameReceived" if told["response"]["opcode"] == 2:
                data = base64.b64decode(told["response"]["payloadData"]).decode("utf-8", "replace")
                self.drawn += ESCAPES.sub("", data)


@asynccontextmanager
async def tab(browser: Chromium) -> AsyncIterator[Page]:
    """A tab in a context of its own: another person's browser, as far as cookies go."""
    async with aiohttp.ClientSession() as client, client.ws_connect(browser.address(), max_msg_size=0) as connection:
        page = Page(connection)
        listening = asyncio.create_task(page.listen())
        context = (await page.ask("Target.createBrowserContext"))["browserContextId"]
        await page.open(context)
        yield page
        await connection.close()
        await listening
