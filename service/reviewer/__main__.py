"""`python -P -m service.reviewer`: a task on standard input, a review in the checkout, a log on standard output."""

import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

# Python puts the current folder, which is the checkout, first on its path: nothing may be imported from there.
_CHECKOUT: Final = str(Path.cwd())
_EXPOSED: Final = not sys.flags.safe_path and bool(sys.path) and sys.path[0] in {"", _CHECKOUT}
if _EXPOSED:
    del sys.path[0]

from service.reviewer.checkout import Checkout, CheckoutError  # noqa: E402 — after the path is safe
from service.reviewer.git import Git, GitError  # noqa: E402
from service.reviewer.limits import TASK_BYTES  # noqa: E402
from service.reviewer.markdown import visible  # noqa: E402
from service.reviewer.render import commit_message, render, summary  # noqa: E402
from service.reviewer.reviewing import NothingToReviewError, review  # noqa: E402
from service.reviewer.since import path_of  # noqa: E402
from service.reviewer.task import Task, TaskError, parse_task  # noqa: E402

_LOG_LINE: Final = 500


def main(arguments: list[str]) -> int:
    """Do one turn; 0 when the review is written, 1 when it could not be, 2 when the task is no task.

    Args:
        arguments: `--input KEY=VALUE`, as often as wanted: inputs that the agent's configuration sets. The task's win.
    """
    _use_utf8()
    if _EXPOSED:
        _say(
            "Note: started without -P, so Python looked into the checkout first; start `python -P -m service.reviewer`."
        )
    try:
        configured = _configured(arguments)
        task = parse_task(_read_task())
    except TaskError as error:
        return _refuse(f"bad task: {error}", 2)
    try:
        _work(replace(task, inputs=configured | task.inputs))
    except (GitError, CheckoutError, NothingToReviewError) as error:
        return _refuse(str(error), 1)
    return 0


def _configured(arguments: list[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for option, value in zip(arguments[::2], [*arguments[1::2], ""], strict=False):
        key, equals, text = value.partition("=")
        if option != "--input" or not (key and equals):
            raise TaskError(f"{option} {value}: the command line takes --input KEY=VALUE only")
        inputs[key] = text
    return inputs


def _work(task: Task) -> None:
    folder = Path.cwd()
    checkout = Checkout(folder)
    # Processor time: on a busy machine a review takes longer, but does not say less.
    done = review(task, Git(folder), checkout, _say, time.process_time)
    path = path_of(task)
    checkout.write(path, render(done).encode("utf-8"), make_folder=True)
    _say(summary(done))
    _say(f"Wrote {path}.")
    _answer({"summary": summary(done), "commit_message": commit_message(done)})


def _answer(result: dict[str, str]) -> None:
    """Hand the result to whoever started this, if they named a file for it.

    Raises:
        CheckoutError: the file cannot be written.
    """
    target = os.environ.get("RUNWARDEN_RESULT")
    if not target:
        return
    try:
        Path(target).write_text(json.dumps(result), encoding="utf-8")
    except OSError as error:
        raise CheckoutError(f"cannot write the result to RUNWARDEN_RESULT: {error}") from error


def _read_task() -> bytes:
    raw = sys.stdin.buffer.read(TASK_BYTES + 1)
    if len(raw) > TASK_BYTES:
        raise TaskError(f"standard input is longer than {TASK_BYTES // 1024 // 1024} MiB")
    return raw


def _use_utf8() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _say(line: str) -> None:
    sys.stdout.write(f"{visible(line, _LOG_LINE)}\n")


def _refuse(reason: str, status: int) -> int:
    sys.stderr.write(f"reviewer: {visible(reason, _LOG_LINE)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
