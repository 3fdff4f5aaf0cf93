"""What a turn may change before its change is kept from the push."""

import pytest

from service.agents.options import ChangeLimits
from service.execution.change import refusal


@pytest.mark.parametrize(
    ("names", "size", "limits", "reason"),
    [
        (["src/app.py", ".github/ISSUE_TEMPLATE.md"], 10, {}, None),
        ([".github/workflows/ci.yml"], 10, {}, "protected by '.github/workflows/'"),
        ([".GitHub/Workflows/ci.yml"], 10, {}, "protected by '.github/workflows/'"),
        ([".github"], 10, {}, "protected by '.github/workflows/'"),
        ([".gitlab-ci.yml"], 10, {}, "protected by '.gitlab-ci.yml'"),
        (["CODEOWNERS"], 10, {}, "protected by 'CODEOWNERS'"),
        (["deploy/prod/keys.yml"], 10, {"protected": ["deploy/*.yml"]}, "(change.protected)"),
        ([".github/workflows/ci.yml"], 10, {"protected": []}, None),
        (["a", "b", "c"], 10, {"files": 2}, "it touches 3 files, more than 2 (change.files)"),
        (["a"], 11, {"bytes": 10}, "its patch has 11 bytes, more than 10 (change.bytes)"),
    ],
)
def test_a_change_beyond_its_limits_is_not_pushed(
    names: list[str], size: int, limits: dict[str, object], reason: str | None
) -> None:
    """A protected folder also where something else stands in its place; letters' case does not hide it."""
    found = refusal(ChangeLimits.model_validate(limits), names, size)

    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")
