"""How soon the console shows its cached rows, against a bare Textual app with one line of text; both on a real pty."""

import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.figures import Figure, in_turn
from bench.terminal import CONSOLE, LEFT, RUNS, Terminal, filled, ready

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("first-painted-line")
Bare().run()
"""
HELP = rb"Keys"
ROUNDS = 11
BARE_BAR, UNSEEN_BAR = 0.3, 1.25


def measure(count: int) -> Iterator[Figure]:
    """The console with few and with many cached runs, and on a terminal that it has not seen before."""
    for runs in (1_000, count):
        with tempfile.TemporaryDirectory() as folder:
            env = filled(folder, runs)
            visit(env)
            seconds, bare = in_turn(
                lambda env=env: painted([str(CONSOLE)], env, RUNS),
                lambda env=env: painted([sys.executable, "-c", BARE], env, rb"first-painted-line"),
                rounds=ROUNDS,
            )
            name = f"first painted rows of {runs:,} cached runs"
            yield Figure(name, seconds, "bare Textual", bare, bar=BARE_BAR)
            if runs == count:
                yield from _unseen(env)


def _unseen(env: Mapping[str, str]) -> Iterator[Figure]:
    """Where no frame is of this kind of terminal, or there is none at all; and until a key is answered."""
    [frames] = Path(env["HOME"]).rglob("frames")

    def without_frames() -> float:
        away = frames.rename(frames.with_name("away"))
        seconds = painted([str(CONSOLE)], env, RUNS)
        away.rename(frames)
        return seconds

    elsewhere, nowhere, keyed, bare = in_turn(
        lambda: painted([str(CONSOLE)], {**env, "COLORTERM": secrets.token_hex(4)}, RUNS),
        without_frames,
        lambda: answered(env),
        lambda: painted([sys.executable, "-c", BARE], env, rb"first-painted-line"),
        rounds=ROUNDS,
    )
    yield Figure("the same on a terminal of a kind never seen", elsewhere, "bare Textual", bare, bar=UNSEEN_BAR)
    yield Figure("the same where no frame is kept", nowhere, "bare Textual", bare)
    yield Figure("until a key typed at the start is answered", keyed, "bare Textual's first line", bare)


def visit(env: Mapping[str, str]) -> None:
    """Open the console and leave it: a user with cached runs has started it before."""
    with Terminal([str(CONSOLE)], env) as console:
        console.until(RUNS)
        ready(console)
        console.press("q")
        console.until(LEFT)
        console.process.wait()


def painted(argv: Sequence[str], env: Mapping[str, str], pattern: bytes) -> float:
    """Seconds until the pattern is on the terminal."""
    with Terminal(argv, env) as terminal:
        return terminal.until(pattern) - terminal.started_s


def answered(env: Mapping[str, str]) -> float:
    """Seconds until a key that was pressed as soon as rows were on show has shown the list of keys."""
    with Terminal([str(CONSOLE)], env) as console:
        console.until(RUNS)
        console.press("?")
        return console.until(HELP) - console.started_s
