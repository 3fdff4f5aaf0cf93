"""A previewed request copied for a shell sends exactly that request, and none of its bytes acts on the shell."""

import json
import shutil
import subprocess

import pytest

from app.actions.copies import UnfaithfulError, as_command, as_curl
from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    as_json,
)
from storage.records import Repository

API = Repository.parse("acme/api")
NASTY = 'It\'s `id` $(touch x) "$HOME" \\\n!! -- ~ * ;& 例'


def in_a_shell(line: str) -> list[str]:
    """Return the arguments that a shell makes of the command."""
    bash = shutil.which("bash")
    assert bash is not None
    said = 'curl() { printf \'%s\\0\' "$@"; }; runwarden() { curl "$@"; }; '
    done = subprocess.run(
        [bash, "-c", said + line], capture_output=True, check=True, env={"RUNWARDEN_TOKEN": "the token"}
    )
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize(
    ("request_", "arguments"),
    [
        (
            StartRun(NASTY, API, "x", {"depth": 3, "no": "3", "a": "b c"}),
            'runs start --repository=acme/api --branch=x --metadata=depth=3 --metadata=no="3" --metadata=a=b_c -- {}',
        ),
        (ContinueRun("run_1", NASTY, API, "main"), "runs continue --branch=main -- run_1 {}"),
        (
            StartAgent("-x", "group/project", None, {"a": [1]}),
            "agents start --repository=group/project --input=a=[1] -- -x",
        ),
        (CreateOrganization("a@b.example", "X"), "orgs create --offer-code=X -- a@b.example"),
        (OnboardProject("group/project"), "gitlab onboard -- group/project"),
        (OnboardProject("group/project", 7), "gitlab onboard -- 7"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_copied_command_repeats_the_request(request_: WriteRequest, arguments: str) -> None:
    """The command uses the command line's own options; curl has the address, the body and the token's variable."""
    words = ["--profile=acme", *arguments.split(" ")]
    expected = [NASTY if word == "{}" else word.replace("b_c", "b c") for word in words]
    curl = as_curl("https://api.example/v1", request_)

    assert in_a_shell(as_command("runwarden", "acme", request_)) == expected
    assert in_a_shell(curl)[:5] == [
        *("--request", "POST", f"https://api.example/v1{request_.path}", "--header", "Authorization: Bearer the token")
    ]
    assert json.loads(in_a_shell(curl)[-1]) == json.loads(as_json(request_))
    assert "the token" not in curl


def test_control_characters_are_never_copied_as_a_command() -> None:
    """Control characters are never copied as a command; curl can send them as JSON escapes."""
    request = ContinueRun("run_\x1b[2J", "Go on.\u202e", API)
    with pytest.raises(UnfaithfulError, match="copy it as curl"):
        as_command("runwarden", "acme", request)
    with pytest.raises(UnfaithfulError, match="read - from its input"):
        as_command("runwarden", "acme", ContinueRun("run_1", "-", API))
    curl = as_curl("https://api.example/v1", request)

    assert "\x1b" not in curl
    assert "\u202e" not in curl
    assert json.loads(in_a_shell(curl)[-1]) == json.loads(as_json(request))
