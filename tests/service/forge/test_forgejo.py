"""What is Forgejo's own: its reviews, the versions that resolve nothing, its diff, lists, scopes and addresses."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.forge.client import CommitStatus, ForgeError, ReviewComment
from service.forge.forgejo import Forgejo
from tests.lab import Respond
from tests.service.forge.forges import ForgejoServer
from tests.service.forge.test_clients import PROPOSAL
from tests.service.forge.test_review import A, B, C, Pull
from tests.service_process import git


@pytest.fixture
def forge() -> Iterator[ForgejoServer]:
    with closing(ForgejoServer()) as server:
        yield server


@pytest.mark.parametrize("version", ["", "comments"], ids=["16.0", "gitea"])
def test_what_is_gone_is_resolved_whatever_the_version(forge: ForgejoServer, version: str) -> None:
    """Without a call for it, the comment says so, and no longer when the finding is back; users resolve on the page."""
    forge.resolves_at = version
    pull = Pull(forge)
    pull.push(0, A, B, C)
    forge.threads[2].resolved_by = "ann"
    pull.push(1, A, C)
    gone, said = pull.states, pull.threads["b"].body.startswith("*Resolved: ")
    pull.push(1, A, C)
    pull.push(2, A, B, C)

    assert (gone, said) == ("Abc", version == "")
    assert (pull.states, pull.threads["b"].body.startswith("*Resolved: ")) == ("ABc", False)
    assert len(forge.threads) == 3


def test_a_review_that_broke_off_is_posted_anew(forge: ForgejoServer) -> None:
    """Its first comments are pending, where only their author sees them: they count as not posted, and go."""
    pull = Pull(forge)
    forge.breaks_at = "finding b"
    comments = [ReviewComment("src/app.py", 1, f"finding {one}") for one in "ab"]
    with pytest.raises(ForgeError, match="Forgejo answered 500"):
        pull.client.post_review(pull.number, "b" * 40, "", comments)
    left = [len(forge.threads), len(pull.client.threads(pull.number))]
    forge.breaks_at = ""
    pull.push(0, A, B)

    assert left == [1, 0]
    assert (pull.states, len(forge.threads), [one.state for one in forge.submitted]) == ("AB", 2, ["COMMENT"])


@pytest.mark.parametrize("quotes", ["true", "false"])
def test_the_diff_names_each_file_and_line_that_it_shows(forge: ForgejoServer, tmp_path: Path, quotes: str) -> None:
    """Git's own: quoted, blank and removed names; what looks like a header is content. A large diff shows none."""
    names = ("a b.py", '\u00e9\u4e2d".py', "gone", "old")
    work = tmp_path
    git("init", "--quiet", cwd=work)
    for name in names[::2] + names[3:]:
        (work / name).write_text("one\ntwo\n" * 9)
    git("add", ".", cwd=work)
    git("commit", "--quiet", "-m", "x", cwd=work)
    git("mv", "old", "new", cwd=work)
    git("rm", "--quiet", "gone", cwd=work)
    (work / names[0]).write_text("one\n++ b/x.py\n" + "one\ntwo\n" * 8)
    (work / names[1]).write_text("diff --git a/y b/y\n")
    git("add", ".", cwd=work)
    diff = git("-c", f"core.quotePath={quotes}", "diff", "--cached", "--find-renames", cwd=work)
    client = forge.client()
    forge.before = lambda _: Respond(200, diff.encode())
    shown = client.diff_lines(1)
    forge.before = lambda _: Respond(200, b"x" * ((8 << 20) + 1))

    assert shown == {names[0]: {1, 2, 3, 4, 5}, names[1]: {1}}
    assert client.diff_lines(1) == {}


def test_lists_are_read_to_their_end(forge: ForgejoServer) -> None:
    """Also where only a number says how long they are; of many pull requests a branch's own are found."""
    client, person = forge.client(), forge.client("person-token")
    own = forge.add("agent/fix-1", "main", "Old", state="closed")
    for at in range(120):
        forge.add(f"other/{at}", "main", "Other", state="open" if at % 2 else "merged")
    number = client.open(PROPOSAL).number
    for at in range(60):
        person.post_review(number, "b" * 40, "", [ReviewComment("src/app.py", 1, f"remark {at}")])

    assert [one.number for one in client.pull_requests("agent/fix-1")] == [number, own.number]
    assert [one.state for one in client.pull_requests("other/2")] == ["merged"]
    assert len(client.threads(number)) == 60


def test_the_newest_status_counts_in_whatever_order_they_come(forge: ForgejoServer) -> None:
    """Equal to it, none is set again; equal to an older one, it is."""
    client = forge.client()
    for state in ("pending", "success", "success", "pending"):
        client.set_status("b" * 40, "agent/fix-1", CommitStatus("runwarden/x", state, "text"))

    assert [said["state"] for _, _, said in forge.statuses] == ["pending", "success", "pending"]


def test_a_token_s_missing_scope_is_named(forge: ForgejoServer) -> None:
    """And may be given later. Letters' case in a repository's name means nothing."""
    client = Forgejo(forge.url, "acme/api", "bot-token", 120)
    number = client.open(PROPOSAL).number
    again = client.open(PROPOSAL).number
    forge.scopes = {"repository"}

    assert again == number
    with pytest.raises(ForgeError, match=r"\[write:issue\].*lacks a permission") as lacking:
        client.post_review(number, "b" * 40, "Text", [])
    assert (lacking.value.is_final, lacking.value.is_away) == (False, False)
    forge.before = lambda _: Respond(200, b"<html>the page of a sub-path</html>")
    with pytest.raises(ForgeError, match="something else than a list; check the host's API address"):
        Forgejo(forge.origin, "acme/api", "bot-token", 120).pull_requests("main")
