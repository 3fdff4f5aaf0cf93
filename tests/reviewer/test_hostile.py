"""Repositories made to break the reviewer: it reads, it never runs, it never follows, and its review stays a review."""

import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from service.reviewer.review_file import ReviewFile, ReviewFileError

SECRET = b"ghp" + b"_" + b"aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD5fG7\n"


def test_modules_of_the_checkout_are_never_imported(branch: Any, tmp_path: Path) -> None:
    """Started with -P, Python finds neither a standard module nor the reviewer itself in the checkout."""
    mark = tmp_path / "ran"
    bad = f"open({str(mark)!r}, 'w').close()\n"
    names = ("json.py", "ast.py", "runpy.py", "sitecustomize.py", "service/__init__.py", "service/reviewer/__main__.py")
    branch.commit(dict.fromkeys(names, bad))

    done = branch.turn()

    assert done.status == 0
    assert not mark.exists()
    assert "json.py" not in done.log


def test_started_without_p_says_so(branch: Any) -> None:
    """Without -P the reviewer drops the checkout from Python's path as soon as it can, and names the better way."""
    branch.commit({"zipfile.py": "raise SystemExit(9)\n", "tomllib.py": "raise SystemExit(9)\n"})

    done = branch.turn(flags=())

    assert done.status == 0
    assert "started without -P" in done.log


def test_configuration_and_hooks_of_the_repository_do_not_run(branch: Any, tmp_path: Path) -> None:
    """fsmonitor, hooks, text conversion, external diff, filters and pager stay unused."""
    mark = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    branch.commit({".gitattributes": "*.py diff=evil filter=evil\n", "src/new.py": "X = 1\n"})
    for key in (
        "core.fsmonitor",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "core.pager",
        "pager.diff-tree",
    ):
        branch.git("config", key, str(script))
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.sshCommand", "core.alternateRefsCommand"):
        branch.git("config", key, str(script))
    hooks = branch.folder / ".git/hooks"
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (hooks / name).write_text(script.read_text())
        (hooks / name).chmod(0o755)

    done = branch.turn("review every file")

    assert done.status == 0
    assert not mark.exists()


@pytest.mark.parametrize("where", ["reviews", "reviews/run_01TEST.md"])
def test_review_is_never_written_through_a_link(branch: Any, tmp_path: Path, where: str) -> None:
    """A link where the review belongs is refused or replaced; what it leads to stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run_01TEST.md").write_text("precious")
    link = branch.folder / where
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside if where == "reviews" else outside / "run_01TEST.md")
    branch.commit({})

    done = branch.turn()

    assert (outside / "run_01TEST.md").read_text() == "precious"
    if where == "reviews":
        assert done.status == 1
        assert "must be a real folder" in done.errors
    else:
        assert done.status == 0
        assert done.review.startswith("# Review")


def attempt(work: Callable[[], object], at: int, attack: Callable[[], object]) -> bool:
    """Do some work with an attack right before the call of the given number into C; whether there were that many."""
    calls = count()

    def watch(_frame: object, event: str, _call: object) -> None:
        if event == "c_call" and next(calls) == at:
            attack()

    sys.setprofile(watch)
    try:
        work()
    except ReviewFileError:
        pass
    finally:
        sys.setprofile(None)
    return next(calls) > at


def test_folder_that_becomes_a_link_at_any_moment_is_not_followed(tmp_path: Path) -> None:
    """Nothing is written to, and nothing is read from, the place where the link leads, whenever it appears."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run_01TEST.md").write_text("precious")
    moments = {"read": 0, "write": 0}

    for action in moments:
        for moment in count():
            reviews = tmp_path / f"{action}-{moment}" / "reviews"
            reviews.mkdir(parents=True)
            (reviews / "run_01TEST.md").write_text("earlier")
            file = ReviewFile(reviews.parent, "reviews/run_01TEST.md")
            seen: list[bytes | None] = []

            def become_a_link(reviews: Path = reviews) -> None:
                reviews.rename(reviews.with_name("moved"))
                reviews.symlink_to(outside)

            def work(action: str = action, file: ReviewFile = file, seen: list[bytes | None] = seen) -> None:
                seen.append(file.read()) if action == "read" else file.write("new")

            if not attempt(work, moment, become_a_link):
                break
            moments[action] += 1
            assert b"precious" not in seen, f"{action}, moment {moment}"
            assert [path.name for path in outside.iterdir()] == ["run_01TEST.md"], f"{action}, moment {moment}"
            assert (outside / "run_01TEST.md").read_text() == "precious", f"{action}, moment {moment}"

    assert min(moments.values()) > 4


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder stands where the review belongs: the error is told, and the half-way file is gone."""
    (tmp_path / "reviews/run_01TEST.md").mkdir(parents=True)

    with pytest.raises(ReviewFileError):
        ReviewFile(tmp_path, "reviews/run_01TEST.md").write("new")

    assert [path.name for path in (tmp_path / "reviews").iterdir()] == ["run_01TEST.md"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_replaced_review_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """A review that others may not read stays so, and one that others may write too."""
    file = ReviewFile(tmp_path, "reviews/run_01TEST.md")
    file.write("first")
    review = tmp_path / "reviews/run_01TEST.md"
    review.chmod(mode)

    file.write("second")

    assert (review.read_text(), review.stat().st_mode & 0o777) == ("second", mode)


def test_large_and_binary_and_odd_files_are_survived(branch: Any) -> None:
    """Sizes, encodings and empty files are reported or passed over; none ends the review."""
    branch.commit(
        {
            "huge.py": b"x = 1\n" * 200_000,
            "long.js": "a" * 300_000,
            "nul.py": b"x = 1\0\n",
            "late-nul.py": b"x = 1\n" * 3_000 + b"\0\n",
            "empty.py": b"",
            "utf16.py": "x = 1\n".encode("utf-16"),
            "bom.py": b"\xef\xbb\xbfx = 1\n",
            "coding.py": b"# coding: no-such\nx = 1\n",
            "latin.py": b"# coding: latin-1\nx = '\xe9'\n",
            "deep.json": "[" * 200_000,
            "big.json": '{"a": ' + "9" * 100_000 + "}",
            "bad.toml": "a = " + "[" * 50_000,
        }
    )

    done = branch.turn()

    assert done.status == 0
    assert "too large or beyond the limits of one review: 1." in done.section("What was not checked")
    assert "A check failed" not in done.body


def test_paths_of_any_bytes(branch: Any) -> None:
    """Names with line ends, markup, escapes and bytes that are no UTF-8 show as text in one line each."""
    names = [
        b"a\n# Heading.txt",
        b"b\x1b[2J.txt",
        b"c`](http:x).txt",
        b"d<script>.txt",
        b"\xff\xfe.txt",
        b"- [ ] e.txt",
    ]
    for name in names:
        (branch.folder / os.fsdecode(name)).write_bytes(SECRET)
    branch.commit({})

    done = branch.turn()

    assert done.status == 0
    headings = [line for line in done.body.splitlines() if line.startswith("### ")]
    assert len(headings) == len(names)
    assert "### `a<U+000A># Heading.txt`" in headings
    assert "### `b<U+001B>[2J.txt`" in headings
    assert "### ``c`](http:x).txt``" in headings
    assert "### `<U+DCFF><U+DCFE>.txt`" in headings


def test_submodules_are_passed_over(branch: Any) -> None:
    """A submodule's commit is not here, and nothing tries to fetch it."""
    branch.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},vendor/lib")
    branch.git("commit", "-q", "-m", "submodule")

    assert branch.turn().status == 0


def test_many_files_end_in_time_and_say_so(repo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When time is up, the rest is named; nothing of the rest counts as resolved later."""
    from service.reviewer.git import GitFiles
    from service.reviewer.render import render
    from service.reviewer.review import review
    from service.reviewer.task import parse_task

    repo.commit({f"src/m{n}.py": "# TODO: x\ndef f(a=[]):\n    return a\n" for n in range(40)})
    ticks = iter(n / 10 for n in range(100_000))
    log: list[str] = []

    def turn(number: int, clock: Any) -> Any:
        task = parse_task(b'{"run_id": "run_01TEST", "turn": %d, "instructions": ""}' % number)
        file = ReviewFile(repo.folder, f"reviews/{task.run_id}.md")
        done = review(task, GitFiles(repo.folder), file.read(), log.append, clock)
        file.write(render(done))
        return done

    full = turn(1, lambda: 0.0)
    cut = turn(2, lambda: next(ticks))

    assert len(full.reported) == 81
    assert 0 < len(cut.survey.sources) < 40
    assert cut.survey.unread == 40 - len(cut.survey.sources)
    assert "Files left unread" in render(cut)
    assert cut.since.resolved == ()
    assert len(cut.since.unseen) + len(cut.since.still_open) == 81


def test_record_of_a_hostile_branch_is_not_believed(branch: Any) -> None:
    """A forged record can neither mark up the review nor end it."""
    branch.turn()
    path = branch.folder / "reviews/run_01TEST.md"
    good = path.read_text()
    row = '["0123456789abcdef","eval","blocker","x --\\u003e <script>\\n# Heading",1]'
    path.write_text(good.replace('"findings":[]', f'"findings":[{row}]'))

    done = branch.turn("", 2)

    assert done.status == 0
    assert "\n# Heading" not in done.body
    assert "1 resolved" in done.body
    assert "blocker `eval` in `x --> <script><U+000A># Heading` line 1" in done.body
