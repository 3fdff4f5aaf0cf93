"""Completion of names and values."""

from tests.cli.conftest import CommandLine
from tests.lab import Lab


def completed(at: CommandLine, *words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    asked = {"_RUNWARDEN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["runwarden", *words])}
    done = at(**asked, COMP_CWORD=str(len(words)))
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_foreign_names_are_completed_as_one_quoted_word(boarded: CommandLine, lab: Lab) -> None:
    """Foreign names complete from the cache as one quoted word in bash, which executes none of it."""
    for number, status in enumerate(("$(touch owned)", "a b", "x\nplain,y")):
        lab.put(f"odd_{number}", status)
    assert boarded("runs", "list").code == 0
    asked = len(lab.requests)
    offered = completed(boarded, "runs", "list", "--status", "")
    first, second = (boarded("completion", "bash", "--install") for _ in range(2))

    assert {"'$(touch owned)'", "'a b'"} <= {*offered}
    assert not any("\n" in word or word in {"y", "x"} for word in offered)
    assert completed(boarded, "runs", "show", "odd_1") == ["odd_1"]
    assert len(lab.requests) == asked
    assert (first.code, second.code, "runwarden" in first.out) == (0, 0, True)
