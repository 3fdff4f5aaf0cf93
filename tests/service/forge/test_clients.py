"""Pull requests, reviews and comments through the clients, on servers that refuse what the real ones refuse."""

from pathlib import Path
from typing import Any

import pytest

from service.agents.options import ChangeLimits
from service.execution.commits import changed_between, content_bytes, oversize, refusal
from service.forge import ForgeError, ReviewComment
from service.git import GitRunner
from tests.service.forge.forges import Forge, GitHubServer, GitLabForge

TITLE, BRANCHES = "Fix the login", {"branch": "agent/fix-1", "base": "main"}
PROPOSAL: dict[str, Any] = {**BRANCHES, "title": TITLE, "body": "Because.", "is_draft": True}
IDENTITY = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def test_each_forge_can_open_post_read_edit_and_resolve(forge: Forge) -> None:
    """A fork's branch of the same name does not count, and comments become threads over several pages.

    A status is set once, with as much of its text as the forge accepts.
    """
    client, person = forge.client(), forge.client("person-token")
    forge.add("agent/fix-1", "main", "From a fork", is_fork=True)
    before = client.pull_requests("agent/fix-1")
    number = client.open(**PROPOSAL).number
    again = client.open(**PROPOSAL).number
    client.update(number, "New text")
    comments = [ReviewComment("src/app.py", 1 + at % 3, f"finding {at}") for at in range(60)]
    client.post_review(number, "b" * 40, "What I found", comments)
    review, threads = client.reviews(number)[0], client.threads(number)
    client.edit(review, "What I still find")
    client.resolve(number, threads[0])
    person.resolve(number, threads[1])
    client.resolve(number, threads[0], is_resolved=False)
    now = client.threads(number)

    assert (before, again) == ([], number)
    (made,) = client.pull_requests("agent/fix-1")
    assert (made.state, forge.change(str(number)).draft, made.body) == ("open", True, "New text")
    assert [one.body for one in client.reviews(number)] == ["What I still find"]
    assert (review.author, client.account()) == ("runwarden-bot", "runwarden-bot")
    assert [one.body for one in now] == [f"finding {at}" for at in range(60)]
    assert [(one.is_resolved, one.resolved_by) for one in now[:2]] == [(False, None), (True, "ann")]
    assert (now[4].path, now[4].line) == ("src/app.py", 2)

    status = ("runwarden/claude", "pending", "working " * 200, "https://runs.example/run_1")
    for _ in range(2):
        forge.client().set_status("b" * 40, "agent/fix-1", *status)

    assert [(commit, context) for commit, context, _ in forge.statuses] == [("b" * 40, "runwarden/claude")]


def test_comments_on_issues_are_posted_read_and_edited(forge: Forge) -> None:
    """The comment's web address is returned; of a long discussion, only new comments are read."""
    client = forge.client()
    forge.comment("7", "Me, too", "ann")
    made = client.comment(7, "At work")
    client.edit(made, "Done")
    with pytest.raises(ForgeError, match="404"):
        client.comment(8, "At work")

    assert [(one.body, one.author) for one in client.comments(7)] == [("Me, too", "ann"), ("Done", "runwarden-bot")]
    assert made.url == client.comments(7)[1].url
    for _ in range(2001):
        forge.comment("7", "Long ago", "ann").at = "2020-01-01T00:00:00Z"
    forge.comments.sort(key=lambda one: one.at)
    assert [one.body for one in client.comments(7, "2026-01-01T00:00:00Z")] == ["Me, too", "Done"]
    number = made.path.rpartition("/")[2]
    place = f"/acme/web/-/issues/7#note_{number}" if isinstance(forge, GitLabForge) else f"#{number}"
    assert str(made.url).endswith(place)


@pytest.mark.parametrize("forge", [GitHubServer, GitLabForge], indirect=True)
def test_a_forges_refusal_has_a_reason_and_whether_to_retry(forge: Forge) -> None:
    """A line outside the diff is refused for good; a wrong token can be corrected."""
    client = forge.client()
    number = client.open(**PROPOSAL).number

    with pytest.raises(ForgeError, match="answered 4") as final:
        client.post_review(number, "b" * 40, "", [ReviewComment("src/app.py", 99, "nowhere")])
    with pytest.raises(ForgeError, match="check the token") as curable:
        forge.client("revoked").open(**PROPOSAL)
    with pytest.raises(ForgeError, match=r"answered 4|not at") as moved:
        client.post_review(number, "c" * 40, "", [])
    assert (final.value.is_final, curable.value.is_final) == (True, False)
    assert moved.value.status is not None, "the whole forge would be left alone for a while"


def test_a_change_beyond_its_limits_is_not_pushed() -> None:
    """A protected folder counts even if a file replaces it, and in any letter case."""
    for names, size, limits, reason in (
        (["src/app.py", ".github/ISSUE_TEMPLATE.md"], 10, {}, None),
        ([".GitHub/Workflows/ci.yml"], 10, {}, "protected by '.github/workflows/'"),
        ([".github"], 10, {}, "protected by '.github/workflows/'"),
        (["deploy/prod/keys.yml"], 10, {"protected": ["deploy/*.yml"]}, "(change.protected)"),
        ([".github/workflows/ci.yml"], 10, {"protected": []}, None),
        (["a", "b", "c"], 10, {"files": 2}, "it touches 3 files, more than 2 (change.files)"),
        (["a"], 11, {"bytes": 10}, "its patch has 11 bytes, more than 10 (change.bytes)"),
    ):
        found = refusal(ChangeLimits.model_validate(limits), names, size)

        assert (found is None) == (reason is None)
        assert (reason or "") in (found or "")


def test_no_patch_is_made_of_huge_files(tmp_path: Path) -> None:
    """Added, changed and removed files are counted before they are read, and submodules are not."""
    GitRunner(tmp_path, 30)("init", "--quiet", "--bare", str(tmp_path / "r"))
    git = GitRunner(tmp_path, 30, IDENTITY).inside(tmp_path / "r")

    def commit(**files: str) -> str:
        blobs = {key: git.feed(text, "hash-object", "-w", "--stdin") for key, text in files.items()}
        entries = [f"100644 blob {blob.strip()}\t{name}\n" for name, blob in blobs.items()]
        entries.append(f"160000 commit {'a' * 40}\tsub{len(files)}\n")
        tree = git.feed("".join(entries), "mktree", "--missing").strip()
        return git.feed("x", "commit-tree", tree, "-F", "-").strip()

    before, after = commit(kept="1" * 500, changed="2" * 30, gone="3" * 4), commit(kept="1" * 500, changed="4" * 200)
    touched = [changed_between(git, base, after) for base in (before, None, after)]

    assert [content_bytes(git, one) for one in touched] == [234, 700, 0]
    assert oversize(ChangeLimits(), 256 << 20) is None
    assert "(four times change.bytes)" in (oversize(ChangeLimits(), (256 << 20) + 1) or "")
    assert oversize(ChangeLimits(bytes=1 << 30), 4 << 30) is None
