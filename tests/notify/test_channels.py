"""Notification channels with real programs and real bytes."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from app.engine.text import safe_text
from app.notify.channels import NO_DESKTOP, Channels, Text, run_program, terminal_sequence
from app.profiles import NotifySettings
from tests.console.hostile.test_hostile import SEQUENCES
from tests.waiting import present, until

WRITE_ARGUMENTS = "import json, sys; open(sys.argv[1], 'w').write(json.dumps(sys.argv[2:]))"


def news(title: str = "Run failed: acme/api", body: str = "agent/x", **values: str) -> Text:
    """One notice."""
    return Text(safe_text(title), safe_text(body), "error", values)


def channels(rings: list[int] | None = None, env: Mapping[str, str] | None = None, **settings: object) -> Channels:
    """The channels of these settings; each ring of the bell is added to `rings`."""
    notify = NotifySettings(**settings)  # type: ignore[arg-type]
    ring = partial((rings if rings is not None else []).append, 1) if notify.bell else lambda: None
    return Channels(notify.desktop, notify.command, env or {}, ring, lambda _: None)


async def test_a_commands_arguments_are_passed_unchanged(tmp_path: Path) -> None:
    """No shell runs, arguments are filled in once, and nothing foreign reads as an option."""
    out = tmp_path / "out.json"
    arguments = "{title}|{body},{repository},--status={status},{branch},{ {,{platform},$HOME;`id`"
    template = arguments.split(",")
    argv = (sys.executable, "-c", WRITE_ARGUMENTS, str(out), *template)
    told = news(repository="{title}", status="failed\x1b[2J", branch="--rm -rf")

    assert await channels(bell=False, command=argv).deliver([told]) == ()

    assert out.read_text() == (
        '["Run failed: acme/api|agent/x", "{title}", "--status=failed\\u241b[2J", "\\u2010-rm -rf", "{ {", "",'
        ' "$HOME;`id`"]'
    )


async def test_a_commands_failure_is_reported() -> None:
    """The error says that the command is missing, failed with its last words, or hung."""
    missing = await channels(command=("/nowhere/tell",)).deliver([news(), news("x")])
    program = "import sys; print('no \x1b route', file=sys.stderr); sys.exit(3)"
    failing = await run_program((sys.executable, "-c", program), deadline_s=120)
    hanging = await run_program((sys.executable, "-c", "import time; time.sleep(60)"), deadline_s=0.3)

    fix = "Correct the command in the configuration, or take it out."
    assert missing == (f"/nowhere/tell cannot be run: No such file or directory. {fix}",)
    assert present(failing).endswith("exited with status 3: no ␛ route.")
    assert "did not finish within 0 s and was stopped" in present(hanging)


def has_ended(pid: int) -> bool:
    """Whether a process has exited; a zombie has."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_program_is_stopped_with_its_children(tmp_path: Path) -> None:
    """The program is stopped at its deadline or when the console exits; a background process left earlier may stay."""
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    script = f'sleep 600 & echo $! > "{fifo}"; wait'
    task = asyncio.create_task(run_program(("sh", "-c", script), deadline_s=0.5))
    pid = int(await asyncio.to_thread(fifo.read_text))
    trouble = await task

    assert "was stopped" in present(trouble)
    await until(lambda: has_ended(pid), "what the program started has ended")

    for is_starting in (False, True):
        task = asyncio.create_task(run_program(("sh", "-c", script)))
        for _ in range(2):
            await asyncio.sleep(0)  # The loop is blocked while this reads, so the start is not over.
        pid = int(fifo.read_text() if is_starting else await asyncio.to_thread(fifo.read_text))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: has_ended(pid), "what the program started has ended")  # noqa: B023 # called before the next

    task = asyncio.create_task(run_program(("sh", "-c", f'sleep 600 & echo $! > "{fifo}"'), deadline_s=600))
    pid = int(await asyncio.to_thread(fifo.read_text))
    assert await task is None
    os.kill(pid, signal.SIGKILL)


async def test_notify_send_gets_text_without_markup(tmp_path: Path) -> None:
    """notify-send parses text as HTML and a leading hyphen as an option. If it is missing, the error gives the fix."""
    out = tmp_path / "out.txt"
    program = tmp_path / "notify-send"
    env = {"PATH": str(tmp_path), "TERM": "xterm-256color"}
    assert await channels(env=env, desktop=True).deliver([news()]) == (NO_DESKTOP,)
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do printf "%s\\n" "$a" >> "{out}"; done\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        troubles = await channels(env=env, desktop=True).deliver([news(body="<b>-x & y</b>")])

    assert troubles == ()
    assert out.read_text().splitlines() == [
        "--app-name=Runwarden", "--urgency=critical", "--", "Run failed: acme/api", "&lt;b&gt;-x &amp; y&lt;/b&gt;",
    ]  # fmt: skip


@pytest.mark.parametrize("term", ["foot", "xterm-kitty"])
def test_text_cannot_end_a_terminal_notification(term: str) -> None:
    """A branch that would end the notification, begin another or draw a progress bar is plain text in it."""
    begin = "777;notify;[^;]*;" if term == "foot" else "9;Runwarden: "
    ours = re.compile(rf"\x1b\]{begin}[^\x00-\x1f\x7f-\x9f]*\x1b\\")
    for text in (*SEQUENCES, "4;1;50", "a;b;c"):
        sent = terminal_sequence(safe_text(text), safe_text(text), {"TERM": term})

        assert ours.fullmatch(present(sent))
