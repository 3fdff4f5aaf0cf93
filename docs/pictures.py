"""Makes the README's pictures from the pictures that the tests of the console accepted: `make pictures`."""

import re
import sys
from pathlib import Path
from typing import Final

ACCEPTED: Final = Path(__file__).resolve().parents[1] / "tests" / "console"
SCENES: Final = {
    "query": "runs/__snapshots__/test_runs_pictures/test_runs_by_keys[query-140x40].svg",
    "health": "health/__snapshots__/test_health_over_time/test_uptime_is_of_what_was_seen[140x40].svg",
}
"""File name to the accepted picture."""


def picture(name: str) -> str:
    """A scene's picture, as any viewer shows it."""
    return portable((ACCEPTED / SCENES[name]).read_text("utf-8"))


def portable(svg: str) -> str:
    """The picture for any viewer: without fonts fetched from elsewhere, and with every space kept."""
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    return svg.replace("Fira Code", "monospace").replace("font-family: monospace, monospace", "font-family: monospace")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name in SCENES:
        (target / f"{name}.svg").write_text(picture(name), "utf-8")
