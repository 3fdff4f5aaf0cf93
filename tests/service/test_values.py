"""Names of branches, given and made, and identifiers."""

import re
import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import ids
from service.reference import BRANCH, branch_fault, default_branch

AWKWARD = st.text(alphabet="a/.-@{}~^:?*[\\ \x7f\x01lockHEDrfsé", max_size=12)


@settings(max_examples=60)
@example("refs/heads/x")
@example("HEAD")
@example("a.lock")
@example("a.lock/b")
@example("@")
@example("x/.y")
@example("a//b")
@example("a\n")
@given(AWKWARD)
def test_every_branch_name_we_take_git_takes_too(name: str) -> None:
    """The rules are those of git itself; the published pattern allows what we take alone, but for its length."""
    # In JSON Schema `$` is the end; in Python it may stand before a last line break.
    pattern, is_taken = BRANCH.replace("$", r"\Z"), branch_fault(name) is None

    assert (re.search(pattern, name) is not None) == is_taken
    if is_taken:
        done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False)
        assert done.returncode == 0, name


@settings(max_examples=30)
@given(st.text(max_size=80), st.integers(1, 10**12))
def test_a_branch_is_made_of_any_instructions(instructions: str, later: int) -> None:
    """Whatever the words are, the branch made of them is valid; nothing that people use is refused; ids sort."""
    first, second = (ids.run_id(1_700_000_000_000_000 + 1000 * more) for more in (0, later))
    name = default_branch(instructions, first)

    assert first < second
    assert name.startswith("agent/")
    for one in (name, "main", "fix/login-timeout", "agent/a.b_c", "release/1.0", "ünïcode", "a@b", "refs"):
        assert branch_fault(one) is None
