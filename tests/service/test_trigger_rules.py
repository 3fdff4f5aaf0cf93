"""Rules and deliveries: what a delivery says, what it proves, and which rule is about it."""

from typing import Any, Final

import pytest
from pydantic import ValidationError

from service.triggers.events import PayloadError, PullRequestEvent, authentic, delivery_id, read
from service.triggers.rules import TriggerRule
from tests.service.payloads import SECRET, github, gitlab, signed, with_token

SHA: Final = "a1b2c3d4" * 5
GITHUB: Final = ("github", {"x-github-event": "pull_request"}, github)
GITLAB: Final = ("gitlab", {"x-gitlab-event": "Merge Request Hook"}, gitlab)


def event(host: Any, action: str, **given: Any) -> PullRequestEvent | None:
    """Return what a payload says."""
    platform, headers, payload = host
    raw, _ = with_token(payload(action, SHA, **given), {})
    found: PullRequestEvent | None = read(platform, headers, raw)
    return found


@pytest.mark.parametrize(
    ("host", "action", "given", "kind"),
    [
        (GITHUB, "opened", {}, "opened"),
        (GITHUB, "synchronize", {}, "pushed"),
        (GITHUB, "reopened", {}, "reopened"),
        (GITHUB, "ready_for_review", {}, "ready"),
        (GITHUB, "labeled", {}, "labeled"),
        (GITHUB, "closed", {}, None),
        (GITHUB, "edited", {}, None),
        (GITHUB, "synchronize", {"state": "closed"}, None),
        (GITLAB, "open", {}, "opened"),
        (GITLAB, "reopen", {}, "reopened"),
        (GITLAB, "update", {"oldrev": SHA}, "pushed"),
        (GITLAB, "update", {"changes": {"draft": {"previous": True, "current": False}}}, "ready"),
        (GITLAB, "update", {"changes": {"draft": {"previous": False, "current": True}}, "draft": True}, None),
        (GITLAB, "update", {"changes": {"labels": {}}}, "labeled"),
        (GITLAB, "update", {"changes": {"title": {}}}, None),
        (GITLAB, "update", {"oldrev": SHA, "state": "merged"}, None),
        (GITLAB, "merge", {}, None),
    ],
)
def test_both_code_hosts_say_what_happened(host: Any, action: str, given: dict[str, Any], kind: str | None) -> None:
    """In one language; what no rule can be about is nothing."""
    found = event(host, action, **given)

    assert (found.kind if found else None) == kind


@pytest.mark.parametrize("host", [GITHUB, GITLAB], ids=["github", "gitlab"])
def test_a_pull_request_is_read_as_a_whole(host: Any) -> None:
    """Where its head is, also of a fork that was deleted since; times order what arrives in disorder."""
    opened = "opened" if host is GITHUB else "open"
    found = event(host, opened, number=12, labels=["ai", "x"], draft=True, base="release/2", at=61)
    first = event(host, opened)
    bot = event(host, opened, **({"sender_type": "Bot"} if host is GITHUB else {"sender": "project_41_bot_ab12"}))
    assert found is not None
    assert first is not None

    assert (found.number, found.head, found.head_sha, found.base) == (12, "fix/login", SHA, "release/2")
    assert found.ref == ("refs/pull/12/head" if host is GITHUB else "refs/merge-requests/12/head")
    assert (found.labels, found.is_draft, found.sender, found.default_branch) == (("ai", "x"), True, "dora", "main")
    assert found.changed_at - first.changed_at == 61_000_000
    assert (first.is_fork, first.is_bot, bot is not None and bot.is_bot) == (False, False, True)
    forks = [event(host, opened, fork=kind) for kind in ("yes", "deleted")]
    assert [one is not None and one.is_fork for one in forks] == [True, True]


@pytest.mark.parametrize("host", [GITHUB, GITLAB], ids=["github", "gitlab"])
@pytest.mark.parametrize("body", [b"", b"payload=%7B%7D", b"[]", b'{"action": "opened"}', b"[" * 100_000, b"\xff"])
def test_a_body_that_is_none_is_refused(host: Any, body: bytes) -> None:
    """With the field, or the way out."""
    with pytest.raises(PayloadError):
        read(host[0], host[1], body)


@pytest.mark.parametrize("host", [GITHUB, GITLAB], ids=["github", "gitlab"])
@pytest.mark.parametrize("key", ["head", "base", "sender", "path", "labels"])
@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 1001], ids=["nul", "half", "long"])
def test_a_name_that_no_database_takes_is_refused(host: Any, key: str, value: str) -> None:
    """A tenant with a secret of its own signs what it likes."""
    with pytest.raises(PayloadError):
        event(host, "opened" if host is GITHUB else "open", **{key: [value] if key == "labels" else value})


@pytest.mark.parametrize("sha", ["HEAD", "--upload-pack=x", SHA[:-1], f"{SHA}\n"])
def test_a_commit_is_a_commit(sha: str) -> None:
    """Nothing else gets near git."""
    with pytest.raises(PayloadError, match="sha"):
        read(*GITHUB[:2], with_token(github("opened", sha), {})[0])


def test_only_the_whole_body_s_signature_proves_the_secret() -> None:
    """Each of several secrets is known by its name; SHA-1 proves nothing."""
    raw, headers = signed(github("opened", SHA), "d-1")
    small = {name.lower(): value for name, value in headers.items()}
    secrets = {"A": "another", "B": SECRET, "C": SECRET}
    old = {name: value for name, value in small.items() if not name.endswith("256")}
    shorter = small | {"x-hub-signature-256": small["x-hub-signature-256"][:-1]}
    token = {"x-gitlab-token": SECRET}

    assert authentic("github", small, raw, secrets) == {"B", "C"}
    assert authentic("github", small, raw + b" ", secrets) == set()
    assert authentic("github", old, raw, secrets) == set()
    assert authentic("github", shorter, raw, secrets) == set()
    assert authentic("gitlab", token, raw, secrets) == {"B", "C"}
    assert (
        authentic("gitlab", {"x-gitlab-token": "\u00e9"}, raw, secrets)
        == authentic("gitlab", {}, raw, secrets)
        == set()
    )


def test_a_delivery_has_one_name() -> None:
    """The code host's own where it has one; of events that follow from each other, the body tells them apart."""
    again = {"idempotency-key": "key-of-delivery", "x-gitlab-event-uuid": "u"}

    assert delivery_id("github", {"x-github-delivery": "72d3162e-cc78"}, b"1") == "72d3162e-cc78"
    assert delivery_id("gitlab", again, b"1") == "key-of-delivery"
    assert len({delivery_id("gitlab", {"x-gitlab-event-uuid": "u"}, body) for body in (b"1", b"2", b"1")}) == 2
    assert delivery_id("github", {"x-github-delivery": "x" * 5000}, b"1") == delivery_id("github", {}, b"1")


@pytest.mark.parametrize(
    ("rule", "given", "reason"),
    [
        ({}, {}, None),
        ({"on": ["labeled"]}, {}, "not on pushed"),
        ({"branches": ["main", "release/*"]}, {"base": "release/2"}, None),
        ({"branches": ["release/*"]}, {}, "not for the branch main"),
        ({"labels": ["ai", "bot"]}, {"labels": ["x", "ai"]}, None),
        ({"labels": ["ai"]}, {"labels": ["x"]}, "without its label"),
        ({}, {"draft": True}, "a draft"),
        ({"drafts": True}, {"draft": True}, None),
        ({}, {"sender_type": "Bot"}, "done by a bot"),
        ({"bots": True}, {"sender": "x[bot]"}, None),
        ({}, {"fork": "yes"}, "the head is in a fork"),
        ({"forks": "approve"}, {"fork": "deleted"}, None),
        ({"forks": "without_secrets"}, {"fork": "yes"}, None),
    ],
)
def test_a_rule_is_about_what_it_says(rule: dict[str, Any], given: dict[str, Any], reason: str | None) -> None:
    """And says why not."""
    found = event(GITHUB, "synchronize", **given)
    assert found is not None

    assert TriggerRule(agent="a", instructions="Review it.", **rule).mismatch(found) == reason


def test_a_rule_without_words_is_refused() -> None:
    """It would start an agent with nothing to do."""
    with pytest.raises(ValidationError):
        TriggerRule(agent="a", instructions=" ")
