"""`runs cancel` with a filter or several ids: it shows a preview, asks once, has a cap, and sends each once."""

import csv
from io import StringIO

import pytest

from tests.cli.conftest import CommandLine, outcomes
from tests.lab import Lab


@pytest.fixture
def many(boarded: CommandLine, lab: Lab) -> CommandLine:
    """A service with three active runs and an ended one."""
    for number, status in enumerate(("queued", "working", "completed", "working")):
        lab.put(f"run_{number}", status, created=number)
        lab.turns[f"run_{number}"] = {"turns": [{"number": 1}]}
    lab.runs["run_3"]["repository"] = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}
    return boarded


def test_a_filter_cancels_the_active_runs_that_match_once(many: CommandLine, lab: Lab) -> None:
    """Ended runs are left alone, a key sends each cancellation once, and several ids may replace the filter."""
    cancel = ("runs", "cancel", "-R", "acme/api", "--yes", "--json", "--key", "k")

    dry, result = many(*cancel, "--dry-run"), many(*cancel)
    named = many("runs", "cancel", "run_3", "run_0", "run_3", "--key", "k", "--yes", "--json")
    none = many("runs", "cancel", "--active", "--yes")
    audit = csv.DictReader(StringIO(many("actions", "export", "-o", "csv").out))

    both = {"run_1": "sent", "run_0": "sent"}
    assert outcomes(dry) == dict.fromkeys(both, "to_send")
    assert dry.json()["rows"][0]["request"]["url"].endswith("/external/runs/run_1/cancel")
    assert (result.code, outcomes(result), result.json()["outcomes"]) == (0, both, {"sent": 2})
    assert [row["run"]["outcome"] for row in result.json()["rows"]] == ["cancelled"] * 2
    assert (named.code, outcomes(named)) == (0, {"run_3": "sent", "run_0": "sent_before"})
    assert [row["subject"] for row in audit] == ["run_3", "run_0", "run_1"]
    assert (none.code, none.err.splitlines()[-1]) == (0, "No active run matches.")
    assert [request.path for request in lab.requests if request.method == "POST"] == [
        f"/v1/external/runs/run_{number}/cancel" for number in (1, 0, 3)
    ]


def test_nothing_is_cancelled_without_consent_or_beyond_the_limit(many: CommandLine, lab: Lab) -> None:
    """The runs are listed before the question, and each refusal explains how to continue."""
    unasked = many("runs", "cancel", "--active")
    (many.home / "c.toml").write_text("[console]\nsend_cap = 2\n")
    refused = {
        words: many("--config", str(many.home / "c.toml"), "runs", "cancel", *words.split(), "--yes", "--json").json()
        for words in ("--active", "-R acme/api --limit 1", "", "run_1 --active")
    }

    assert [line[:5] for line in unasked.err.splitlines() if line.startswith("run_")] == ["run_3", "run_1", "run_0"]
    assert (unasked.code, "Nothing was sent: give --yes to cancel 3 runs." in unasked.err) == (2, True)
    assert [document["error"]["message"] for document in refused.values()] == [
        "Nothing was sent: 3 runs match, more than 2. Narrow the filter, or give --limit 3.",
        "Nothing was sent: 2 runs match, more than 1. Narrow the filter, or give --limit 2.",
        *["Name the runs to cancel, or give a filter such as --status queued or --active."] * 2,
    ]
    assert [request for request in lab.requests if request.method == "POST"] == []
