"""Hundreds of generated requests are checked against the transcribed specification (spec 2 to 9).

A campaign makes thousands.
"""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import Subject
from tests.service.conftest import START

pytestmark = pytest.mark.timeout(900)
ADDRESSES = (
    "a@b",
    "a@localhost",
    "a@1.2",
    '"a b"@x',
    "a@[127.0.0.1]",
    "a@xn--a.com",
    "a@ab--c.com",
    "a..b@c.com",
    "a" * 65 + "@b.com",
)
CAMPAIGN = [pytest.mark.campaign, pytest.mark.timeout(3600)]


NO_NUL = "^[^\\x00]*$"
PLAIN_VALUE = {
    "anyOf": [
        {"type": ["boolean", "null"]},
        {"type": "string", "pattern": NO_NUL},
        {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1},
        {"type": "number", "minimum": -1e300, "maximum": 1e300},
        {"type": "array", "items": {"type": "string", "pattern": NO_NUL}},
    ]
}
FREE = {"additionalProperties": PLAIN_VALUE, "propertyNames": {"pattern": NO_NUL}}
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"


def known(described: dict[str, Any]) -> dict[str, Any]:
    """Return the published description of the six operations, with ids that exist in the tests' world.

    It narrows a request's form only by rules that a schema cannot state: reserved domains, the bytes of a branch,
    contents of free objects, and that `data` needs a platform and no repository.
    """
    made = copy.deepcopy(described)
    paths = made["paths"] = {
        path.removeprefix("/v1"): item
        for path, item in made["paths"].items()
        if not any(operation.get("tags") == ["results"] for operation in item.values())
    }

    def body(path: str) -> dict[str, Any]:
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema["additionalProperties"] = False
        return dict(schema["properties"])

    creation = body("/external/organizations")
    creation["offer_code"]["enum"] = ["PARTNER", "OLD", None]
    creation["email"]["pattern"] = creation["email"]["pattern"].replace("[A-Za-z]{1,63}$", "(com|org|example)$")
    del creation["email"]["format"]
    start, agent = body("/external/runs"), body("/external/agents/{name}/runs")
    start["run_id"]["enum"] = [None]
    agent["repository"]["enum"] = ["acme/api", "acme/tools", "web", "https://gitlab.example/acme/tools.git"]
    for branch in (start["branch_name"], agent["branch_name"]):
        branch["anyOf"][0]["maxLength"] = 50
    for free in (start["metadata"], agent["inputs"]):
        free["anyOf"][0].update(FREE)
    for free in (start["repository"], start["repository"]["properties"]["data"]):
        free.update(FREE)
    # The repositories of the connected groups.
    for one in start["repository"]["oneOf"]:
        fields = one["properties"]["data"]["properties"]
        for name in {"owner", "group", "project_path"} & fields.keys():
            fields[name]["pattern"] = fields[name]["pattern"].replace(SEGMENT, "acme", 1)
    body("/external/gitlab/projects")
    paths["/external/agents/{name}/runs"]["post"]["parameters"][0]["schema"] = {"enum": ["scribe", "reviewer"]}
    listing = paths["/external/runs"]["get"]
    listing["parameters"] = [one for one in listing["parameters"] if one["name"] not in {"page_token", "data"}]
    return made


def judge(report: dict[str, Any], at_least: int, operations: int = 6) -> None:
    """Check that nothing was found, and that every operation was tried often enough."""
    assert report["failures"] == [], report["output"]
    assert report["errors"] == [], report["output"]
    assert (report["complete"], report["exit_code"]) == (True, 0), report["output"]
    assert report["operations"]["tested"] == report["operations"]["total"] == operations
    assert report["test_cases"]["generated"] >= at_least


@pytest.mark.parametrize(
    ("examples", "at_least", "seed"),
    [(1, 250, 20250131), *(pytest.param(400, 4000, seed, marks=CAMPAIGN) for seed in range(1, 4))],
)
def test_every_answer_conforms_to_the_specification(
    subject: Subject, specification: dict[str, Any], tmp_path: Path, examples: int, at_least: int, seed: int
) -> None:
    """Answers have a documented status, type and body, and never a 5xx; violations are refused, and no token leaks."""
    judge(subject.campaign(tmp_path, specification, examples, seed), at_least)


@pytest.mark.parametrize("examples", [1, pytest.param(300, marks=CAMPAIGN)])
def test_every_value_the_schema_allows_is_accepted(subject: Subject, tmp_path: Path, examples: int) -> None:
    """Nothing that the published lengths, formats, enums and alternatives allow is refused."""
    described = known(subject.description())
    options = ("--mode", "positive", "--phases", "coverage,fuzzing")
    judge(subject.campaign(tmp_path, described, examples, 20250131, *options), 50)


def fits(field: dict[str, Any], value: str | int) -> bool:
    """Whether a value fits the published schema of a field."""
    field = field.get("anyOf", [field])[0]
    if isinstance(value, int):
        return bool(value <= field["maximum"])
    return re.search(field["pattern"], value) is not None and len(value) >= field.get("minLength", 0)


def test_every_refused_value_violates_the_schema(subject: Subject) -> None:
    """The service refuses each of these values, and the published schema excludes them."""
    described = subject.description()["paths"]

    def field(path: str, name: str) -> dict[str, Any]:
        content = described[f"/v1/external/{path}"]["post"]["requestBody"]["content"]
        return dict(content["application/json"]["schema"]["properties"][name])

    for path, name, value, others in (
        *(("organizations", "email", email, {}) for email in ADDRESSES),
        ("organizations", "offer_code", "\0", {"email": "a@b.com"}),
        *(("runs", "instructions", text, START) for text in ("a\0", "\x85", " \n")),
        ("runs", "run_id", "\0", START),
        ("agents/{name}/runs", "repository", "acme/api\0", {}),
        ("gitlab/projects", "project_id", 2**63, {}),
    ):
        answer = subject.http.post(f"/external/{path.format(name='scribe')}", json=others | {name: value})
        assert answer.status_code == 400, value
        assert not fits(field(path, name), value), value
    queries = {one["name"]: one["schema"] for one in described["/v1/external/runs"]["get"]["parameters"]}
    for name, value in (
        ("repository", "x"),
        *((name, "\0") for name in ("repository", "status", "page_token", "data")),
    ):
        assert subject.runs(**{name: value}).status_code == 400, name
        assert not fits(queries[name], value), name
    assert fits(field("organizations", "email"), "a.b+c@mail.example.com")
    assert field("gitlab/projects", "project_id")["anyOf"][0]["maximum"] > 2**62


@pytest.mark.parametrize("examples", [1, pytest.param(300, marks=CAMPAIGN)])
def test_the_extension_matches_its_description(subject: Subject, tmp_path: Path, examples: int) -> None:
    """The results of a run and of one of its turns (docs/dev/api.md) match their OpenAPI description."""
    described = subject.description()
    described["paths"] = {
        path.removeprefix("/v1"): item
        for path, item in described["paths"].items()
        if any(operation.get("tags") == ["results"] for operation in item.values())
    }
    run_id = subject.http.post("/external/runs", json=START).json()["run_id"]
    there = {"run_id": {"type": "string", "enum": [run_id]}, "n": {"type": "integer", "enum": [1]}}
    for item in described["paths"].values():
        for operation in item.values():
            # Nothing works on the run, so a call that waits would last until its time limit.
            given = [one for one in operation.get("parameters", []) if one["name"] != "wait"]
            operation["parameters"] = [one | {"schema": there.get(one["name"], one["schema"])} for one in given]
    judge(subject.campaign(tmp_path, described, examples, 20250131), 80, operations=11)
