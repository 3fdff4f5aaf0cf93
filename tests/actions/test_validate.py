"""What is said of a request before it is sent."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.refusals import branch_problem, problems
from app.api.requests import (
    CancelRun,
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    ResendInvitation,
    StartAgent,
    StartRun,
    WriteRequest,
)
from storage.records import Repository

API = Repository.parse("acme/api")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (StartRun(" \n", API), "instructions"),
        (StartRun("Look", API, "two words"), "branch_name"),
        (StartRun("Look", API, metadata={"n": 2**63}), "metadata"),
        (StartRun("Look", API, metadata={"n": -(2**63) - 1}), "metadata"),
        (StartRun("Look", API, metadata={"deep": [{"n": float("nan")}]}), "metadata"),
        (StartRun("half \ud800", API), "instructions"),
        (ContinueRun("", "More", API), "run_id"),
        (StartAgent("..", "acme/api"), "name"),
        (StartAgent("a\nb", "acme/api"), "name"),
        (StartAgent(" ", "acme/api"), "name"),
        (StartAgent("reviewer", " "), "repository"),
        (CreateOrganization("nobody"), "email"),
        (CreateOrganization("a@b"), "email"),
        (CreateOrganization("two@x.example, three@x.example"), "email"),
        (CreateOrganization("a@" + "b" * 260 + ".example"), "email"),
        (OnboardProject(), "project_path"),
        (OnboardProject(project_path=" "), "project_path"),
        (CancelRun(" "), "run_id"),
        (ResendInvitation(".."), "invitation_id"),
    ],
)
def test_a_faulty_field_is_named(request_: WriteRequest, field: str) -> None:
    """Each fault is told at its field, so that a form can show it there."""
    assert [problem.field for problem in problems(request_)] == [field]


def test_a_sound_request_has_no_problems() -> None:
    """What the service could accept is let through."""
    for request in (
        StartRun("Look", API, "fix/login-timeout", {"ticket": "T-1", "n": 2**63 - 1}),
        ContinueRun("run_1", "More", API),
        StartAgent("security review", "https://git.example/acme/api.git", inputs={"depth": None}),
        CreateOrganization("ada.lovelace+x@mail.acme.example", "PARTNER"),
        OnboardProject(project_id=0),
    ):
        assert problems(request) == ()


@given(st.text(st.sampled_from("ab/.-@{}~^:?*[\\ \x7f"), min_size=1, max_size=8))
def test_branches_that_we_let_through_are_branches_to_git(name: str) -> None:
    """No name passes here that `git check-ref-format --branch` refuses."""
    if branch_problem(name) is None:
        done = subprocess.run(["git", "check-ref-format", "--branch", name], check=False, capture_output=True)
        assert done.returncode == 0, name
