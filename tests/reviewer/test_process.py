"""The process: what it takes, what it answers, and how it fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.reviewer.task import TaskError, parse_task

GOOD = {"run_id": "run_01TEST", "turn": 1, "instructions": "x"}


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (b"", "not one JSON document"),
        (b"{", "not one JSON document"),
        (b"\xff", "not one JSON document"),
        (b"[" * 100_000, "not one JSON document"),
        (b"[]", "not an object"),
        *(
            (json.dumps(GOOD | {key: value}).encode(), f"{key} must be")
            for key, value in (
                *(("run_id", value) for value in ("../x", "a\n", None)),
                *(("turn", value) for value in (0, True)),
                ("instructions", 1),
                ("inputs", []),
                ("branch", 1),
                *(("default_branch", value) for value in ("a\0b", "x" * 500_000)),
            )
        ),
    ],
    ids=range(15),
)
def test_bad_task_names_its_field(task: bytes, said: str) -> None:
    """Whatever is wrong with a task, the error says what was expected."""
    with pytest.raises(TaskError, match=said):
        parse_task(task)


@pytest.mark.parametrize(
    ("task", "said"), [(b"[]", "not an object"), (b" " * (8 * 1024 * 1024 + 1), "longer than 8 MiB")], ids=range(2)
)
def test_bad_task_ends_with_2(branch: Any, task: bytes, said: str) -> None:
    """One line on standard error; nothing is written."""
    done = branch.start(task)

    assert done.status == 2
    assert said in done.errors
    assert done.errors.count("\n") == 1
    assert not (branch.folder / "reviews").exists()
    assert done.result == {}


def test_configured_inputs_hold_until_the_task_says_otherwise(branch: Any) -> None:
    """An agent's configuration may narrow the reviewer; the caller's own inputs win."""
    narrow = ("--input", "focus=security")
    configured = branch.turn(arguments=narrow).review
    asked = branch.turn(arguments=narrow, inputs={"focus": "docs"}).review

    assert "Focus: security" in configured
    assert "Focus: docs" in asked


@pytest.mark.parametrize("arguments", [("--focus", "security"), ("--input", "focus"), ("--input",)])
def test_other_arguments_are_refused(branch: Any, arguments: tuple[str, ...]) -> None:
    """A slip in an agent's configuration does not pass unnoticed."""
    done = branch.start(json.dumps(GOOD).encode(), arguments=arguments)

    assert done.status == 2
    assert "--input KEY=VALUE" in done.errors


def a_repository_elsewhere(branch: Any) -> None:
    (branch.folder / ".git").rename(branch.folder.parent / "gone")


def a_missing_object(branch: Any) -> None:
    tree = branch.git("rev-parse", "HEAD^{tree}").strip()
    (branch.folder / ".git/objects" / tree[:2] / tree[2:]).unlink()


def no_commit(branch: Any) -> None:
    branch.git("checkout", "-q", "--orphan", "empty")


@pytest.mark.parametrize(
    ("damage", "said"),
    [(no_commit, "no commit yet"), (a_repository_elsewhere, "not a git repository"), (a_missing_object, "git ls-tree")],
)
def test_a_repository_that_cannot_be_read_ends_with_1(branch: Any, damage: Callable[[Any], None], said: str) -> None:
    """A failure in one line, not an empty review; git's own words are passed on."""
    damage(branch)

    done = branch.turn()

    (line,) = done.errors.splitlines()
    assert done.status == 1
    assert said in line


def test_result_file_that_cannot_be_written_ends_with_1(branch: Any, tmp_path: Path) -> None:
    """The service would otherwise take the turn for one without an answer."""
    done = branch.start(json.dumps(GOOD).encode(), result=tmp_path / "no-such-folder/result.json")

    (line,) = done.errors.splitlines()
    assert done.status == 1
    assert "RUNWARDEN_RESULT" in line


def test_read_only_git_directory_is_enough(branch: Any, tmp_path: Path) -> None:
    """The git directory may be elsewhere and may not be written; the checkout holds files only."""
    elsewhere = tmp_path / "git"
    (branch.folder / ".git").rename(elsewhere)
    (branch.folder / ".git").write_text(f"gitdir: {elsewhere}\n")
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    for path in elsewhere.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)

    done = branch.turn()

    for path in elsewhere.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert done.status == 0
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before
