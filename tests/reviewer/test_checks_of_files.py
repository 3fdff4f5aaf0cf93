"""What each rule sees in one file, and what it leaves alone."""

import string
from typing import Any

import pytest

from service.reviewer.checks.secrets import redacted
from service.reviewer.finding import RULES, Severity
from service.reviewer.markdown import quoted
from service.reviewer.review import read_focus
from tests.reviewer.conftest import found, rules

# Put together here, so that no scanner takes this file for a leak.
MIXED = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD5fG7"
GITHUB = "ghp" + "_" + MIXED
AWS = "AK" + "IA" + "QX7LMN4RSTUVW2YZ"
TOKENS = {
    "AWS access key": AWS,
    "GitHub token": GITHUB,
    "GitLab token": "gl" + "pat-" + MIXED,
    "Slack token": "xo" + "xb-" + MIXED,
    "Slack webhook": "hooks." + "slack.com/services/T0QX7LMN4/B0RSTUVW2/" + MIXED[:24],
    "Stripe key": "sk" + "_live_" + MIXED,
    "Google API key": "AI" + "za" + MIXED[:35],
    "Anthropic key": "sk-" + "ant-" + MIXED,
    "OpenAI key": "sk-" + "proj-" + MIXED,
    "npm token": "npm" + "_" + MIXED,
    "PyPI token": "py" + "pi-AgE" + MIXED + "_-" + MIXED,
    "SendGrid key": "SG" + "." + MIXED[:22] + "." + MIXED + "-" + MIXED[:6],
    "JSON web token": "ey" + "J" + MIXED + ".ey" + "J" + MIXED + "." + MIXED,
}
KEY = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + MIXED * 2 + "\n"
FIRES: dict[str, list[tuple[str, str | bytes]]] = {
    "secret-token": [("a.py", f'T = "{GITHUB}"\n'), ("deploy.yml", f"key: {AWS}\n")],
    "secret-private-key": [("id_rsa", KEY)],
    "secret-in-url": [("a.sh", "psql postgres://app:h7Gk2LpQ@db.internal/app\n")],
    "secret-assignment": [("a.py", f'API_KEY = "{MIXED}"\n'), ("a.js", f'const secret = "{MIXED}";\n')],
    "env-file": [(".env", "A=1\n"), ("web/.env.production", "A=1\n")],
    "conflict-marker": [("a.txt", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> theirs\n")],
    "todo": [("a.py", "x = 1  # TODO: later\n"), ("a.js", "// FIXME now\n")],
    "debugger": [("a.js", "  debugger;\n"), ("a.rb", "binding.pry\n"), ("b.py", "import pdb\npdb.set_trace()\n")],
    "focused-test": [("a.test.js", "it.only('x', () => {})\n")],
    "bidi-control": [("a.c", "int x; // \u202e evil\n")],
    "python-syntax": [("a.py", "def f(:\n"), ("b.py", "return 1\n")],
    "data-syntax": [("a.json", '{"a": 1,}\n'), ("a.toml", "a = \n")],
    "eval": [("src/a.py", "def f(x):\n    return eval(x)\n")],
    "shell-true": [
        ("a.py", "import subprocess\nsubprocess.run(c, shell=True)\n"),
        ("b.py", "import os\nos.system(c)\n"),
    ],
    "tls-unverified": [("a.py", "import requests\nrequests.get(u, verify=False)\n")],
    "unsafe-load": [("a.py", "import yaml\nyaml.load(f)\n")],
    "swallowed-exception": [
        ("a.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
        ("b.py", "try:\n    f()\nexcept:\n    pass\n"),
    ],
    "mutable-default": [("a.py", "def f(a=[]): ...\n"), ("b.py", "def f(*, a=dict()): ...\n")],
    "unused-import": [("a.py", "import os\n"), ("b.py", "from a import (\n    b,\n    c,\n)\nb()\n")],
    "unpinned": [
        ("requirements.txt", "httpx>=0.28\n"),
        ("requirements/dev.txt", "pytest\n"),
        ("Dockerfile", "FROM a/b:latest AS x\n"),
    ],
}
QUIET: list[tuple[str, str, str | bytes]] = [
    ("secret-token", "a.py", "T = 'AKIAIOSFODNN7EXAMPLE'\n"),
    ("secret-private-key", "a.py", "if '-----BEGIN PRIVATE KEY-----' in text: pass\n"),
    ("secret-in-url", "a.md", "postgres://user:password@localhost/app\n"),
    ("secret-in-url", "a.md", "oracle://scott:tiger@db.host.org/x mssql://sa:S3cret99@localhost/x\n"),
    ("secret-assignment", "a.py", 'password = "correct horse battery"\ntoken_name = "authorization-header"\n'),
    ("secret-assignment", "a.py", f'TOKEN_LETTERS = "{string.ascii_letters}{string.digits}"\n'),
    ("env-file", ".env.example", "A=1\n"),
    ("conflict-marker", "a.rst", "Title\n=======\n"),
    ("todo", "a.py", "todo_list = 'TODO'\n# TODO #12: later\n"),
    ("bidi-control", "a.py", "x = 'ä'\n"),
    ("python-syntax", "t.py", "def {{ x }}():\n"),
    ("data-syntax", "tsconfig.json", '{"a": 1, // why\n}\n'),
    ("data-syntax", "a.json", "[" * 100_000),
    ("eval", "a.py", "eval('1')\nre.compile('x')\nself.eval(x)\n"),
    ("shell-true", "a.py", "subprocess.run([c], shell=False)\n"),
    ("unsafe-load", "a.py", "import yaml\nyaml.load(f, Loader=yaml.SafeLoader)\n"),
    ("swallowed-exception", "a.py", "try:\n    f()\nexcept ValueError:\n    pass\n"),
    ("mutable-default", "a.py", "def f(a=(), b=None, c=1): ...\n"),
    ("unused-import", "__init__.py", "from .a import b\n"),
    ("unused-import", "a.py", "from a import b\n\n\ndef f(x: 'b'): ...\n"),
    ("unused-import", "a.py", "from a import b as b\nimport c  # noqa: F401\nfrom __future__ import annotations\n"),
    ("unused-import", "a.py", "try:\n    import fast\nexcept ImportError:\n    fast = None\n"),
    ("unpinned", "requirements.txt", "httpx==0.28.1\n# why\n-r other.txt\nmine @ https://x.example/mine.whl\n"),
    ("unpinned", "Dockerfile", "FROM a/python:3.12 AS base\nFROM base\nFROM scratch\nFROM $IMAGE\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), [(rule, *case) for rule, cases in FIRES.items() for case in cases])
def test_rule_sees_its_fault(rule: str, path: str, text: str | bytes) -> None:
    """The rule fires on the fault it is made for."""
    assert rule in rules(text, path)


@pytest.mark.parametrize(("rule", "path", "text"), QUIET)
def test_rule_leaves_look_alikes_alone(rule: str, path: str, text: str | bytes) -> None:
    """What only looks like the fault is not reported."""
    assert rule not in rules(text, path)


def test_every_rule_has_a_case() -> None:
    """No rule is without a test that it can fire, here or on a tree."""
    of_trees = {"leftover-file", "build-product", "large-file", "symlink-outside", "missing-test", "no-tests"}

    assert set(FIRES) | of_trees | {"broken-link"} == set(RULES)


def repeated(secret: str, said: str) -> bool:
    """Whether eight characters of a secret stand in a row in what is said."""
    return any(secret[at : at + 8] in said for at in range(len(secret) - 7))


@pytest.mark.parametrize(("label", "secret"), TOKENS.items())
def test_token_of_any_shape_is_found_and_named(label: str, secret: str) -> None:
    """Each of the known shapes is a secret, and the finding says of which kind."""
    (finding,) = (one for one in found(f"use {secret}\n") if one.rule.id == "secret-token")

    assert finding.message.startswith(f"{label}: ")


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        *((secret, text) for secret in TOKENS.values() for text in (f'T = "{secret}"\n', f"x = 1 # TODO {secret}\n")),
        (MIXED, f'API_KEY = "{MIXED}"\n'),
        (MIXED, KEY),
    ],
)
def test_no_finding_repeats_a_secret(secret: str, text: str) -> None:
    """Neither message nor anchor holds eight characters of the secret in a row, once printed through `redacted`."""
    assert found(text)
    for finding in found(text):
        said = redacted(finding.message) + (finding.anchor if finding.rule.id.startswith("secret") else "")

        assert not repeated(secret, said), finding


@pytest.mark.parametrize("written", ["{}", "Deploy with {}, then review.", "curl -u x:{} https://api.example.org"])
@pytest.mark.parametrize("secret", TOKENS.values())
def test_quoted_instructions_repeat_no_secret(secret: str, written: str) -> None:
    """The review shows the instructions to everyone who can read the repository: a secret in them is redacted."""
    shown = quoted(f"First line.\n{written.format(secret)}")

    assert not repeated(secret, shown)
    assert "redacted" in shown


def test_review_repeats_no_secret_of_its_task(branch: Any) -> None:
    """Neither the file nor the log nor the commit message, whether a secret came as instructions or as an input."""
    done = branch.turn("\n".join(TOKENS.values()), inputs={"depth": " ".join(TOKENS.values())} | TOKENS)

    said = f"{done.review}{done.log}{done.result}"
    assert "SendGrid key redacted" in said
    assert not [label for label, secret in TOKENS.items() if repeated(secret, said)]


@pytest.mark.parametrize("before", range(60, 130, 10))
@pytest.mark.parametrize("secret", TOKENS.values())
def test_excerpt_that_ends_within_a_secret_shows_no_part_of_it(secret: str, before: int) -> None:
    """Half a secret has no shape any more: what is quoted is redacted before it is cut."""
    todo = f"x = 1  # TODO {'- ' * (before // 2)}{secret}\n"
    inputs = read_focus("", {"-" * (before - 60) + secret: 1, "focus": f"{'-' * (before - 60)} {secret}"}, ()).unclear

    said = [redacted(finding.message) for finding in found(todo)] + [redacted(sentence) for sentence in inputs]

    assert len(said) > 3
    assert not [one for one in said if repeated(secret, one)]


def test_secret_among_fixtures_is_a_note() -> None:
    """Material of tests is most likely made up."""
    weights = {one.weight for one in found(f"{GITHUB}\n", "tests/fixtures/a.txt") if one.rule.id == "secret-token"}

    assert weights == {Severity.NOTE}


def test_newer_python_is_not_called_wrong() -> None:
    """Syntax of a newer Python weighs less than an error."""
    new = [one for one in found("type X = int\n", "a.py") if one.rule.id == "python-syntax"]

    assert [one.weight for one in new] == [Severity.NOTE]


@pytest.mark.parametrize(
    "text",
    ["-" * 100_000 + "1", "a" + ".b" * 50_000, "(" * 10_000, "1" + "+1" * 50_000, "x = [" * 150, "a" + "()" * 50_000],
)
def test_code_too_deep_to_parse_is_survived(text: str) -> None:
    """Nesting that no parser takes ends neither the check nor the process."""
    assert rules(text) <= {"python-syntax"}


def test_generated_and_vendored_files_are_not_judged_by_style() -> None:
    """They are not edited here; a secret in them still counts."""
    text = f'# Code generated by protoc. DO NOT EDIT.\nimport os\nx = 1 \n# TODO: y\nT = "{GITHUB}"\n'

    assert rules(text, "src/a.py") == {"secret-token"}
    assert rules(f'import os\nT = "{GITHUB}"\n', "vendor/a.py") == {"secret-token"}
