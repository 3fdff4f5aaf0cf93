"""However the console exits, the terminal is restored, and nothing secret is on it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE

from app.cli.command_console import WEB_DRIVER
from app.console.terminal import GIVE_TITLE_BACK, KEEP_TITLE
from tests.lab import Lab
from tests.program import ROOT, Program
from tests.pty.terminal import ESCAPE, TOKEN, Terminal, environment
from tests.waiting import eventually

CRASH = """
import sys
from widgets.runs.table import RunTable
from app.__main__ import main

def broken(*arguments, **options):
    a_local = "sesame-" + "sesame"
    raise RuntimeError("broken on purpose")

RunTable.render_line = broken
sys.exit(main())
"""
OVER = (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?25h", b"\x1b[?2004l")
CRASH_AT_FIRST = """
import sys
from app.profiles import screen_onboarding as onboarding
from app.__main__ import main

async def broken(new):
    token = new.token.read({})
    raise RuntimeError("broken on purpose")

onboarding.check = broken
sys.exit(main())
"""
HANGING = """
import sys, threading
from app.console.app import RunwardenApp
from app.console import process
from app.__main__ import main

def hang(app):
    app._driver.write("hanging")
    threading.Event().wait()

RunwardenApp.action_help = hang
process.PATIENCE_MS = 300
sys.exit(main())
"""
SHELL = """
import fcntl, os, signal, termios
from app.__main__ import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if not (job := os.fork()):
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    raise SystemExit(main())
for foreground in (os.getpid(), job):
    os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(0, foreground)
    os.kill(job, signal.SIGCONT)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
"""
"""A shell that continues its stopped job first with `bg`, then with `fg`."""
BROWSER_SERVER = """
import os, subprocess, sys

command = [sys.executable, "-P", "-m", "app", "console"]
with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as console:
    console.stdout.readline()
    print(console.pid, flush=True)
"""
"""A script that starts a console on pipes, as `textual serve` does, and waits for its first line."""
NOTHING = {"RUNWARDEN_CONFIG": "", "RUNWARDEN_BASE_URL": "", "RUNWARDEN_TOKEN": ""}
"""Is configured: the variables are as good as unset."""
Opened = Callable[..., Terminal]


def assert_given_back(terminal: Terminal) -> None:
    """Check that the screen, the mouse, the cursor, the paste mode, echo and line editing are restored."""
    for sequence in OVER:
        assert sequence in terminal.seen
    assert terminal.seen.rindex(b"\x1b[?1049l") > terminal.seen.rindex(b"\x1b[?1049h")
    assert terminal.attributes == terminal.attributes_before


def test_a_crash_shows_only_its_location(opened: Opened) -> None:
    """Status 1; the traceback is readable, without values of variables and without the token."""
    terminal = opened(program=CRASH)
    status = terminal.end()

    assert status == 1
    assert_given_back(terminal)
    end = terminal.seen[terminal.seen.rindex(b"\x1b[?1049l") :]
    assert b"broken on purpose" in end
    assert b"sesame-sesame" not in terminal.seen
    assert TOKEN.encode() not in terminal.seen


def test_a_signal_closes_every_screen_in_order(opened: Opened) -> None:
    terminal = opened()
    terminal.shows("complete")
    terminal.type("n")
    terminal.shows("What should the agent do")
    terminal.process.send_signal(signal.SIGTERM)

    assert terminal.end() == 128 + signal.SIGTERM
    assert_given_back(terminal)


def test_the_console_redraws_after_a_stop(opened: Opened) -> None:
    """Whether ctrl+z or another process stops it, `fg` shows the same screen; each time the old title is restored."""
    terminal = opened()
    terminal.shows("complete")
    for number in (signal.SIGTSTP, signal.SIGSTOP):
        begun = terminal.seen.count(b"\x1b[?1049h")
        terminal.process.send_signal(number)
        eventually(lambda: terminal.states == {"T"}, "it is stopped")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wrote(b"\x1b[?1049h", begun + 1)
        terminal.shows("complete")
        terminal.type("?")
        terminal.shows("search keys and actions")
        terminal.press(ESCAPE)
    terminal.type("q")

    assert terminal.end() == 0
    assert_given_back(terminal)
    assert [terminal.seen.count(sequence) for sequence in (KEEP_TITLE.encode(), GIVE_TITLE_BACK.encode())] == [3, 3]


def test_the_title_is_restored_after_bg_and_fg(opened: Opened) -> None:
    """In the background it can only stop again; no title is set that the terminal does not show."""
    terminal = opened(SHELL)
    terminal.shows("complete")
    terminal.type("\x1a")
    terminal.wrote(b"\x1b[?1049h", 2)
    terminal.wrote(KEEP_TITLE.encode(), 2)
    terminal.type("q")

    assert terminal.end() == 0
    assert_given_back(terminal)


def test_a_console_in_a_browser_ends_with_its_server(board: Lab, tmp_path: Path) -> None:
    """Without its server the console would poll unseen; it exits even if the server was killed."""
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "RUNWARDEN_CONFIG": "", "TEXTUAL_DRIVER": WEB_DRIVER}
    given = environment(tmp_path, board.base_url, **own)
    server = Program((), given, code=BROWSER_SERVER, streams=(DEVNULL, PIPE, DEVNULL))
    assert server.stdout is not None
    console = int(server.stdout.readline())
    server.kill()
    server.wait()
    server.close()

    try:
        eventually(lambda: is_over(console), "the console has ended")
    finally:
        if not is_over(console):
            os.kill(console, signal.SIGKILL)


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_crash_of_the_first_screen_shows_no_answer(opened: Opened) -> None:
    """The token is a local variable of the code that fails, and the traceback only shows the location."""
    terminal = opened(program=CRASH_AT_FIRST, **NOTHING)
    terminal.shows("Welcome", "with the version at the end")
    terminal.type("https://api.acme.example/v1")
    terminal.shows("https://api.acme.example/v1")
    terminal.press("\t", "\t", "\t")
    terminal.type("sesame-sesame")
    terminal.shows("\N{BULLET}" * len("sesame-sesame"))
    terminal.type("\x13")

    assert terminal.end() == 1
    assert_given_back(terminal)
    assert b"broken on purpose" in terminal.seen
    assert b"sesame-sesame" not in terminal.seen


def test_the_console_exits_with_its_terminal(opened: Opened) -> None:
    """A lost connection sends no SIGHUP, and a hanging console would not react to a signal."""
    terminal = opened(program=HANGING)
    terminal.shows("complete")
    terminal.type("?")
    terminal.wrote(b"hanging")

    assert terminal.vanish() == 128 + signal.SIGHUP
