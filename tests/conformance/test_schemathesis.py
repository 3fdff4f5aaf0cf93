"""Hundreds of generated requests, in a campaign thousands, held against the transcribed specification (spec 2 to 9)."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import Subject
from tests.service.conftest import OPERATIONS

pytestmark = pytest.mark.timeout(900)
CAMPAIGN = [pytest.mark.campaign, pytest.mark.timeout(3600)]


def judge(report: dict[str, Any], at_least: int, operations: int = 6) -> None:
    """Nothing was found, every operation was tried, and often enough."""
    assert report["failures"] == [], report["output"]
    assert report["errors"] == [], report["output"]
    assert (report["complete"], report["exit_code"]) == (True, 0), report["output"]
    assert report["operations"]["tested"] == report["operations"]["total"] == operations
    assert report["test_cases"]["generated"] >= at_least


@pytest.mark.parametrize(
    ("examples", "at_least", "seed"),
    [(1, 250, 20250131), *(pytest.param(400, 4000, seed, marks=CAMPAIGN) for seed in range(1, 4))],
)
def test_whatever_is_sent_the_answer_conforms(
    subject: Subject, specification: dict[str, Any], tmp_path: Path, examples: int, at_least: int, seed: int
) -> None:
    """A documented status, type and body, never a 5xx; violations and wrong methods refused; no token, no way."""
    judge(subject.campaign(tmp_path, specification, examples, seed), at_least)


@pytest.mark.parametrize("examples", [1, pytest.param(300, marks=CAMPAIGN)])
def test_the_extension_answers_as_it_says(subject: Subject, tmp_path: Path, examples: int) -> None:
    """Results of runs (docs/dev/api.md), as OpenAPI describes them: of a run that there is, and of one of its turns."""
    described = dict(subject.http.get(f"{subject.root}/openapi.json").json())
    described["paths"] = {
        path.removeprefix("/v1"): item
        for path, item in described["paths"].items()
        if any(operation.get("tags") == ["results"] for operation in item.values())
    }
    run_id = subject.http.post("/external/runs", json=OPERATIONS["start_run"][2]).json()["run_id"]
    there = {"run_id": {"type": "string", "enum": [run_id]}, "n": {"type": "integer", "enum": [1]}}
    for item in described["paths"].values():
        for operation in item.values():
            # Nothing works on the run, so that a call that waits would wait to its end.
            given = [one for one in operation.get("parameters", []) if one["name"] != "wait"]
            operation["parameters"] = [one | {"schema": there.get(one["name"], one["schema"])} for one in given]
    judge(subject.campaign(tmp_path, described, examples, 20250131), 80, operations=11)
