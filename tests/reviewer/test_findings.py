"""Findings in files: what is reported, with which weight, and what is ignored."""

from typing import Any, Final

# Assembled here, so that secret scanners do not report this file.
MIXED: Final = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD5fG7"
SECRETS: Final = {
    "ghp" + "_" + MIXED: "secret-github-token",
    "AK" + "IA" + "QX7LMN4RSTUVW2YZ": "secret-aws-access-key",
    "xo" + "xb-" + "123456789012-123456789012-" + MIXED[:24]: "secret-slack-token",
}
CONFLICT: Final = "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> theirs\n"


FAULTS: Final = (
    *(("conf.txt", f"first\nuse {secret} here\n", rule, 2, "blocker") for secret, rule in SECRETS.items()),
    ("id_rsa", "-----BEGIN " + f"RSA PRIVATE KEY-----\n{MIXED}\n", "secret-private-key", 2, "blocker"),
    ("a.py", f'API_KEY = "{MIXED}"\n', "secret-keyword", 1, "major"),
    ("tests/test_a.py", f'API_KEY = "{MIXED}"\n', "secret-keyword", 1, "note"),
    ("a.css", f"a\n{CONFLICT}", "merge-conflict", 2, "blocker"),
    ("a.json", '{\n"a": 1,\n}\n', "data-syntax", 3, "major"),
    ("a.toml", "a = \n", "data-syntax", 1, "major"),
    ("a.py", "def f(:\n", "invalid-syntax", 1, "blocker"),
    ("a.py", "def f(x):\n    return eval(x)\n", "S307", 2, "major"),
    ("a.py", "try:\n    f()\nexcept:\n    pass\n", "E722", 3, "minor"),
    ("a.py", "x = 1  # TODO: later\n", "FIX002", 1, "note"),
)
LOOK_ALIKES: Final = (
    ("a.rst", "Title\n=======\n"),
    ("tsconfig.json", '{"a": 1, // why\n}\n'),
    ("deep.json", "[" * 100_000),
    ("a.py", "import c  # noqa: F401\n"),
    ("tests/test_a.py", "def test_a():\n    assert 1 == 1\n"),
    ("node_modules/x/a.py", "import os\n"),
)


def test_faults_are_found_without_false_alarms(branch: Any) -> None:
    """Each finding has its rule and weight in the findings file and the review."""
    branch.commit({f"f{number}/{path}": text for number, (path, text, *_) in enumerate(FAULTS)})
    branch.commit({f"l{number}/{path}": text for number, (path, text) in enumerate(LOOK_ALIKES)})

    done = branch.turn()

    found = {(one["path"], one["rule"], one["line"], one["severity"]) for one in done.findings}
    expected = {
        (f"f{number}/{path}", rule, line, severity) for number, (path, _, rule, line, severity) in enumerate(FAULTS)
    }
    assert expected <= found
    assert [path for path, *_ in found if path.startswith("l")] == []
    for path, rule, line, severity in expected:
        assert f"**{severity}** `{rule}` line {line}: " in done.review.partition(f"### `{path}`\n")[2].partition("#")[0]


def test_no_secret_is_repeated(branch: Any) -> None:
    """No secret is in the review, findings, log or commit message; each rule's advice appears once."""
    branch.commit({"conf.py": "".join(f'TOKEN_{n} = "{secret}"\n' for n, secret in enumerate(SECRETS))})
    branch.commit({"a.py": "def f(a=[]):\n    return a\n\n\ndef g(a=[]):\n    return a\n"})

    done = branch.turn(f"Is {next(iter(SECRETS))} safe?")

    said = f"{done.review}{done.log}{done.result}{done.findings}"
    assert not [secret for secret in SECRETS if secret[:12] in said]
    found = [one for one in done.findings if one["path"] == "conf.py"]
    assert [one["line"] for one in found] == [1, 2, 3]
    assert done.review.count("revoke it") == len({one["rule"] for one in found})
    assert done.section("What to do").count("`B006`: Function defaults are evaluated once") == 1
