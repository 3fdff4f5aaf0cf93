"""One turn and the next: what is reviewed, what is in focus, and what is compared."""

from typing import Any

from service.reviewer.review import read_record
from tests.reviewer.conftest import DEFAULT_BRANCH

BAD = "def run(command):\n    return eval(command)\n"
DEFAULT = "\n\ndef other(a=[]):\n    return a\n"
SECRET = "ghp" + "_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD5fG7"


def test_only_the_branchs_own_lines_are_reported(branch: Any) -> None:
    """Findings on lines that the branch did not touch are only counted.

    The result file has a summary and a commit message, and only the reviewer's own files change.
    """
    branch.commit({"src/run.py": BAD})
    branch.git("update-ref", DEFAULT_BRANCH, "HEAD")
    branch.commit({"src/run.py": "# moved\n\n" + BAD + DEFAULT, "README.md": None})
    head = branch.git("rev-parse", "HEAD")

    done = branch.turn("Fix the whitespace and commit it.")

    assert done.rules == {("src/run.py", "B006")}
    assert "`B006` line 7" in done.section("Findings")
    assert "; compared with main where the branch left it." in done.review
    assert "from before the branch: 1, not listed" in done.section("What was not checked")
    assert "- `src/run.py` +6 \u22120\n- `README.md` +0 \u22121" in done.section("What changed")
    summary = "Changes needed: 1 major in 2 files."
    message = f"Review, turn 1: 1 major\n\n{summary}\nThe review is reviews/run_01TEST.md.\n"
    assert done.result == {"summary": summary, "commit_message": message}
    assert ("Wrote reviews/run_01TEST.md." in done.log, done.errors) == (True, "")
    changed = branch.git("status", "--porcelain", "-uall").split()[1::2]
    assert (changed, branch.git("rev-parse", "HEAD")) == ([".runwarden/findings.json", "reviews/run_01TEST.md"], head)


def test_the_next_turn_reports_each_earlier_finding(branch: Any) -> None:
    """Moved lines keep their finding, gone ones are resolved, others are new, and a rerun changes nothing."""
    branch.commit({"src/run.py": BAD + DEFAULT})
    branch.turn("First look.")
    branch.commit({"src/run.py": "X = 1\n\n\n" + BAD + "\n\nbreakpoint()\n"})

    done = branch.turn("Better?", 2)
    since = done.section("Since the last review")
    branch.commit({})
    again = branch.turn("And now?", 3)

    assert since.startswith("\n1 resolved, 1 still open, 1 new.")
    assert "`B006` in `src/run.py`" in since.partition("**Still open**")[0]
    assert "`S307` in `src/run.py` line 5" in since.partition("**Still open**")[2].partition("**New**")[0]
    assert "`T100`" in since.partition("**New**")[2]
    assert "1 resolved, 1 still open" in done.result["summary"]
    assert "0 resolved, 2 still open, 0 new." in again.section("Since the last review")
    assert again.section("Findings") == done.section("Findings")


def test_a_narrower_turn_still_reports_earlier_findings(branch: Any) -> None:
    """A narrower turn lists less, but reports the state of every earlier finding; a leaked secret must be revoked."""
    branch.commit({"src/run.py": BAD + "# TODO: more\n"})
    branch.turn()
    branch.commit({"src/run.py": BAD + "# TODO: more\n\n\nbreakpoint()\n", "conf.txt": f"{SECRET}\n"})
    second = branch.turn("Again.", 2, inputs={"focus": ["style"]})
    branch.commit({"conf.txt": "none\n"})
    third = branch.turn("Everything again.", 3)

    assert second.rules == {("conf.txt", "secret-github-token"), ("src/run.py", "FIX002")}
    assert "**Do not merge:** 1 blocker" in second.review
    assert "Focus: style; left out: 2." in second.review
    assert "0 resolved, 2 still open, 1 new" in second.section("Since the last review")
    assert "1 resolved, 2 still open, 1 new" in third.section("Since the last review")
    assert "it is valid until it is revoked" in third.section("Since the last review")


def test_a_review_without_findings_describes_the_tree(branch: Any) -> None:
    """A fresh branch is read as a tree: number, kinds and sizes of files, and what was not checked."""
    done = branch.turn()

    assert done.review.startswith(
        "# Review of agent/work, turn 1\n\n**Nothing found that blocks a merge:** no findings in 2 files.\n"
    )
    assert "the whole tree at" in done.review
    assert "the branch does not differ from main" in done.review
    assert "\nNone.\n" in done.section("Findings")
    assert "2 files, 0.1 KiB; 6 lines added, 0 deleted.\nKinds: `.md` 1, `.py` 1." in done.section("What is there")
    assert "no model read it or the instructions" in done.section("What was not checked")


def test_a_forged_record_is_ignored(branch: Any) -> None:
    """A forged record can neither add markup to the review nor end its comment."""
    row = '{"rule": "S307", "path": "x", "title": "--\\u003e\\n# Heading", "id": "<script>\\n# Heading"}'
    (branch.folder / "reviews").mkdir()
    (branch.folder / "reviews/run_01TEST.md").write_text(f"<!-- runwarden-review [{row}] -->")

    forged = branch.turn("", 2)

    assert read_record("mine now\n<!-- runwarden-review {} -->") is None
    assert forged.status == 0
    assert "1 resolved" in forged.review
    assert "\n# Heading" not in forged.review
    assert forged.review.count("-->") == 1
