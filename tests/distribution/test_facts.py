"""What documents, messages and deployment files name is there: commands, extras, files, metrics, alerts, settings.

`make lint` runs it with the other checks of documents; nothing here starts a process.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from pydantic import BaseModel

from app.automations.metrics import DURATIONS, FIGURES
from app.profiles.load import parse
from service.settings import Settings as ServiceSettings
from service.setup import Setup
from storage.records import ActionKind
from tests.distribution.test_distribution import PROJECT
from tests.distribution.test_documents import CALL, DOCUMENTS, FENCE, fault
from tests.program import ROOT

SOURCES: Final = [path for name in ("app", "service", "widgets", "storage") for path in (ROOT / name).rglob("*.py")]
DEPLOYED: Final = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
RUN: Final = ROOT / "docs" / "run"
EXAMPLE: Final = ROOT / "config.example.toml"
PAGES: Final = {str(page.relative_to(ROOT)) for page in DOCUMENTS}
METRIC: Final = re.compile(r"\brunwarden_[a-z_]+\b")
_WORTH_READING: Final = re.compile(
    r"\brunwarden [a-z]|\b(?:docs|deploy)/\w|extras? `|runwarden_[a-z]|runwarden-console"
)
"""Whether a source file may hold a text that one of these tests is about; to parse all of them would take seconds."""
_SUFFIX: Final = re.compile(r"_(total|bucket|sum|count)$")


@cache
def messages() -> dict[str, list[str]]:
    """The texts of each source file that are not docstrings; `X` in place of what is filled in."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        text = path.read_text("utf-8")
        if not _WORTH_READING.search(text):
            continue
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.JoinedStr | ast.Constant)]
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        texts = found.setdefault(str(path.relative_to(ROOT)), [])
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values))
            elif isinstance(node.value, str) and id(node) not in parts:
                texts.append(node.value)
    return found


def everywhere() -> Iterator[tuple[str, str]]:
    """Every text that people read: its file, and the text."""
    for path in (*DOCUMENTS, *DEPLOYED):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for name, texts in messages().items():
        for text in texts:
            yield name, text


def test_every_command_in_a_message_exists() -> None:
    advice = re.compile(r"(?:[:`]|\bto|\bwith|\bin|\bsee|\buse|\bthen) (?=runwarden )")
    calls = {
        (name, found[1].strip())
        for name, texts in messages().items()
        for text in texts
        for start in advice.finditer(f" {text}")
        if (found := CALL.match(f" {text[start.end() - 1 :].splitlines()[0]}")) and "X" not in found[1]
    }
    ends = re.compile(r"[;,)]|\. | and | says| lists| names| shows| prints")

    assert {call: said for call in calls if (said := fault(ends.split(call[1])[0]))} == {}
    assert len(calls) > 30


def test_every_extra_exists() -> None:
    """Of the package, and of an installation from a checkout."""
    known = set(PROJECT["optional-dependencies"])
    named = {
        (name, extra)
        for name, text in everywhere()
        for found in re.findall(r"(?:\n\| `|'\.)\[([a-z,]+)\]|\bextras? `([a-z]+)`", text)
        for extra in "".join(found).split(",")
    }

    assert {extra for _, extra in named} == known
    assert [each for each in named if each[1] not in known] == []


def test_every_page_and_file_exists() -> None:
    """Messages and deployment files lead to pages; pages to files in `deploy`, and to modules in backticks."""
    path = re.compile(r"\b((?:docs|deploy)/[\w/.@-]*\w)")
    source = re.compile(r"`((?:app|widgets|storage|service|tests|bench)/[\w/.-]*)`")
    named = {(name, each) for name, text in everywhere() for each in path.findall(text) if "example.com" not in text}
    in_code = {(page.name, each) for page in DOCUMENTS for each in source.findall(page.read_text("utf-8"))}
    of_others = {"docs/CODEOWNERS"}

    assert len(in_code) > 40
    assert sorted(each for each in named | in_code if each[1] not in of_others and not (ROOT / each[1]).exists()) == []


def test_every_test_that_a_page_names_exists_and_each_threat_has_one() -> None:
    """Every row of the tables of threats ends with the name of a test."""
    sources = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for text in sources for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    named = {name for page in DOCUMENTS for name in re.findall(r"`(test_\w+)`", page.read_text("utf-8"))}
    page = (RUN / "security.md").read_text("utf-8")
    tables = re.findall(r"^\| they may try .*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    threats = [row for table in tables for row in table.splitlines()]

    assert sorted(named - there) == []
    assert len(tables) == page.count("| they may try ")
    assert [row for row in threats if "`test_" not in row.split("|")[3]] == []


def test_every_variable_exists() -> None:
    """A variable of the environment that a document or a message names is read somewhere."""
    sources = "\n".join(path.read_text("utf-8") for path in SOURCES)
    by_tests = "\n".join(path.read_text("utf-8") for path in (*DEPLOYED, *(ROOT / "tests").rglob("*.py")))
    read = {
        *re.findall(r"[\"'](RUNWARDEN_\w+)[\"']", sources + by_tests),
        *re.findall(r"\{\$?(RUNWARDEN_\w+)", by_tests),
    }

    texts = [sources, *(page.read_text("utf-8") for page in DOCUMENTS)]
    named = {each for text in texts for each in re.findall(r"\bRUNWARDEN_[A-Z_]+[A-Z]", text)}
    assert sorted(named - read) == []


def known_metrics() -> set[str]:
    """The names of all metrics, without the suffixes that Prometheus adds."""
    of_bot = {f"runwarden_{name}" for name in FIGURES} | {DURATIONS}
    told = [text for file, texts in messages().items() for text in texts if file.startswith("service/observability/")]
    of_service = {name for text in told for name in METRIC.findall(text)}
    known = {_SUFFIX.sub("", name) for name in of_bot | of_service}
    return known | of_bot | {"runwarden_build_info", "runwarden_build"}


def test_every_metric_exists_and_alerts_and_the_bot_s_metrics_are_listed() -> None:
    """In documents, messages, alerts and dashboards; on the page for operators, with labels, and in its runbook."""
    others = {f"runwarden_{name}" for name in ("session", "oidc", "automation", "meta", "writes")}
    known = known_metrics() | others
    named = {(file, name) for file, text in everywhere() for name in METRIC.findall(text) if not name.endswith("_")}

    assert len(named) > 60
    assert sorted(each for each in named if not {each[1], _SUFFIX.sub("", each[1])} & known) == []

    page = (RUN / "operations.md").read_text("utf-8")
    table = page.partition("| metric (`runwarden_…`) |")[2].partition("\n\n")[0]
    listed: dict[str, tuple[str, ...]] = {}
    for row in table.splitlines()[2:]:
        names, labels = (tuple(re.findall(r"`([^`]+)`", cell)) for cell in row.split("|")[1:3])
        listed |= dict.fromkeys(names, labels)

    assert listed == {name: labels for name, (_, labels) in FIGURES.items()} | {"run_duration_seconds": ("status",)}

    rules = "\n".join(path.read_text("utf-8") for path in DEPLOYED if path.name.endswith(".rules.yml"))
    runbook = (RUN / "operations.md").read_text("utf-8").partition("### Runbook")[2].partition("\n### ")[0]
    first_cells = "".join(row.split("|")[1] for row in runbook.splitlines() if row.startswith("| `"))

    assert set(re.findall(r"`(Runwarden\w+)`", first_cells)) == set(re.findall(r"alert: (\w+)", rules))


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of the service with their defaults, and the sections with None."""
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        yield f"{prefix}{name}", None if section else field.default
        if section is not None:
            yield from leaves(section, f"{prefix}{name}.")


def test_every_setting_of_the_service_is_listed_and_no_other() -> None:
    """With its default, where that is a number."""
    page = (RUN / "settings.md").read_text("utf-8")
    known = dict(leaves(ServiceSettings))
    rows = re.findall(r"^\| (`[a-z].*?`.*?) \| (.*?) \|", page.partition("## Start and stop")[0], re.MULTILINE)
    listed = dict[str, str]()
    for names, default in rows:
        section = ""
        for name in re.findall(r"`([a-z_.*]+)`", names.partition(" (old")[0]) + re.findall(r"`(\.[a-z_]+)`", names):
            section = section if name.startswith(".") else name.rpartition(".")[0]
            listed[f"{section}{name}" if name.startswith(".") else name] = default
    covered = {name.removesuffix(".*") for name in listed if name.endswith(".*")}

    assert sorted(name for name in listed if name not in known and not name.endswith(".*")) == []
    missing = {name for name in known.keys() - listed if not any(f"{name}.".startswith(f"{one}.") for one in covered)}
    sections = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    assert missing - sections == set()
    numbers = {name: float(default) for name, default in listed.items() if re.fullmatch(r"\d+", default)}
    assert {name: known[name] for name in numbers} == numbers
    assert len(numbers) > 20


def of_the_console() -> Iterator[str]:
    """The settings in the example, which has all of them (tests/unit/test_config_example.py)."""
    example = tomllib.loads(re.sub(r"(?m)^##?(?=[\w\[\"])", "", EXAMPLE.read_text("utf-8")))
    for section, values in example.items():
        yield from (f"{section}.{name}" for name in values if isinstance(values, dict))


def test_every_dotted_setting_in_a_text_exists() -> None:
    """Such as `execution.drain_s` in a page or in a message."""
    known = {*(name for name, _ in leaves(ServiceSettings)), *of_the_console()}
    sections = {name.partition(".")[0] for name in known if "." in name}
    dotted = re.compile(rf"`((?:{'|'.join(sections)})\.[a-z_.]+[a-z])`")
    named = {(page.name, name) for page in DOCUMENTS for name in dotted.findall(FENCE.sub("", page.read_text("utf-8")))}
    in_words = re.compile(rf"(?<![\w./])((?:{'|'.join(sections)})\.[a-z]+_[a-z_]+)\b")
    named |= {(file, name) for file, text in everywhere() if file not in PAGES for name in in_words.findall(text)}

    assert len(named) > 40
    named -= {each for each in named if each[1].endswith(".md") or each[1] in get_args(ActionKind)}
    assert sorted(each for each in named if each[1] not in known) == []


EXAMPLES: Final = [
    pytest.param(tomllib.loads(body), id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *sorted(RUN.glob("*.md")))
    for number, (language, body) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if language == "toml"
]


@pytest.mark.parametrize("document", EXAMPLES)
def test_every_example_of_a_file_can_be_read(document: dict[str, Any]) -> None:
    """A whole one as the service reads it, a part of one inside of the smallest whole."""
    sections = set(ServiceSettings.model_fields)
    if set(document) <= sections - {"events"}:
        if "oidc" in document.get("page", {}):
            document["page"]["url"] = "https://runs.acme.example"
        ServiceSettings.model_validate(document)
        return
    repository = {"name": "api", "platform": "github", "path": "acme/api"}
    organizations, agents = document.get("organizations", []), document.get("agents", [])
    if isinstance(organizations, dict):
        given = organizations["repositories"]
        part = given[0] if isinstance(given, list) else given
        organizations = [{"name": "Acme", "repositories": [repository | part]}]
    if isinstance(agents, dict):
        agents = [{"name": "claude", "preset": "claude-code"} | agents]
    if "hosts" in document:  # Lines of an organization.
        organizations = [{"name": "Acme", **document}]
    Setup.model_validate({"organizations": organizations, "agents": agents, "offers": document.get("offers", [])})


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "use").glob("*.md")), ids=lambda page: page.name)
def test_every_example_of_the_configuration_can_be_read(page: Path) -> None:
    """By the parser of the console and the bot."""
    for language, body in FENCE.findall(page.read_text("utf-8")):
        if language == "toml":
            parse(Path("/config.toml"), body)
