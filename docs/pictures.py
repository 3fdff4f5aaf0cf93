"""Makes the README's pictures from the real console on the demo's real service: `make pictures`."""

import asyncio
import os
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app.console.app import RunwardenApp
from app.demo.history import make as make_history
from app.demo.world import World, build
from app.engine import Engine

SIZE: Final = (132, 34)
SCENES: Final = {"runs": (), "health": ("2",), "organizations": ("3",), "new-run": ("n",)}
"""File name to the keys that lead there."""
PATIENCE_S: Final = 30.0


async def main(folder: Path) -> None:
    """Builds the demo, walks through its screens and writes a picture of each."""
    with tempfile.TemporaryDirectory(prefix="runwarden-pictures-") as place:
        world = await asyncio.to_thread(build, Path(place))
        try:
            await make_history(*world.configuration())
            for name, keys in SCENES.items():
                drawn = portable(await picture(world, keys))
                await asyncio.to_thread((folder / f"{name}.svg").write_text, drawn, encoding="utf-8")
        finally:
            await asyncio.to_thread(world.service.stop)


async def picture(world: World, keys: tuple[str, ...]) -> str:
    """The console as SVG, after these keys."""
    settings, profile = world.configuration()

    async def open_engine() -> Engine:
        engine = await Engine.open(settings, profile, actor="console")
        await engine.refresh()
        return engine

    app = RunwardenApp(settings, profile, open_engine, None, lambda: datetime.now(UTC))
    async with app.run_test(size=SIZE) as pilot:
        async with asyncio.timeout(PATIENCE_S):
            await app.opened()
        await pilot.pause()
        await pilot.press(*keys)
        await app.workers.wait_for_complete()
        await pilot.pause()
        drawn = app.export_screenshot(title="runwarden")
    await app.close_engine()
    return drawn


def portable(svg: str) -> str:
    """The picture for any viewer: without fonts fetched from elsewhere, and with every space kept."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    return svg.replace("Fira Code", "monospace").replace("font-family: monospace, monospace", "font-family: monospace")


if __name__ == "__main__":
    # The pictures show the colours of a modern terminal, whatever this one can do.
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target))
