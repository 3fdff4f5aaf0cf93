"""Branch names: what git accepts, minus what would be misread as an option or a full ref."""

import re
from typing import Final

from service.ids import slug

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_LONGEST: Final = 200


def branch_fault(name: str) -> str | None:
    """Return why git would not take the branch name, None when it would (the rules of git check-ref-format)."""
    if not name or len(name.encode()) > _LONGEST:
        return f"a branch name has 1 to {_LONGEST} bytes"
    if name.startswith(("-", "/", "refs/")) or name.endswith(("/", ".")) or name in {"@", "HEAD"}:
        return "a branch name may not start with '-', '/' or 'refs/', end with '/' or '.', or be '@' or 'HEAD'"
    if _FORBIDDEN.search(name):
        return "a branch name may not hold spaces, control characters, '..', '//', '@{' or any of ~ ^ : ? * [ \\"
    if any(part.startswith(".") or part.endswith(".lock") for part in name.split("/")):
        return "no part of a branch name may start with '.' or end with '.lock'"
    return None


def default_branch(instructions: str, run_id: str) -> str:
    """Return the branch made for a run that names none: `agent/<first words>-<end of the run id>` (spec 4.3)."""
    return f"agent/{slug(instructions) or 'run'}-{run_id[-8:].lower()}"
