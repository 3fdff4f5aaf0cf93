"""One turn and the next: what is reviewed and what is compared."""

from typing import Any

from service.findings.document import checked, drafts, read_json

BAD = "def run(command):\n    return eval(command)\n"
TEST = {"tests/test_run.py": "from src.run import run\n\n\ndef test_run():\n    assert run('1') == 1\n"}
SECRET = "ghp" + "_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD5fG7"


def test_fresh_branch_is_reviewed_as_a_tree(branch: Any) -> None:
    """Without a difference the whole tree is read, and the review says why."""
    done = branch.turn()

    assert done.status == 0
    assert "the whole tree at" in done.body
    assert "the branch does not differ from main" in done.body
    assert "3 files read" in done.body
    assert "**Nothing found that stands in the way**: no findings." in done.body


def test_branch_answers_for_what_it_brought(branch: Any) -> None:
    """Faults of the default branch in the same file are counted, not listed; new ones are listed."""
    branch.commit({"src/run.py": BAD, **TEST})
    branch.git("update-ref", "refs/remotes/origin/main", "HEAD")
    branch.commit({"src/run.py": "# moved\n\n" + BAD + "\n\ndef other(a=[]):\n    return a\n"})

    done = branch.turn()

    assert "`mutable-default` line 7" in done.section("Findings")
    assert "`eval`" not in done.body
    assert "there before the branch: 1, not listed" in done.section("What was not checked")
    assert "1 file read" in done.body


def test_renamed_file_keeps_its_old_faults(branch: Any) -> None:
    """A rename does not make old faults new."""
    branch.commit({"src/run.py": BAD * 1 + "\n\n" + "X = 1\n" * 20, **TEST})
    branch.git("update-ref", "refs/remotes/origin/main", "HEAD")
    branch.git("mv", "src/run.py", "src/execute.py")
    branch.commit({"tests/test_run.py": "from src.execute import run\n\n\ndef test_run():\n    assert run('1') == 1\n"})

    assert "`eval`" not in branch.turn().section("Findings")


def test_result_names_the_verdict(branch: Any) -> None:
    """The result file holds a summary and a commit message; the log says what happened."""
    branch.commit({"src/run.py": BAD, **TEST})

    done = branch.turn()

    assert done.result["summary"] == "Changes needed: 1 major in 2 files."
    assert done.result["commit_message"].startswith("Review, turn 1: 1 major\n\n")
    assert "Wrote reviews/run_01TEST.md." in done.log
    assert done.errors == ""


def test_second_turn_compares_with_the_first(branch: Any) -> None:
    """Moved lines stay the same finding; gone ones are resolved; new ones are new."""
    branch.commit({"src/run.py": BAD + "\n\ndef other(a=[]):\n    return a\n", **TEST})
    branch.turn("First look.")
    branch.accept()
    branch.commit({"src/run.py": "X = 1\n\n\n" + BAD + "\n\nbreakpoint()\n"})

    done = branch.turn("Better?", 2)
    since = done.section("Since the last review")

    assert since.startswith("\n1 resolved, 1 still open, 1 new, 0 not looked at this time.")
    assert "`mutable-default` in `src/run.py`" in since.partition("**Still open**")[0]
    assert "`eval` in `src/run.py` line 5" in since.partition("**Still open**")[2].partition("**New**")[0]
    assert "`debugger`" in since.partition("**New**")[2]
    assert "None" not in since
    assert "1 resolved, 1 still open" in done.result["summary"]


def test_turns_without_a_change_repeat_themselves(branch: Any) -> None:
    """Nothing is new, and asked once more the review is the same to the letter."""
    branch.commit({"src/run.py": BAD, **TEST})
    branch.turn()
    branch.accept()
    second = branch.turn("", 2)
    branch.accept()

    assert "0 resolved, 1 still open, 0 new" in second.section("Since the last review")
    assert branch.turn("", 2).section("Findings") == second.section("Findings")


def test_run_keeps_to_its_kind(branch: Any) -> None:
    """The review's own commit makes no difference to review; a run over the tree stays one over the tree."""
    branch.turn()
    branch.accept()
    branch.commit({"src/run.py": BAD, **TEST})

    done = branch.turn("Again.", 2)

    assert "Reviewed: the whole tree" in done.body
    assert "0 resolved, 0 still open, 1 new" in done.section("Since the last review")


def test_a_focus_hides_nothing_of_the_last_review(branch: Any) -> None:
    """A narrower turn lists less, yet says of every earlier finding whether it is resolved or still open."""
    branch.commit({"src/run.py": BAD + "# TODO: more\n", **TEST})
    branch.turn()
    branch.accept()
    branch.commit({"src/run.py": BAD + "# TODO: more\n\n\nbreakpoint()\n"})

    second = branch.turn("Only security, please.", 2)
    branch.accept()
    third = branch.turn("Everything again.", 3)

    assert "`todo`" not in second.section("Findings")
    assert "- Focus: security.\n- Findings left out: 2." in second.section("What was asked")
    assert "0 resolved, 2 still open, 0 new, 0 not looked at" in second.section("Since the last review")
    assert "0 resolved, 2 still open, 1 new, 0 not looked at" in third.section("Since the last review")


def test_a_blocker_is_listed_beside_the_focus(branch: Any) -> None:
    """A review of the documents does not pass over a leaked secret."""
    branch.commit({"conf.txt": f"{SECRET}\n", "src/run.py": BAD, **TEST})

    done = branch.turn(inputs={"focus": "docs"})

    assert "**Do not merge**: 1 blocker." in done.body
    assert "`eval`" not in done.section("Findings")


def test_removed_secret_is_still_to_be_revoked(branch: Any) -> None:
    """The review never holds the secret, and says that removing it is not enough."""
    branch.commit({"conf.txt": f"{SECRET}\n"})
    first = branch.turn(f"Is {SECRET} safe?")
    branch.accept()
    branch.commit({"conf.txt": "none\n"})
    second = branch.turn("Removed.", 2, conversation=[{"turn": 1, "instructions": f"Is {SECRET} safe?"}])

    assert "**Do not merge**: 1 blocker." in first.body
    assert SECRET not in first.review + second.review + first.log + str(first.result)
    assert "it stays valid until it is revoked" in second.section("Since the last review")


def test_nothing_is_changed_but_the_review(branch: Any) -> None:
    """Whatever the instructions say, the reviewer touches nothing but its own files and commits nothing."""
    head = branch.commit({"a.md": "x \n"})
    branch.turn("Fix the whitespace and commit it.")

    assert branch.git("status", "--porcelain", "-uall").split()[1::2] == [
        ".runwarden/findings.json",
        "reviews/run_01TEST.md",
    ]
    assert branch.git("rev-parse", "HEAD").strip() == head


def test_damaged_record_is_said(branch: Any) -> None:
    """An earlier review that was edited away is named, and the review goes on."""
    branch.turn()
    (branch.folder / "reviews/run_01TEST.md").write_text("mine now\n")

    done = branch.turn("", 2)

    assert done.status == 0
    assert "it holds no record of its findings" in done.section("Since the last review")


def test_missing_default_branch_is_said(branch: Any) -> None:
    """Without the reference to compare with, the tree is read and the reason given."""
    done = branch.turn(default_branch="trunk")

    assert "the default branch trunk is not in this checkout" in done.body


def test_the_findings_are_there_for_programs_too(branch: Any) -> None:
    """As any agent may write them (docs/agents.md); through no link."""
    branch.commit({"src/more.py": "import os\n\nprint(eval('1'))\n"})
    branch.turn()
    findings = branch.folder / ".runwarden" / "findings.json"
    found = list(checked(drafts(read_json(findings.read_bytes())), []))
    findings.unlink()
    findings.parent.rmdir()
    findings.parent.symlink_to(branch.folder / "src")
    again = branch.turn(number=2)

    assert ("unused-import", "src/more.py", 1, "minor") in {
        (one.rule, one.path, one.line, one.severity) for one in found
    }
    assert (again.status, "The findings are in the review alone" in again.log) == (0, True)
    assert not (branch.folder / "src" / "findings.json").exists()
