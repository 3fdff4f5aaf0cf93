"""Which service a command uses if options, the environment and files disagree."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import RUN, Respond, Server

OWN_TOKEN = 'token_env = "TWO_TOKEN"\n'
START = ("runs", "start", "-R", "acme/api", "Review", "--json")
NAMED = ("--config", "two.toml")
OF_B = '[profiles.b]\nbase_url = "https://b.example"\n'


@pytest.fixture
def other() -> Iterator[Server]:
    """The service that the file names, while the environment names another."""
    with Server() as server:
        server.script(*[Respond(201, RUN)] * 5)
        yield server


@pytest.fixture
def two(faulty: CommandLine, server: Server, other: Server) -> CommandLine:
    """A command line whose environment names one service, and two.toml another."""
    server.script(*[Respond(201, RUN)] * 5)
    _write(faulty.home, other.base_url)
    return replace(faulty, more={"TWO_TOKEN": "token-of-two"})


def _write(home: Path, address: str, before: str = "", after: str = OWN_TOKEN) -> None:
    (home / "two.toml").write_text(f'{before}[profiles.two]\nbase_url = "{address}"\n{after}')


def test_a_file_or_profile_option_beats_the_environments_address(
    two: CommandLine, server: Server, other: Server
) -> None:
    """The variable is reported as unused, even if it is invalid. Without an explicit choice the environment decides."""
    for options, variables, by in (
        (NAMED, {}, "--config"),
        (("--profile", "two"), {"RUNWARDEN_CONFIG": "two.toml", "RUNWARDEN_BASE_URL": "nonsense"}, "--profile"),
    ):
        result = two(*options, *START, **variables)
        assert (result.code, result.err.count(f"RUNWARDEN_BASE_URL is not used: {by}")) == (0, 1), result.err

    assert (len(server.requests), len(other.requests)) == (0, 2)
    assert {request.token for request in other.requests} == {"token-of-two"}
    assert two(*START, RUNWARDEN_CONFIG="two.toml").code == 0
    assert two(*NAMED, "--profile", "environment", *START).code == 0
    assert (len(server.requests), len(other.requests)) == (2, 2)
    assert {request.token for request in server.requests} == {"token-for-tests"}


@pytest.mark.parametrize(
    ("source", "options", "variables"),
    [("", NAMED, {}), ('token_env = "RUNWARDEN_TOKEN"\n', (), {"RUNWARDEN_PROFILE": "two"})],
)
def test_the_token_of_one_service_never_goes_to_another(
    two: CommandLine, server: Server, other: Server, source: str, options: tuple[str, ...],
    variables: dict[str, str],
) -> None:  # fmt: skip
    """RUNWARDEN_TOKEN belongs to RUNWARDEN_BASE_URL if both are set.

    Alone, or on stdin, a token goes to any service.
    """
    _write(two.home, other.base_url, after=source)
    variables = {"RUNWARDEN_CONFIG": "two.toml", **variables}

    refused = two(*options, *START, **variables)
    assert (refused.code, refused.json()["error"]["kind"]) == (2, "token")
    assert "RUNWARDEN_BASE_URL" in refused.json()["error"]["message"]
    assert "token-for-tests" not in refused.out + refused.err
    assert other.requests == server.requests == []

    assert two(*options, "--token-stdin", *START, stdin="typed\n", **variables).code == 0
    alone = two(*options, *START, **variables, RUNWARDEN_BASE_URL="")
    same = two(*options, *START, **variables, RUNWARDEN_BASE_URL=other.base_url)
    assert (alone.code, same.code) == (0, 0)
    sent = [request.token for request in other.requests]
    assert sent == ["typed", "token-for-tests", "token-for-tests"]


@pytest.mark.parametrize(
    ("source", "address", "variables", "code"),
    [
        ("", "https://b.example", {"RUNWARDEN_PROFILE": "two"}, 2),
        ('token_env = "RUNWARDEN_TOKEN"\n', "https://b.example", {}, 0),
        ("", "", {}, 0),
        ("", "https://b.example", {"RUNWARDEN_BASE_URL": ""}, 0),
    ],
)
def test_an_ambiguous_token_is_sent_to_no_service(
    two: CommandLine, other: Server, source: str, address: str, variables: dict[str, str], code: int
) -> None:  # fmt: skip
    """The token is only sent if a profile names it, RUNWARDEN_BASE_URL assigns it, or both addresses are the same."""
    second = f'[profiles.b]\nbase_url = "{address or other.base_url}"\n'
    _write(two.home, other.base_url, 'default_profile = "two"\n' + second, source)
    # Empty stands for the other service's address.
    variables = {"RUNWARDEN_BASE_URL": "", **{name: value or other.base_url for name, value in variables.items()}}

    result = two(*NAMED, *START, **variables)

    assert (result.code, len(other.requests)) == (code, 1 if code == 0 else 0)
    if code:
        assert result.json()["error"]["kind"] == "token"
        assert "the profile b uses it as well" in result.json()["error"]["message"]


def test_command_line_choices_beat_every_variable(lone: CommandLine) -> None:
    """A variable that only fills a gap in the choice is used; any other is reported once and ignored."""
    for before, options, variables, unused, profile in (
        ("", NAMED, {"RUNWARDEN_PROFILE": "prod"}, ["RUNWARDEN_PROFILE"], "two"),
        ("", NAMED, {"RUNWARDEN_CONFIG": "one.toml"}, ["RUNWARDEN_CONFIG"], "two"),
        ("", (*NAMED, "--data-dir", "d"), {"RUNWARDEN_DATA_DIR": "e"}, ["RUNWARDEN_DATA_DIR"], "two"),
        ('data_dir = "e"\n', (), {"RUNWARDEN_DATA_DIR": "d", "RUNWARDEN_CONFIG": "two.toml"}, [], "two"),
        (f'default_profile = "two"\n{OF_B}', NAMED, {"RUNWARDEN_PROFILE": "b"}, ["RUNWARDEN_PROFILE"], "two"),
    ):
        _write(lone.home, "https://two.example", before)
        unset = {"RUNWARDEN_BASE_URL": "", "RUNWARDEN_DATA_DIR": "d"}
        checked = lone(*options, "config", "check", "--json", **{**unset, **variables})
        document = checked.json()
        assert (checked.code, document["profile"]) == (0, profile), before
        assert [line.partition(" is not used")[0] for line in checked.err.splitlines()] == unused, before
        assert Path(document["data_folder"]).parent.name == "d", before
