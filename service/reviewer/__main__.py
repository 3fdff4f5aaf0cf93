"""`python -P -m service.reviewer`: a task on standard input, a review in the checkout, a log on standard output."""

import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

# Python puts the current folder, which is the checkout, first on its path: nothing may be imported from there.
_EXPOSED: Final = not sys.flags.safe_path and sys.path[:1] in ([""], [str(Path.cwd())])
if _EXPOSED:
    del sys.path[0]

from service.errors import ServiceError
from service.reviewer.git import GitFiles
from service.reviewer.markdown import visible
from service.reviewer.render import commit_message, findings_document, render, summary
from service.reviewer.review import review
from service.reviewer.review_file import FINDINGS, REVIEWS, ReviewFile, ReviewFileError
from service.reviewer.task import Task, TaskError, parse_task

_TASK_BYTES: Final = 8 * 1024 * 1024
_LOG_LINE: Final = 500


def main(arguments: list[str]) -> int:
    """Do one turn; 0 when the review is written, 1 when it could not be, 2 when the task is invalid.

    Arguments are `--input KEY=VALUE`, the inputs from the agent's configuration; the task's inputs override them.
    """
    _use_utf8()
    if _EXPOSED:
        _say("Note: started without -P, so Python looked into the checkout first; use `python -P -m service.reviewer`.")
    try:
        configured = _configured(arguments)
        raw = sys.stdin.buffer.read(_TASK_BYTES + 1)
        if len(raw) > _TASK_BYTES:
            return _refuse(f"bad task: standard input is longer than {_TASK_BYTES // 1024 // 1024} MiB", 2)
        task = parse_task(raw)
    except TaskError as error:
        return _refuse(f"bad task: {error}", 2)
    try:
        _work(replace(task, inputs=configured | task.inputs))
    except ServiceError as error:
        return _refuse(str(error), 1)
    return 0


def _configured(arguments: list[str]) -> dict[str, object]:
    inputs: dict[str, object] = {}
    for option, value in zip(arguments[::2], [*arguments[1::2], ""], strict=False):
        key, equals, text = value.partition("=")
        if option != "--input" or not (key and equals):
            raise TaskError(f"{option} {value}: the command line takes --input KEY=VALUE only")
        inputs[key] = text
    return inputs


def _work(task: Task) -> None:
    """Write the review, and its summary to the file that RUNWARDEN_RESULT names, if it is set."""
    file = ReviewFile(Path.cwd(), f"{REVIEWS}{task.run_id}.md")
    # Processor time: on a busy machine a review takes longer, but does not say less.
    done = review(task, GitFiles(Path.cwd()), file.read(), _say, time.process_time)
    file.write(render(done))
    _say(summary(done))
    _say(f"Wrote {file.path}.")
    if target := os.environ.get("RUNWARDEN_RESULT"):
        answer = {"summary": summary(done), "commit_message": commit_message(done)}
        try:
            Path(target).write_text(json.dumps(answer), encoding="utf-8")
        except OSError as error:
            raise ReviewFileError(f"cannot write the result to RUNWARDEN_RESULT: {error}") from error
        # Only a service reads this file: started without one, the reviewer does not write it.
        try:
            ReviewFile(Path.cwd(), FINDINGS).write(findings_document(done))
        except ReviewFileError as error:
            _say(f"The findings are in the review alone: {error}")


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
