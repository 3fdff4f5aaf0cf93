"""What is Forgejo's own: its reviews, a version that resolves nothing, its lists and statuses."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from service.forge.client import CommitStatus, ForgeError, ReviewComment
from tests.service.forge.forges import ForgejoServer
from tests.service.forge.test_clients import PROPOSAL
from tests.service.forge.test_review import A, B, C, Pull


@pytest.fixture
def forge() -> Iterator[ForgejoServer]:
    with closing(ForgejoServer()) as server:
        yield server


def test_what_is_gone_is_said_where_no_call_resolves_it(forge: ForgejoServer) -> None:
    """As in 16.0; no longer when the finding is back. Users resolve on the page."""
    forge.resolves = False
    pull = Pull(forge)
    pull.push(0, A, B, C)
    forge.threads[2].resolved_by = "ann"
    pull.push(1, A, C)
    gone, said = pull.states, pull.threads["b"].body.startswith("*Resolved: ")
    pull.push(1, A, C)
    pull.push(2, A, B, C)

    assert (gone, said) == ("Abc", True)
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
