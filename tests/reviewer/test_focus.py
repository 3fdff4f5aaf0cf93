"""What is read out of instructions and inputs, and what is said not to be understood."""

from typing import Any

import pytest

from service.reviewer.finding import CheckRule, Topic
from service.reviewer.review import WORDS, Focus, matches, read_focus

PATHS = ("src", "src/web", "tests", "src/api.py", "src/web/app.js", "tests/test_api.py", "README.md")


def focus(text: str = "", inputs: dict[str, Any] | None = None) -> Focus:
    return read_focus(text, inputs or {}, PATHS)


@pytest.mark.parametrize("word", WORDS)
def test_a_focus_word_chooses_its_topic(word: str) -> None:
    """Each word means the same in instructions and as an input, in any case."""
    assert focus(f"Look at the {word.upper()}, please.").topics == {WORDS[word]}
    assert focus(inputs={"focus": word}).topics == {WORDS[word]}


@pytest.mark.parametrize(
    "text",
    ["Review this.", "Skip the docs.", "Don't look at style", "no tests needed", "see docs/a.md", "the tests.py file"],
)
def test_other_text_chooses_nothing(text: str) -> None:
    """A clause with a negation, and a word that is part of a path, are no focus."""
    assert focus(text).topics == frozenset()


def test_a_negation_ends_with_its_clause() -> None:
    """What follows a comma or "but" counts again."""
    assert focus("Ignore the docs, look at security").topics == {Topic.SECURITY}


@pytest.mark.parametrize("given", ["security,tests", "security tests", ["security", "Tests"]])
def test_the_focus_input_takes_a_text_or_a_list_and_wins(given: Any) -> None:
    """Structured inputs override the text."""
    assert focus("only docs", {"focus": given}).topics == {Topic.SECURITY, Topic.TESTS}


def test_paths_of_the_tree_limit_the_review() -> None:
    """A file or folder that exists counts; other paths mean nothing."""
    limited = focus("Check `src/web/` and lib/core/ and README.md.")

    assert limited.paths == ("src/web", "README.md")
    assert limited.wants(CheckRule.TODO, "src/web/app.js")
    assert not limited.wants(CheckRule.TODO, "src/api.py")
    assert focus(inputs={"paths": "*.js"}).wants(CheckRule.TODO, "src/web/app.js")


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        ("Review the whole repository", {}, True),
        ("hi", {"depth": "full"}, True),
        ("the entire tree", {"depth": "diff"}, False),
        ("hi", {}, False),
    ],
)
def test_the_whole_tree_has_to_be_asked_for(text: str, inputs: dict[str, Any], *, expected: bool) -> None:
    """In words or as an input."""
    assert focus(text, inputs).whole_tree is expected


@pytest.mark.parametrize(
    "inputs", [{"focus": "beauty"}, {"focus": []}, {"paths": {"a": 1}}, {"depth": 3}, {"colour": "red"}]
)
def test_inputs_that_mean_nothing_are_said(inputs: dict[str, Any]) -> None:
    """No input is dropped in silence, and none ends the review."""
    unclear = focus("", inputs).unclear

    assert len(unclear) == 1
    assert next(iter(inputs)) in unclear[0]


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
    assert focus("only " * 50_000 + "a/" * 10_000 + "`" * 5_000) == Focus()
    assert focus("a/" * 9_000 + "-" * 200) == Focus()
