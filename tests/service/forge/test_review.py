"""Each push updates the review: existing comments stay, and what a user closed stays closed."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from service.findings import IdentifiedFinding
from service.forge import ForgeError, ReviewComment
from service.forge.handlers import inert
from service.forge.review import Marks, Report, bring_up_to_date, comment
from service.text import not_closing
from tests.lab import Received, Respond
from tests.service.forge.conftest import ONE_FORGE
from tests.service.forge.forges import Forge, ForgejoServer, GitHubServer
from tests.service.forge.test_clients import PROPOSAL

HEADS = ("b" * 40, "c" * 40, "d" * 40)


def finding(name: str, line: int | None, path: str = "src/app.py", **fields: Any) -> IdentifiedFinding:
    return IdentifiedFinding(id=name * 16, path=path, line=line, title=f"finding {name}", rule="r", **fields)


FORGEJO = pytest.mark.parametrize("forge", [ForgejoServer], indirect=True)
A, B, C, E = finding("a", 1), finding("b", 2), finding("c", 3), finding("e", 2)
D = finding("d", 7, "other.py")


class Pull:
    """A pull request with an agent that reviews it."""

    def __init__(self, server: Forge, agent: str = "claude", token: str = "bot-token") -> None:
        self.server, self.agent = server, agent
        self.client = server.client(token)
        self.number = self.client.open(**PROPOSAL).number

    def push(self, head: int, *found: IdentifiedFinding) -> None:
        """Post the findings at a commit, with as many attempts as it takes."""
        self.server.branches["agent/fix-1"] = HEADS[head]
        for _ in range(30):
            with contextlib.suppress(ForgeError):
                report = Report(self.agent, HEADS[head], found, "Run `run_1`, turn 1.")
                bring_up_to_date(self.client, self.number, report)
                return
        raise AssertionError("no end of it")

    @property
    def threads(self) -> dict[str, Any]:
        return {(Marks(self.agent).id_of(one.body) or "?")[0]: one for one in self.client.threads(self.number)}

    @property
    def states(self) -> str:
        """Each thread's letter, in upper case while it is open."""
        return "".join(key if one.is_resolved else key.upper() for key, one in self.threads.items())

    @property
    def bodies(self) -> list[str]:
        """The texts about the whole change; later comments are below a separate heading."""
        return [one.body for one in self.client.reviews(self.number) if one.body not in {"", "More findings:"}]

    def resolve_as_person(self, key: str) -> None:
        with contextlib.suppress(ForgeError):  # its answer may be lost, too
            self.server.client("person-token").resolve(self.number, self.threads[key])


def is_write(received: Received) -> bool:
    return received.method != "GET" and b"reviewThreads(" not in received.body


@pytest.mark.parametrize("answers", ["come", "are lost"])
def test_a_review_is_updated_over_three_pushes(forge: Forge, answers: str) -> None:
    """The answer to every write may be lost, and the write is repeated.

    Nothing is posted without a finding, or rewritten without a change.
    """
    pull = Pull(forge)
    pull.push(0)
    assert pull.bodies == []
    if answers == "are lost":
        forge.after = lambda received: Respond(502, {}) if is_write(received) else None
    pull.push(0, A, B, C, D)
    first = (pull.states, len(pull.bodies), "`other.py:7` **minor** `r`: finding d" in pull.bodies[0])
    before = len(forge.requests)
    pull.push(1, A, B, C, D)
    writes = [one.target for one in forge.requests[before:] if is_write(one)]
    pull.resolve_as_person("c")
    pull.push(1, A, C, E)
    second = (pull.states, len(pull.bodies), "finding d" in pull.bodies[0])
    pull.push(2, A, B, C, E, D)

    assert first == ("ABC", 1, True)
    assert writes == []
    assert second == ("AbcE", 1, False)
    assert (pull.states, len(pull.bodies)) == ("ABcE", 1)
    assert "found 4 minor" in pull.bodies[0]
    assert len(pull.client.threads(pull.number)) == 4


def test_deleted_or_resolved_comments_are_not_posted_again(forge: Forge) -> None:
    """A later run does not post it either, although its service does not know the earlier one."""
    pull = Pull(forge)
    pull.push(0, A, B, D)
    del forge.threads[0]
    text = forge.reviews[0].body.replace("- [ ] `other", "- [x] `other")
    # GitHub's form sends its lines with CRLF.
    forge.reviews[0].body = text.replace("\n", "\r\n") if isinstance(forge, GitHubServer) else text
    pull.push(1, A, B, D)
    pull.push(2, A, B, D)

    assert pull.states == "B"
    assert "found 1 minor" in pull.bodies[0]
    assert "other.py" not in pull.bodies[0]


@ONE_FORGE
def test_a_failing_comment_does_not_block_others(forge: Forge) -> None:
    """The comment is tried again; if the forge keeps failing, the finding goes into the text."""
    pull = Pull(forge)
    forge.branches["agent/fix-1"] = HEADS[0]
    forge.before = lambda one: Respond(500, {}) if b'"path"' in one.body and b"finding b" in one.body else None
    report = Report("claude", HEADS[0], (A, B, C), "Run `run_1`, turn 1.")
    with pytest.raises(ForgeError):
        bring_up_to_date(pull.client, pull.number, report)
    bring_up_to_date(pull.client, pull.number, report, is_lasting=True)

    assert "finding b" in pull.bodies[0]


@ONE_FORGE
def test_marks_count_only_for_their_own_agent_and_account(forge: Forge) -> None:
    """A mark counts only in comments of our own account, and for its own agent."""
    pull, other = Pull(forge), Pull(forge, "cl-aude")
    pull.push(0, A)
    other.push(0, B)
    mallory = Pull(forge, token="person-token")
    mallory.push(0, C)
    pull.push(1, A, C)
    shown = {(one.author, one.body.partition("finding ")[2][0], one.resolved_by) for one in forge.threads}

    assert shown == {*(("runwarden-bot", letter, None) for letter in "abc"), ("ann", "c", None)}


@ONE_FORGE
def test_a_token_without_an_account_uses_the_marks(forge: Forge) -> None:
    """An example is the installation token of a GitHub App."""
    pull = Pull(forge)
    forge.before = lambda received: Respond(403, {}) if received.target.endswith("/user") else None
    pull.push(0, A, B)
    pull.push(1, A)

    assert pull.states == "Ab"


@FORGEJO
def test_forgejo_text_reports_resolved_findings(forge: ForgejoServer) -> None:
    """In Forgejo 16.0 the text says that a finding is gone until it is back. Users resolve it on the page."""
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


@FORGEJO
def test_an_interrupted_review_is_posted_again(forge: ForgejoServer) -> None:
    """Comments of a pending review are visible to their author only, so they are deleted and posted again."""
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


@FORGEJO
def test_lists_are_read_to_their_end(forge: ForgejoServer) -> None:
    """Some lists only give a total; of many pull requests, only the branch's own are found."""
    client, person = forge.client(), forge.client("person-token")
    own = forge.add("agent/fix-1", "main", "Old", state="closed")
    for at in range(120):
        forge.add(f"other/{at}", "main", "Other", state="open" if at % 2 else "merged")
    number = client.open(**PROPOSAL).number
    for at in range(60):
        person.post_review(number, "b" * 40, "", [ReviewComment("src/app.py", 1, f"remark {at}")])

    assert [one.number for one in client.pull_requests("agent/fix-1")] == [number, own.number]
    assert [one.state for one in client.pull_requests("other/2")] == ["merged"]
    assert len(client.threads(number)) == 60


@FORGEJO
def test_the_newest_status_counts_in_any_order(forge: ForgejoServer) -> None:
    """A status equal to the newest is not set again; one equal to an older status is."""
    client = forge.client()
    for state in ("pending", "success", "success", "pending"):
        client.set_status("b" * 40, "agent/fix-1", "runwarden/x", state, "text")

    assert [said["state"] for _, _, said in forge.statuses] == ["pending", "success", "pending"]


def test_foreign_text_has_no_effect() -> None:
    """No mention, command, link or HTML works; code stays code, and a suggestion cannot end its own block.

    No title or message closes an issue at the merge; harmless words stay unchanged.
    """
    marks = Marks("x")
    text = comment(finding("a", 1, suggestion="```\n@all", message="Why"), marks, may_replace=True)
    assert text.endswith(f"````suggestion\n```\n@all\n````\n\n{marks.finding('a' * 16)}")
    for foreign, shown in (
        ("thanks @all, see #12 and `@x`", "thanks @\u200ball, see #\u200b12 and `@x`"),
        ("[ok](http://evil.example) <!-- x", "\\[ok](http://evil.example) &lt;!-- x"),
        ("````\n```\n/merge\n````", "````\n```\n\u200b/merge\n````"),
        ("Closes: #5 and\nfixed acme/x!6", "Closes, see #\u200b5 and\nfixed, see acme/x!6"),
        ("~~~\n$x$ \x1b", "\\~\\~\\~\n\\$x\\$ \u241b"),
    ):
        assert inert(foreign) == shown

    for word in ("closes", "CLOSE", "fixing:", "resolved", "implements"):
        inactive = f"{word.removesuffix(':')}, see"
        names = ["#15", "**#15**", "acme/other#16", "!7", "GH-13", "[issue:4]", "\n#3"]
        names += [f"{' ' * 40}issues   #4, #5", "(https://git.example/a/b/issues/12)"]

        for named in names:
            assert not_closing(f"It {word} {named}") == f"It {inactive} {named}"
            kept = f"{word} the login of issue 5, {inactive} {named}"
            assert not_closing(kept) == kept


@example("a | b\n--|--\n`x | <b> `")
@given(st.text(alphabet="`\\<>[]()!|~-:&;\n bi@#/", max_size=60))
def test_foreign_text_never_becomes_html_or_a_link(text: str) -> None:
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    blocks = markdown.parse(f"{inert(text)}\n\n<!-- end -->")
    tokens = [token.type for block in blocks for token in (block, *(block.children or ()))]

    assert [one for one in tokens if one in {"html_block", "html_inline", "link_open", "image"}] == ["html_block"]


def test_a_mark_inside_foreign_text_is_ignored() -> None:
    """Only the end of a comment and the last line of a review count."""
    marks = Marks("x")
    forged = f"{marks.finding('b' * 16)}\n{marks.review({'dismissed': ['a' * 16]})}"
    text = comment(finding("a", 1, suggestion=forged, message=forged), marks, may_replace=True)

    assert marks.id_of(text) == "a" * 16
    assert marks.memory_of(text) is None
    assert marks.memory_of(marks.review({"posted": ["a" * 16]})) == {"posted": {"a" * 16}, "dismissed": set()}
    assert marks.memory_of(marks.review({}).replace("{}", json.dumps([1]))) == {"dismissed": set()}
