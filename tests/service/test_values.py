"""Values as text: instants, durations, branch names, repository references and identifiers."""

import re
import subprocess
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import ids
from service.clock import EPOCH, MICROSECOND, parse_rfc3339, rfc3339
from service.reference import BRANCH, branch_fault, default_branch

INSTANTS = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.just(UTC))
OFFSETS = st.integers(min_value=-23 * 60 - 59, max_value=23 * 60 + 59)
AWKWARD = st.text(alphabet="a/.-@{}~^:?*[\\ \x7f\x01lockHEDrfsé", max_size=12)


@given(INSTANTS, INSTANTS, OFFSETS)
def test_an_instant_is_read_back_in_any_offset_and_sorts_as_text(one: datetime, two: datetime, minutes: int) -> None:
    """To the microsecond, whichever way is rounded; the text has a fixed width."""
    first, second = ((instant - EPOCH) // MICROSECOND for instant in (one, two))
    local = one.astimezone(timezone(timedelta(minutes=minutes))).isoformat(timespec="microseconds")

    assert {parse_rfc3339(rfc3339(first), round_up=up) for up in (True, False)} == {first}
    assert parse_rfc3339(local, round_up=False) == first
    assert (rfc3339(first) < rfc3339(second)) == (first < second)


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
