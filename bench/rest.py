"""How much the console writes to its terminal while nothing changes, on each screen."""

import tempfile
from collections.abc import Iterator

from bench.busy import peer
from bench.figures import Figure
from bench.terminal import CONSOLE, Terminal, environment, ready

REST_S = 30.0
NEXT_PART = "\x1b[1;2C"
SCREENS = {
    "Runs": "",
    "a run's conversation": "\r",
    "a run's review": NEXT_PART,
    "a run's changes": NEXT_PART,
    "a run's log": NEXT_PART,
    "Health": "2",
    "Insights": "4",
    "Automations": "5",
    "Activity": "6",
    "Inbox": "7",
}
"""The keys that lead there from the one before. The last ones are visited when no age counts seconds any more."""


def measure(_: int) -> Iterator[Figure]:
    """A figure for each screen, under polls that change nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        peer(1_000) as base_url,
        Terminal([str(CONSOLE)], environment(folder, base_url)) as console,
    ):
        console.until(rb"acme/service-")
        for name, keys in SCREENS.items():
            console.press(keys)
            ready(console, 5.0)
            written = console.written_in(REST_S)
            yield Figure(f"written on {name}, {REST_S:.0f} s", written, "300 bytes a second", 300, "B", 1, bar=1)
