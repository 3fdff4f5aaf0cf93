"""Operations: the names under which faults are scripted, one for each method and path of the spec (4)."""

import re
from typing import Final, Literal

Operation = Literal["create_organization", "list_runs", "start_run", "start_agent", "read_health", "onboard_project"]

_PATHS: Final[tuple[tuple[str, re.Pattern[str], Operation], ...]] = (
    ("POST", re.compile("/v1/external/organizations"), "create_organization"),
    ("GET", re.compile("/v1/external/runs"), "list_runs"),
    ("POST", re.compile("/v1/external/runs"), "start_run"),
    ("POST", re.compile("/v1/external/agents/[^/]+/runs"), "start_agent"),
    ("GET", re.compile("/v1/external/installation/health"), "read_health"),
    ("POST", re.compile("/v1/external/gitlab/projects"), "onboard_project"),
)


def operation_of(method: str, path: str) -> Operation | None:
    """Return the operation that a request calls; None when it calls none."""
    return next((name for verb, pattern, name in _PATHS if verb == method and pattern.fullmatch(path)), None)
