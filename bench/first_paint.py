"""How soon the console shows its cached rows, against a bare Textual app with one line of text; both on a real pty."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from bench.figures import Figure, paired
from bench.terminal import CONSOLE, LEFT, Terminal, filled, ready

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("first-painted-line")
Bare().run()
"""
POSTING = "RUNWARDEN_BENCH_POSTING"
"""The variable that may name an installed `posting`, to be measured against."""


def measure(count: int) -> Iterator[Figure]:
    """The console with one and with many cached runs."""
    for runs in (1_000, count):
        with tempfile.TemporaryDirectory() as folder:
            env = filled(folder, runs)
            visit(env)
            seconds, bare = paired(
                lambda env=env: painted([str(CONSOLE)], env, rb"acme/service-"),
                lambda env=env: painted([sys.executable, "-c", BARE], env, rb"first-painted-line"),
                rounds=11,
            )
            yield Figure(f"first painted rows of {runs:,} cached runs", seconds, "bare Textual", bare)
            if posting := os.environ.get(POSTING):
                argv = shlex.split(posting)
                _, other = paired(lambda: 0.0, lambda env=env, argv=argv: painted(argv, env, rb"Collection"), rounds=5)
                yield Figure(f"first painted rows of {runs:,} cached runs", seconds, "posting", other)


def visit(env: Mapping[str, str]) -> None:
    """Opens the console and leaves it: whoever has runs cached was there before."""
    with Terminal([str(CONSOLE)], env) as console:
        console.until(rb"acme/service-")
        ready(console)
        console.press("q")
        console.until(LEFT)
        console.process.wait()


def painted(argv: Sequence[str], env: Mapping[str, str], pattern: bytes) -> float:
    """Seconds until the pattern is on the terminal."""
    with Terminal(argv, env) as terminal:
        return terminal.until(pattern) - terminal.started_s
