"""Branch names, repository references and identifiers."""

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import ids
from service.reference import Location, Reference, branch_fault, checked_path, default_branch, location, reference

AWKWARD = st.text(alphabet="a/.-@{}~^:?*[\\ \x7f\x01lockHEDrfsé", max_size=12)


@settings(max_examples=300)
@example("a.lock/b")
@example("@")
@example("x/.y")
@example("a//b")
@given(AWKWARD)
def test_every_branch_name_we_take_git_takes_too(name: str) -> None:
    """The rules are those of git itself: checked against it."""
    if branch_fault(name) is None:
        done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False)
        assert done.returncode == 0, name


@pytest.mark.parametrize("name", ["main", "fix/login-timeout", "agent/a.b_c", "release/1.0", "ünïcode", "a@b", "refs"])
def test_ordinary_branch_names_are_taken(name: str) -> None:
    """Nothing that people use is refused."""
    assert branch_fault(name) is None


@given(st.text(max_size=80))
def test_a_branch_is_made_of_any_instructions(instructions: str) -> None:
    """Whatever the words are, the branch made of them is valid and its own."""
    name = default_branch(instructions, ids.run_id(1_700_000_000_000_000))

    assert branch_fault(name) is None
    assert name.startswith("agent/")


def test_ids_made_later_sort_later() -> None:
    """To the millisecond."""
    made = [ids.run_id(second * 1_000_000) for second in range(1_700_000_000, 1_700_000_200)]

    assert made == sorted(made)
    assert len({len(one) for one in made}) == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/api", Location("github.com", "acme/api")),
        ("https://GitHub.com/acme/api.git/", Location("github.com", "acme/api")),
        ("ssh://git@gitlab.example:2222/group/sub/project.git", Location("gitlab.example", "group/sub/project")),
        ("git@github.com:acme/api.git", Location("github.com", "acme/api")),
        ("https://user:secret@github.com/acme/api", Location("github.com", "acme/api")),
        ("acme/api", None),
        ("https://github.com", None),
        ("http://[broken/acme/api", None),
    ],
)
def test_a_full_url_is_read_in_every_form(url: str, expected: Location | None) -> None:
    """https, ssh with a port, and the scp form."""
    assert location(url) == expected


@pytest.mark.parametrize("path", ["acme", "a/b/c", "acme/", "/api", "a b/c", "-x/y", "../x", "a/..", "é/b", "a\n/b"])
def test_a_github_path_that_cannot_be_is_refused(path: str) -> None:
    """Exactly owner/repo, in the characters of code hosts."""
    with pytest.raises(ValueError, match="owner/repo"):
        checked_path("github", path)


def test_a_reference_is_canonical() -> None:
    """Different spellings become one value, and its body has the spec's fields."""
    spelled = [{"group": "g/sub", "project": "p"}, {"project_path": "g/sub/p"}, {"project_path": "g/sub/p.git"}]

    assert {reference("gitlab", data) for data in spelled} == {Reference("gitlab", "g/sub/p")}
    assert reference("github", {"owner": "a", "repo": "b"}).body == {
        "platform": "github",
        "data": {"owner": "a", "repo": "b"},
    }
