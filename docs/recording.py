"""Records the README's film and its two pictures on the demo: `make recording`.

It needs rsvg-convert (Debian's librsvg2-bin), img2webp (webp), and chromium with its driver.
"""

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from textual.pilot import Pilot

from app.api.requests import StartAgent
from app.console.app import RunwardenApp
from app.demo import seed_month, team_at_work
from app.demo.service_process import apply
from app.demo.world import SERVICE, World, build
from app.engine.engine import Engine
from app.profiles.engines import ProfileEngines
from storage.records import Run, RunFilter, RunSort
from storage.values import utc_now

SIZE: Final = (160, 36)
WIDTH: Final = 1600
"""Pixels of the film."""
PAGE: Final = (1200, 900)
BRANCH: Final = "fix/login-timeout"
REVIEWED: Final = 4
"""Commits of that branch, once a run with two turns has reviewed it."""
TASK: Final = "Note the retries in the changelog, and run the tests."
NIGHTLY: Final = """\
import pathlib, sys, time
def say(line): print(line, flush=True); time.sleep(0.8)
say("Scripted stand-in agent: no model, no account.")
say("$ python -m unittest discover -v tests")
say("test_totals (tests.test_billing.Billing) ... ok")
if pathlib.Path(SPACE).read_text() == "full":
    say("test_upload (tests.test_upload.Upload) ... ERROR")
    say("OSError: [Errno 28] No space left on device: '/var/uploads/part-7'")
    sys.exit("The tests failed; the change is discarded.")
say("test_upload (tests.test_upload.Upload) ... ok")
with pathlib.Path("CHANGELOG.md").open("a") as changelog:
    changelog.write("\\n- Uploads are retried three times.\\n")
say("edit CHANGELOG.md")
"""
"""An agent whose tests fail while a file says that the disk is full."""
PATIENCE_S: Final = 300.0
PICTURES: Final = Path(__file__).with_name("pictures")


def portable(svg: str) -> str:
    """The picture for any viewer: without fonts fetched from elsewhere, and with every space kept."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    return svg.replace("Fira Code", "monospace").replace("font-family: monospace, monospace", "font-family: monospace")


@dataclass
class Recording:
    """The frames so far, each with how long it is shown."""

    pilot: Pilot[None]
    frames: list[tuple[str, float]] = field(default_factory=list)

    async def hold(self, seconds: float) -> None:
        """Show the screen for this long, with its changes."""
        for _ in range(4):
            await self.pilot.pause(0.5)
            self._take(seconds / 4)

    async def press(self, *keys: str, then: float = 0.25, shows: str = "") -> None:
        """Type, a frame a key, once the screen shows this text."""
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause(0.6)
            async with asyncio.timeout(PATIENCE_S):
                while shows.replace(" ", "&#160;") not in self.pilot.app.export_screenshot():
                    await self.pilot.pause(0.5)
            self._take(then)

    def still(self, name: str) -> None:
        """Keep the screen as a picture of its own."""
        (PICTURES / f"{name}.svg").write_text(portable(self.pilot.app.export_screenshot()), "utf-8")

    def _take(self, seconds: float) -> None:
        svg = portable(self.pilot.app.export_screenshot())
        # Each export gives its parts new names; without them, the same screen is the same text.
        if self.frames and _plain(self.frames[-1][0]) == _plain(svg):
            svg, before = self.frames.pop()
            seconds += before
        self.frames.append((svg, seconds))


def _plain(svg: str) -> str:
    return re.sub(r"terminal-\d+", "terminal", svg)


async def film(recording: Recording, world: World, engine: Engine, failed: str) -> None:
    """Find a failed run, read its reason, retry it, and see it complete."""
    press, hold = recording.press, recording.hold
    await hold(1.4)
    await press("right_square_bracket", "right_square_bracket", then=0.4)
    await hold(0.6)
    listed = await engine.cache.rows(RunFilter(statuses=("failed",)), RunSort(), offset=0, limit=100)
    await press(*["j"] * [row.run_id for row in listed].index(failed), then=0.2)
    await press("enter", then=0.2, shows="Changes")
    await hold(1.6)
    await press("l", then=0, shows="No space left")
    await hold(2)
    (world.folder / "space").write_text("free")
    await press("escape", then=0.3, shows="Failed 24h")
    await recording.pilot.pause(5)  # What was just painted takes no key yet.
    await press("T", then=1, shows="Copy as curl")
    await recording.pilot.pause(5)
    await press("ctrl+s", then=0.7, shows="started again")
    await press("enter", then=0.7, shows="Changes")
    await press("l", then=0.6, shows="stand-in agent")
    async with asyncio.timeout(PATIENCE_S):
        while {run.status for run in await of_task(engine) if run.run_id != failed} != {"completed"}:
            await engine.refresh()
            await recording.pilot.pause(1)
    await hold(1.2)
    await press("d", then=0, shows="CHANGELOG")
    await hold(2.4)


async def of_task(engine: Engine) -> tuple[Run, ...]:
    """The runs of the film's task."""
    return await engine.cache.runs(RunFilter(branches=("agent/note-the*",)), None)


async def review(pilot: Pilot[None], recording: Recording) -> None:
    """A run's findings, and the file that they are about."""
    keys = {" ": "space", ":": "colon", "/": "slash", "-": "minus"}
    query = [keys.get(key, key) for key in f"branch:{BRANCH} status:completed"]
    await recording.press("escape", "escape", "slash", *query)
    await recording.press("enter", "enter", "r")
    await pilot.pause(3)
    recording.still("review")


async def record(world: World) -> list[tuple[str, float]]:
    """Wait until there is something to show, then show it."""
    settings, profile = world.configuration()
    engines = ProfileEngines(settings, profile, os.environ, utc_now)
    async with await engines.engine(profile.name) as engine:
        async with asyncio.timeout(PATIENCE_S):
            while not reviewed(world):
                await asyncio.sleep(1)
            started = await engine.actions.submit(StartAgent("nightly", "acme/api", inputs={"instructions": TASK}))
            while {run.status for run in await of_task(engine)} != {"failed"}:
                await engine.refresh()
                await asyncio.sleep(1)

        app = RunwardenApp(settings, profile, engines, None, utc_now)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(3)
            recording = Recording(pilot)
            await film(recording, world, engine, started.result_id or "")
            frames = list(recording.frames)
            await review(pilot, recording)
            return frames


def reviewed(world: World) -> bool:
    """Whether the login fix has its review of two turns."""
    git = ["git", "-C", world.folder / "repositories" / "github" / "acme" / "api.git", "rev-list", "--count", BRANCH]
    return int(subprocess.run(git, check=True, capture_output=True).stdout) >= REVIEWED


def moving(frames: list[tuple[str, float]], target: Path) -> None:
    """Make the film, without loss of colour."""
    with tempfile.TemporaryDirectory() as name:
        arguments: list[str] = []
        for number, (svg, seconds) in enumerate(frames):
            picture = f"{name}/{number:03}.png"
            subprocess.run(["rsvg-convert", "-w", str(WIDTH), "-o", picture], input=svg.encode(), check=True)
            # A film has no frame without a duration.
            arguments += ["-d", str(max(1, round(seconds * 1000))), picture]
        subprocess.run(["img2webp", "-loop", "0", "-lossless", *arguments, "-o", target], check=True)


def page(world: World) -> None:
    """Take the page of the reviewed run."""
    from selenium import webdriver
    from selenium.webdriver.common.by import By

    options = webdriver.ChromeOptions()
    for one in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={PAGE[0]},{PAGE[1]}"):
        options.add_argument(one)
    browser: Any = webdriver.Chrome(options=options)
    try:
        site = world.service.base_url.removesuffix("/v1")
        browser.get(f"{site}/sign-in")
        browser.find_element(By.ID, "token").send_keys((world.folder / "token").read_text(), "\n")
        browser.get(f"{site}/runs")
        browser.find_element(By.PARTIAL_LINK_TEXT, "billing code").click()
        browser.save_screenshot(str(PICTURES / "page.png"))
    finally:
        browser.quit()


@contextmanager
def world() -> Iterator[World]:
    """The demo, at work, with the film's agent."""
    with tempfile.TemporaryDirectory() as name:
        built = build(Path(name), is_live=True)
        try:
            seed_month(built.service)
            space = built.folder / "space"
            space.write_text("full")
            argv = ["{python}", "-c", NIGHTLY.replace("SPACE", repr(str(space)))]
            order = {"agents": [{"name": "nightly", "argv": argv, "readable": [str(space)]}]}
            apply(built.folder / SERVICE, built.folder / "nightly.json", order)
            with team_at_work(built):
                yield built
        finally:
            built.service.stop()


if __name__ == "__main__":
    with world() as shown:
        frames = asyncio.run(record(shown))
        target = PICTURES / "film.webp"
        moving(frames, target)
        # Last: without a browser the film is kept.
        page(shown)
    seconds = sum(seconds for _, seconds in frames)
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(frames)} frames, {seconds:.1f} s")
