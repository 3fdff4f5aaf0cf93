"""What is understood of instructions and inputs, and what is said not to be."""

from typing import Any

import pytest

from service.reviewer.checks import RULES
from service.reviewer.vocabulary import WORDS
from service.reviewer.wishes import matches, understand

PATHS = ("src/api.py", "src/web/app.js", "tests/test_api.py", "README.md")


def wish(text: str = "", inputs: dict[str, Any] | None = None) -> Any:
    return understand(text, inputs or {}, PATHS)


@pytest.mark.parametrize(
    "text", ["Only security.", "please look at security issues only... just security", "Focus on security"]
)
def test_only_a_topic(text: str) -> None:
    """A topic after "only" or its like leaves the rules of that topic."""
    assert wish(text).only == WORDS["security"]


def test_ignored_words() -> None:
    """Words after "ignore" leave their rules out, up to the next verb."""
    wishes = wish("Ignore TODOs and trailing-whitespace but check src/")

    assert wishes.ignored == {"todo", "trailing-whitespace"}
    assert wishes.paths == ("src/",)


def test_ignored_paths() -> None:
    """A path after "ignore" is left out; all others stay."""
    wishes = wish("skip src/web/")

    assert not wishes.covers("src/web/app.js")
    assert wishes.covers("src/api.py")


@pytest.mark.parametrize("text", ["Look at src/ please", "only `src`", "Review src/**", "check api.py and app.js"])
def test_paths_to_look_at(text: str) -> None:
    """A path after a verb of looking limits the review."""
    wishes = wish(text)

    assert wishes.covers("src/api.py")
    assert not wishes.covers("README.md")


def test_mere_mention_limits_nothing() -> None:
    """A path or rule that is only mentioned is answered, not obeyed."""
    wishes = wish("I changed src/api.py and the eval is gone.")

    assert wishes.paths == ()
    assert wishes.only == frozenset()
    assert wishes.asked == ("eval", "src/api.py")


def test_unknown_path_is_said() -> None:
    """A path that is not in the tree is named instead of leading to an empty review."""
    wishes = wish("Only look at lib/core/")

    assert wishes.covers("src/api.py")
    assert wishes.unclear == ("lib/core/ is no path of this tree.",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fix the trailing whitespace", True),
        ("please fix", True),
        ("clean up the formatting", True),
        ("Fix everything you can.", True),
        ("Do not fix whitespace", False),
        ("Fix the login time-out", False),
        ("Find out why, fix it, and finish the job.", False),
        ("Review this; don't change whitespace, fix nothing", False),
    ],
)
def test_fixing_has_to_be_asked_for(text: str, *, expected: bool) -> None:
    """Only a wish for mechanical fixes is one; fixing a bug is beyond this reviewer."""
    assert wish(text).fix is expected


@pytest.mark.parametrize(
    ("text", "depth"), [("Review the whole repository", "tree"), ("only the diff", "diff"), ("hi", None)]
)
def test_depth(text: str, depth: str | None) -> None:
    """The whole tree, the difference, or whichever fits."""
    assert wish(text).depth == depth


def test_inputs_win() -> None:
    """Inputs are read as they are meant, in both spellings, and override the text."""
    wishes = wish(
        "only docs", {"only": "security, eval", "ignore": ["todo", "src/web"], "paths": ["src"], "depth": "full"}
    )

    assert wishes.only == WORDS["security"]
    assert "todo" in wishes.ignored
    assert not wishes.covers("src/web/app.js")
    assert not wishes.covers("README.md")
    assert wishes.depth == "tree"


@pytest.mark.parametrize(
    "inputs",
    [
        {"depth": 3},
        {"only": "beauty"},
        {"paths": {"a": 1}},
        {"fix": "yes"},
        {"colour": "red"},
        {"ignore": [1]},
        {"only": []},
    ],
)
def test_inputs_that_mean_nothing_are_said(inputs: dict[str, Any]) -> None:
    """No input is dropped in silence, and none ends the review."""
    wishes = wish("", inputs)

    assert len(wishes.unclear) == 1
    assert next(iter(inputs)) in wishes.unclear[0]


def test_wishes_that_leave_nothing_are_said() -> None:
    """An empty set of rules is not presented as a clean review."""
    assert "leave no rule" in wish("only todo", {"ignore": "todo"}).unclear[-1]


def test_every_word_means_a_rule() -> None:
    """The vocabulary names no rule that does not exist."""
    assert frozenset().union(*WORDS.values()) == frozenset(RULES)


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("src/api.py", "src", True),
        ("src/api.py", "./src/", True),
        ("src/api.py", "*.py", True),
        ("src/api.py", "api.py", True),
        ("src/api.py", "sr", False),
        ("srcs/api.py", "src", False),
    ],
)
def test_patterns(path: str, pattern: str, *, expected: bool) -> None:
    """A file, a folder above it, a glob, or a bare name."""
    assert matches(path, pattern) is expected


def test_long_hostile_instructions_are_survived() -> None:
    """Length alone costs next to nothing."""
    wishes = wish("only " * 50_000 + "a/" * 10_000 + "`" * 5_000)

    assert wishes.only == frozenset()
