"""What documents and deployment files tell people to type: each command exists, with its options."""

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from app.cli.main import root
from service.cli import main as service_root
from tests import program
from tests.distribution.test_container_files import COMPOSE
from tests.program import ROOT
from tests.service.conftest import NEEDS_SANDBOX
from tests.service.forge.forges import GitHubServer
from tests.service.git_hosts import GitHttpHost
from tests.service_process import make_repository
from tests.waiting import COLD_START_S, eventually

DOCUMENTS: Final = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
UNITS: Final = sorted((ROOT / "deploy" / "systemd").iterdir())
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CALL: Final = re.compile(r"(?:^|[\s(:`]|/bin/)runwarden(?! -- )((?: +(?![#|&;<>])[^\s`]+)+)")
IN_CONTAINER: Final = re.compile(r"docker compose (?:run|exec) .*\bapi((?: +[^\s`]+)+)")
SHELL: Final = {"", "console"}
INSTALL: Final = (ROOT / "docs" / "run" / "install.md").read_text("utf-8")
GUIDE: Final = INSTALL.partition("## Quick start")[2].partition("\n## Deploying")[0]
COMMANDS: Final = [shlex.split(line[2:], comments=True) for line in GUIDE.splitlines() if line.startswith("$ ")]


def calls(text: str) -> Iterator[str]:
    """Every call of the command in a text: in blocks of a shell, and between backticks."""
    blocks = [body for language, body in FENCE.findall(text) if language in SHELL]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in [*(line for block in blocks for line in block.splitlines()), *spans]:
        for pattern in (CALL, IN_CONTAINER):
            yield from (match.strip() for match in pattern.findall(line.partition("  #")[0].replace("|--", " --")))


def child(group: click.Group, word: str) -> click.Command | None:
    """A group's command; those of the service stand behind two of the program's, which hand their words through."""
    if group is root and word == "service":
        return service_root
    asked = service_root if group is root and word == "serve" else group
    with contextlib.suppress(click.UsageError):
        return asked.resolve_command(click.Context(asked), [word])[1]
    return None


def administration(text: str) -> Iterator[str]:
    """The commands in the table under `runwarden service …`; one without its noun has that of the one before."""
    table = text.partition("| `runwarden service …` |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        noun = ""
        for span in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", line)[1]):
            words = span.replace("\\|", " ").split()
            noun = words[0] if child(service_root, words[0]) else noun
            yield " ".join(["service", noun, *words[words[0] == noun :]])


def fault(call: str) -> str | None:
    """Return what is wrong with a call; None when the command and all of its options exist."""
    command: click.Command = root
    known = {"--help": False} | options_of(root)
    words = iter(word.strip("[]().,:'\"") for word in call.split())
    for word in words:
        name, _, value = word.partition("=")
        if word.startswith("-") and name not in known:
            return f"{command.name} has no option {word}"
        if word.startswith("-"):
            _ = next(words, None) if known[name] and not value else None
        elif isinstance(command, click.Group):
            found = child(command, word)
            if found is not None:
                command, known = found, known | options_of(found)
            elif re.fullmatch(r"[a-z][a-z-]*", word):
                return f"{command.name} has no command {word}"
    return None


def options_of(command: click.Command) -> dict[str, bool]:
    """The options of a command; True for those that take a value."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: not one.is_flag and not one.count for one in options for name in [*one.opts, *one.secondary_opts]}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_command_in_a_document_exists(page: Path) -> None:
    """With the options that it is shown with."""
    text = page.read_text("utf-8")

    assert {call: fault(call) for call in [*calls(text), *administration(text)] if fault(call)} == {}


def test_units_and_containers_start_commands_that_exist() -> None:
    """A unit or a service with a mistyped option would only be noticed where it is started."""
    started = [line.partition("/runwarden ")[2] for unit in UNITS for line in unit.read_text("utf-8").splitlines()]
    started += [" ".join(COMPOSE["services"][name]["command"]) for name in ("api", "worker")]

    assert len([call for call in started if call]) == len(UNITS) + 2
    assert [fault(call) for call in started if fault(call)] == []


def test_every_link_leads_somewhere() -> None:
    """To a file that is there, and to a heading in it."""

    def anchors(page: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    broken = []
    for page in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
            name, _, anchor = target.partition("#")
            file = page if not name else page.parent / name
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page}: {target}")

    assert broken == []


def test_every_path_of_the_source_exists() -> None:
    """What a page names in backticks, such as a module or a folder, is there."""
    path = re.compile(r"`((?:app|widgets|storage|service|tests|bench|deploy|docs)/[\w/.-]*)`")
    named = {(page.name, each) for page in DOCUMENTS for each in path.findall(page.read_text("utf-8"))}

    assert len(named) > 50
    assert sorted(each for each in named if not (ROOT / each[1]).exists()) == []


@NEEDS_SANDBOX
def test_the_page_on_installation_ends_with_a_pull_request(tmp_path: Path) -> None:
    """It works as it stands, except for addresses, the port, a run's id and what is installed.

    First a commit on a branch; then, with an agent and a code host's address from the page, a draft on that host.
    """
    repository = make_repository(tmp_path / "acme" / "api", {"app.py": "password = 'hunter2'\n"})
    setup, agent, host = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    setup = setup.replace("https://github.com/acme/api.git", str(repository))
    (file := tmp_path / "setup.toml").write_text(setup, "utf-8")
    install, apply, serve, _export, *rest = COMMANDS
    first, (_apply, propose, newest, look) = rest[:-4], rest[-4:]
    environment = {**os.environ, "HOME": str(tmp_path), "GITHUB_TOKEN": "bot-token", "BROWSER": "true"}

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        done = program.run(words[1:], environment, stdin="", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def branches() -> dict[str, str]:
        command = ["git", "-C", repository, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return dict(line.split() for line in listed.splitlines())

    assert install[:2] == ["pipx", "install"]
    token = re.search(r"rwt_[\w-]+", run(apply).stdout)
    assert token is not None
    serving = program.Program([*serve[1:-1], "0"], environment, cwd=tmp_path)
    with (
        contextlib.closing(GitHubServer()) as forge,
        contextlib.closing(GitHttpHost(tmp_path, "bot-token")) as served,
    ):
        forge.before = lambda _: forge.branches.update(branches())
        try:
            assert serving.stdout is not None
            environment["RUNWARDEN_BASE_URL"] = json.loads(serving.stdout.readline())["base_url"]
            environment["RUNWARDEN_TOKEN"] = token[0]
            said = [run(words).stdout for words in first]

            assert "completed" in said[0] + said[1]
            assert any(name.startswith("agent/review-what-is-there") for name in branches())

            for address, real in (
                ("https://git.acme.example/api/v3", forge.url),
                ("https://git.acme.example/acme/api.git", f"{served.url}/acme/api"),
                ("git.acme.example", "127.0.0.1"),
            ):
                host = host.replace(address, real)
            kept = re.sub(r"(?m)^(hosts|repositories) = .*\n", "", setup)
            file.write_text(kept + host + agent, "utf-8")
            run(apply)
            run(propose)
            eventually(lambda: forge.changes and forge.statuses, "the pull request is opened", COLD_START_S)
            run_id = re.search(r"run_\w+", run(newest).stdout)
            assert run_id is not None
            opened = run([*look[:-1], run_id[0]])
        finally:
            serving.terminate()
            serving.communicate()
    (change,) = forge.changes

    assert (change.draft, change.base) == (True, "main")
    assert change.url in opened.stdout
