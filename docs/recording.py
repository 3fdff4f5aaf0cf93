"""Records the README's moving picture: the real console on the demo, driven by keys (`make recording`).

It needs rsvg-convert (librsvg2-bin), ffmpeg and gifsicle, which the program itself does not.
"""

import asyncio
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from app.console.app import RunwardenApp
from app.demo import team_at_work
from app.demo.history import seed_month
from app.demo.world import World, build
from app.engine.engine import Engine

SIZE: Final = (112, 30)
WIDTH: Final = 900
"""Pixels."""
COLOURS: Final = 40
LARGEST: Final = 1_000_000
"""Bytes of the moving picture."""
BRANCH: Final = "fix/login-timeout"
REVIEWED: Final = 4
"""Commits of that branch, once a run with two turns has reviewed it."""
QUERY: Final = tuple(
    {" ": "space", ":": "colon", "/": "slash", "-": "minus"}.get(key, key)
    for key in f"branch:{BRANCH} status:completed"
)
PATIENCE_S: Final = 420.0
PICTURES: Final = Path(__file__).with_name("pictures")
portable = runpy.run_path(str(Path(__file__).with_name("pictures.py")))["portable"]


@dataclass
class Recording:
    """The frames so far, each with how long it is shown."""

    pilot: Pilot[None]
    frames: list[tuple[str, float]] = field(default_factory=list)

    async def hold(self, seconds: float, step: float = 0.5) -> None:
        """Watch for so long."""
        while seconds > 0:
            self._take(min(step, seconds))
            await self.pilot.pause(min(step, seconds))
            seconds -= step

    async def press(self, *keys: str, then: float = 0.25) -> None:
        """Type, a frame a key."""
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause(0.4)
            self._take(then)

    def keep(self, name: str) -> None:
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


async def tell(recording: Recording) -> None:
    """What is shown: the list, a run, its review and its changes, the code hosts, the palette."""
    press, hold = recording.press, recording.hold
    await press("home")
    await hold(2.5)
    await press("j", "j", "j", then=0.3)
    await press("slash", *QUERY, then=0.07)
    await press("enter")
    await hold(1.2)
    await press("enter")
    await hold(2.5)
    await press("f3")
    await hold(3.5)
    recording.keep("review")
    await press("f4")
    await hold(3)
    await press("escape", "escape", then=0.5)
    await press("2")
    await hold(3.5)
    await press("colon")
    await press(*"fail", then=0.3)
    await hold(2.5)
    await press("enter")
    await hold(2.5)


async def record(world: World) -> list[tuple[str, float]]:
    """Wait until there is something to show, then show it."""
    settings, profile = world.configuration()
    async with await Engine.open(settings, profile, actor="console") as engine:
        engine.start_polling()
        async with asyncio.timeout(PATIENCE_S):
            while not _is_ready(world):
                await asyncio.sleep(1)

        async def opened() -> Engine:
            return engine

        app = RunwardenApp(settings, profile, opened, None, lambda: datetime.now(UTC))
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(3)
            recording = Recording(pilot)
            await tell(recording)
            return recording.frames


def _is_ready(world: World) -> bool:
    """Whether the reviews of the login fix are written, and a bad code host was told of."""
    git = ["git", "-C", world.repositories["acme/api"], "rev-list", "--count", BRANCH]
    commits = int(subprocess.run(git, check=True, capture_output=True).stdout)
    return commits >= REVIEWED and (world.folder / "messages.log").exists()


def moving(frames: list[tuple[str, float]], target: Path) -> None:
    """Make the moving picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        listed = []
        for number, (svg, seconds) in enumerate(frames):
            picture = folder / f"{number:03}.png"
            subprocess.run(["rsvg-convert", "-w", str(WIDTH), "-o", picture], input=svg.encode(), check=True)
            listed += [f"file '{picture}'", f"duration {seconds:.2f}"]
        (folder / "frames.txt").write_text("\n".join([*listed, listed[-2]]), "utf-8")
        palette = f"split[a][b];[a]palettegen=max_colors={COLOURS}:stats_mode=full[p];[b][p]paletteuse=dither=none"
        raw = folder / "raw.gif"
        command = ["ffmpeg", "-v", "error", "-f", "concat", "-safe", "0", "-i", folder / "frames.txt"]
        subprocess.run([*command, "-fps_mode", "vfr", "-filter_complex", palette, raw], check=True)
        subprocess.run(["gifsicle", "-O3", "--lossy=60", "--loopcount=forever", raw, "-o", target], check=True)


@contextmanager
def world() -> Iterator[World]:
    """The demo, at work."""
    with tempfile.TemporaryDirectory() as name:
        built = build(Path(name), is_live=True)
        try:
            seed_month(built.service)
            with team_at_work(built):
                yield built
        finally:
            built.service.stop()


if __name__ == "__main__":
    with world() as shown:
        frames = asyncio.run(record(shown))
    target = PICTURES / "demo.gif"
    moving(frames, target)
    seconds = sum(seconds for _, seconds in frames)
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(frames)} frames, {seconds:.0f} s")
    sys.exit(target.stat().st_size > LARGEST)
