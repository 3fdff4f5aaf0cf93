"""`python -P -m service.reviewer`: a task on standard input, a review in the checkout, a log on standard output."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from service import trees
from service.errors import ServiceError, first_fault
from service.findings.collect import FILES, read
from service.reviewer.review import REVIEWS, Checkout, Review, Topic, read_record
from service.text import one_line

_WORDS: Final = BeforeValidator(lambda value: value.replace(",", " ").split() if isinstance(value, str) else value)
_REVIEW_BYTES: Final = 2 << 20


class TaskError(ServiceError):
    """The reviewer was started with an unusable task or checkout."""


class Inputs(BaseModel, extra="forbid"):
    """Options that change a review."""

    focus: Annotated[list[Topic], _WORDS] = []
    paths: Annotated[list[str], _WORDS] = []
    """Files, folders or patterns; empty: every path."""
    depth: Literal["diff", "full"] = "diff"
    """The extent of the review; `full`: the whole tree."""
    instructions: str = ""
    """The words with which an agent was started by name; the task's own instructions contain them."""


class Task(BaseModel):
    """One turn of a run."""

    # The run id names a file, and the branch becomes an argument of git.
    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    turn: Annotated[int, Field(ge=1, strict=True)]
    branch: str | None = None
    default_branch: Annotated[str, Field(pattern=r"^[^\x00-\x20\x7f~^:?*\[\\]{0,250}$")] | None = None
    """The default branch's name; None or empty: there is no branch to compare with."""
    instructions: str
    inputs: Inputs


def read_task(raw: bytes, configured: list[str]) -> Task:
    """Read a task; inputs of the agent's configuration, such as `focus=security`, hold where it has none."""
    try:
        document: dict[str, Any] = dict(json.loads(raw))
        inputs = dict(one.split("=", 1) for one in configured) | (document.get("inputs") or {})
        return Task.model_validate(document | {"inputs": inputs})
    except ValidationError as error:
        raise TaskError(f"bad task: {first_fault(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskError(f"bad task: it must be a JSON object, and --input KEY=VALUE: {error}") from error


def _obstacle(path: Path) -> str | None:
    """Return why a file of the checkout cannot be written: something else has its name, or its folder's."""
    if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
        return f"{path.parent.name} is a link or a file, not a folder"
    if path.is_dir() and not path.is_symlink():
        return f"{path.parent.name}/{path.name} is a folder"
    return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as file:
        file.write(text)


def _print(text: str) -> None:
    sys.stdout.writelines(f"{one_line(line)[:500]}\n" for line in text.splitlines())
    sys.stdout.flush()


def main() -> int:
    """Do one turn; 0 when the review is written, 1 when it could not be, 2 when the task is invalid."""
    options = argparse.ArgumentParser("reviewer")
    options.add_argument("--input", action="append", default=[], metavar="KEY=VALUE")
    try:
        if not sys.flags.safe_path:
            text = "start it as python -P -m service.reviewer: otherwise Python imports modules of the checkout"
            raise TaskError(text)
        task = read_task(sys.stdin.buffer.read(), options.parse_args().input)
        root, path = Path.cwd(), f"{REVIEWS}{task.run_id}.md"
        try:
            last = read_record(read(root, path, _REVIEW_BYTES).decode("utf-8", "replace"))
        except OSError:
            last = None
        is_whole = task.inputs.depth == "full" or "everything" in task.instructions
        checkout = Checkout(root, None if is_whole else task.default_branch or None)
        _print(f"Turn {task.turn}: {len(checkout.changes)} paths; {checkout.reason}.")
        review = Review(checkout, last, task.inputs.focus, task.inputs.paths, task.instructions)
        text = review.markdown(f"Review of {task.branch or 'this branch'}, turn {task.turn}")
        message = f"Review, turn {task.turn}: {review.counts}\n\n{review.summary}\n"
        if (reason := _obstacle(root / path)) is None:
            _write(root / path, text)
            _print(f"{review.summary}\nWrote {path}.")
            message += f"The review is {path}.\n"
        else:
            _print(f"{review.summary}\nThe review is not written to the branch, because {reason}. It is:\n{text}")
        if target := os.environ.get("RUNWARDEN_RESULT"):
            Path(target).write_text(json.dumps({"summary": review.summary, "commit_message": message}), "utf-8")
            # Only a service reads this file: started without one, the reviewer does not write it.
            findings = root / FILES[0]
            if _obstacle(findings) is not None:
                # Nothing in this folder is ever committed, whatever the repository holds there.
                trees.remove(findings.parent)
            _write(findings, review.document())
    except (ServiceError, OSError) as error:
        sys.stderr.write(f"reviewer: {one_line(str(error))[:500]}\n")
        return 2 if isinstance(error, TaskError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
