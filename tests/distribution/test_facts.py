"""Everything that documents, messages and deployment files name exists: commands, extras, metrics, settings.

`make lint` runs it with the other checks of documents; nothing here starts a process.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from app.automations.metrics import DURATIONS, FIGURES
from app.profiles.load import parse
from service.settings import Settings as ServiceSettings
from service.setup import Setup
from tests.distribution.test_documents import CALL, DOCUMENTS, FENCE, fault
from tests.program import ROOT

SOURCES: Final = [path for name in ("app", "service", "widgets", "storage") for path in (ROOT / name).rglob("*.py")]
DEPLOYED: Final = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
RUN: Final = ROOT / "docs" / "run"
METRIC: Final = re.compile(r"\brunwarden_[a-z_]+\b")
_SUFFIX: Final = re.compile(r"_(total|bucket|sum|count)$")


def test_every_command_in_a_message_exists() -> None:
    """A command is checked as far as it is in one line of the source, up to its first placeholder."""
    filled_in = re.compile(r"[{}<>\"\\]")
    advice = re.compile(r"(?:[:`]|\bto|\bwith|\bin|\bsee|\buse|\bthen) (?=runwarden )")
    calls = {
        (path.name, found[1].strip())
        for path in SOURCES
        for line in path.read_text("utf-8").splitlines()
        for start in advice.finditer(line)
        if (found := CALL.match(f" {filled_in.split(line[start.end() :])[0]}"))
    }
    ends = re.compile(r"[;,)]|\. | and | says| lists| names| shows| prints")

    assert {call: said for call in calls if (said := fault(ends.split(call[1])[0]))} == {}
    assert len(calls) > 30


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


def test_every_metric_exists_and_alerts_and_the_bot_s_metrics_are_listed() -> None:
    """Documents, alerts and dashboards use existing metrics.

    Each is on the operators' page with its labels, and each alert in the runbook.
    """
    of_service = [path.read_text("utf-8") for path in (ROOT / "service" / "observability").rglob("*.py")]
    exact = {f"runwarden_{name}" for name in FIGURES} | {DURATIONS, *METRIC.findall("\n".join(of_service))}
    known = exact | {_SUFFIX.sub("", name) for name in exact} | {"runwarden_build_info", "runwarden_session"}
    named = {(path.name, name) for path in (*DOCUMENTS, *DEPLOYED) for name in METRIC.findall(path.read_text("utf-8"))}

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
    """The service's settings with their defaults, and the sections with None."""
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        yield f"{prefix}{name}", None if section else field.default
        if section is not None:
            yield from leaves(section, f"{prefix}{name}.")


def test_every_setting_of_the_service_is_listed_and_no_other() -> None:
    """Each setting is listed, with its default if that is a number."""
    page = (RUN / "settings.md").read_text("utf-8")
    known = dict(leaves(ServiceSettings))
    rows = re.findall(r"^\| (`[a-z].*?`.*?) \| (.*?) \|", page.partition("## Start and stop")[0], re.MULTILINE)
    listed = {name.strip("`"): default for name, default in rows}
    covered = {name.removesuffix(".*") for name in listed if name.endswith(".*")}

    assert sorted(name for name in listed if name not in known and not name.endswith(".*")) == []
    missing = {name for name in known.keys() - listed if not any(f"{name}.".startswith(f"{one}.") for one in covered)}
    sections = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    assert missing - sections == set()
    numbers = {name: float(default) for name, default in listed.items() if re.fullmatch(r"\d+", default)}
    assert {name: known[name] for name in numbers} == numbers
    assert len(numbers) > 20


EXAMPLES: Final = [
    pytest.param(tomllib.loads(body), id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *sorted(RUN.glob("*.md")))
    for number, (language, body) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if language == "toml"
]


@pytest.mark.parametrize("document", EXAMPLES)
def test_every_example_of_a_file_can_be_read(document: dict[str, Any]) -> None:
    """The service reads each whole example; a part is inserted into the smallest valid file."""
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
    if "hosts" in document:  # Lines of an organization's table.
        organizations = [{"name": "Acme", **document}]
    Setup.model_validate({"organizations": organizations, "agents": agents, "offers": document.get("offers", [])})


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "use").glob("*.md")), ids=lambda page: page.name)
def test_every_example_of_the_configuration_can_be_read(page: Path) -> None:
    """The parser of the console and the bot reads each example."""
    for language, body in FENCE.findall(page.read_text("utf-8")):
        if language == "toml":
            parse(Path("/config.toml"), body)
