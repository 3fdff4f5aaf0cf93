"""Commands in documents and deployment files exist, links work, and documents stay short.

`make lint` runs it with test_facts.py; nothing here starts a process.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from app.cli.main import root
from service.cli import main as service_root
from tests.distribution.test_container_files import COMPOSE
from tests.program import ROOT

DOCUMENTS: Final = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CHANGELOG: Final = ROOT / "CHANGELOG.md"
UNITS: Final = sorted((ROOT / "deploy" / "systemd").iterdir())
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CALL: Final = re.compile(r"(?:^|[\s(:`]|/bin/)runwarden(?! -- )((?: +(?![#|&;<>])[^\s`]+)+)")
IN_CONTAINER: Final = re.compile(r"docker compose (?:run|exec) .*\bapi((?: +[^\s`]+)+)")
SHELL: Final = {"", "console"}


def calls(text: str) -> Iterator[str]:
    """Every command call in a text: in shell blocks, and between backticks."""
    blocks = [body for language, body in FENCE.findall(text) if language in SHELL]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in [*(line for block in blocks for line in block.splitlines()), *spans]:
        for pattern in (CALL, IN_CONTAINER):
            yield from (match.strip() for match in pattern.findall(line.partition("  #")[0].replace("|--", " --")))


def child(group: click.Group, word: str) -> click.Command | None:
    """A group's command; those of the service are behind two of the program's, which forward their arguments."""
    if group is root and word == "service":
        return service_root
    asked = service_root if group is root and word == "serve" else group
    with contextlib.suppress(click.UsageError):
        return asked.resolve_command(click.Context(asked), [word])[1]
    return None


def fault(call: str) -> str | None:
    """Return the fault of a call; None if the command and all of its options exist."""
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
    """The options of a command; True for those with a value."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: not one.is_flag and not one.count for one in options for name in [*one.opts, *one.secondary_opts]}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_command_in_a_document_exists(page: Path) -> None:
    text = page.read_text("utf-8")

    assert {call: fault(call) for call in calls(text) if fault(call)} == {}


def test_documents_stay_short() -> None:
    """Each document has a limit of words, except the command reference: who adds words shortens others."""
    words = {page: len(page.read_text("utf-8").split()) for page in (*DOCUMENTS, CHANGELOG)}

    assert words[ROOT / "README.md"] <= 700
    assert words[CHANGELOG] <= 500
    pages = {page for page in words if page.is_relative_to(ROOT / "docs")} - {ROOT / "docs/use/command-reference.md"}
    assert sum(words[page] for page in pages) <= 23_000


def test_units_and_containers_start_commands_that_exist() -> None:
    """A mistyped option in a unit or container would only be noticed where it is started."""
    started = [line.partition("/runwarden ")[2] for unit in UNITS for line in unit.read_text("utf-8").splitlines()]
    started += [" ".join(COMPOSE["services"][name]["command"]) for name in ("api", "worker")]

    assert len([call for call in started if call]) == len(UNITS) + 2
    assert [fault(call) for call in started if fault(call)] == []


def test_every_link_leads_somewhere() -> None:
    def anchors(page: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    broken = []
    for page in (*DOCUMENTS, CHANGELOG):
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
            name, _, anchor = target.partition("#")
            file = page if not name else page.parent / name
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page}: {target}")

    assert broken == []


def test_every_entry_of_the_changelog_links_to_a_page_that_explains_it() -> None:
    entries = re.findall(r"^- .+$", CHANGELOG.read_text("utf-8"), re.MULTILINE)

    assert len(entries) > 20
    assert [entry for entry in entries if "](docs/" not in entry] == []
