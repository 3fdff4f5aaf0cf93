"""The command line against the real service, which the tests of this file share."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.results.repository import git
from tests.service_process import RunningService, start_service
from tests.waiting import eventually

SPEC_FIELDS = {"run_id", "status", "branch_name", "repository", "created_at", "updated_at"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """The service, whose agents can read the tests' folders; each test checks only its own runs."""
    running = start_service(tmp_path_factory.mktemp("service"), settings='[execution]\nsandbox = "none"\n')
    yield running
    running.stop()


@pytest.fixture
def real(tmp_path: Path, service: RunningService) -> CommandLine:
    """A command line against the real service."""
    return CommandLine(tmp_path, service.base_url, service.admin_token)


@pytest.fixture
def with_git(real: CommandLine, service: RunningService) -> CommandLine:
    """A command line with the repository configured; `real` only asks the service."""
    config = real.home / "config.toml"
    config.write_text(f'[repositories]\n"acme/api" = "{service.repositories["acme/api"]}"\n')
    return replace(real, more={"RUNWARDEN_CONFIG": str(config)})


def test_git_and_the_service_give_the_same_change(real: CommandLine, with_git: CommandLine) -> None:
    """Git and the service give the same patch, files and commit."""
    start = ("runs", "start", "-R", "acme/api", "--branch", "agent/both", "--wait", "--json", "Note it")
    run_id = real(*start).json()["run"]["run_id"]
    told = [each("runs", "diff", run_id, "--patch", "--json").json() for each in (real, with_git)]
    refused = real("runs", "checkout", run_id, "--json")

    assert [document.pop("source") for document in told] == ["service", "git"]
    assert [document["patch"] for document in told] == [told[0]["patch"]] * 2 != [""] * 2
    assert [told[0][name] for name in ("head", "files")] == [told[1][name] for name in ("head", "files")]
    assert (refused.code, "add it under [repositories]" in refused.json()["error"]["message"]) == (7, True)


def test_a_kept_change_can_be_shown_applied_and_continued(
    service: RunningService, real: CommandLine, with_git: CommandLine, tmp_path: Path
) -> None:
    """Each command says that no branch has the change, even if git is configured and does not know it."""
    (tmp_path / "half").write_text("[ -e half.txt ] && exit 0\necho half > half.txt\nexit 7\n")
    service.admin("agent", "add", "half", "--argv", f"/bin/sh {tmp_path / 'half'}")
    begun = real("agents", "start", "half", "-R", "acme/api", "--wait", "--json").json()
    run_id = begun["execution"]["execution_id"]
    documents = [each("runs", "diff", run_id, "--json").json() for each in (real, with_git)]
    git(tmp_path, "clone", "--quiet", "--branch", "main", str(service.repositories["acme/api"]), "checkout")
    applied = real("runs", "apply", run_id, "-C", str(tmp_path / "checkout"))
    done = real("runs", "continue", run_id, "--from-patch", "--wait", "--json", "Finish it").json()
    sent = real("actions", "show", done["action_id"], "--json").json()["action"]
    viewed = real("runs", "view", run_id, "--json").json()

    assert [(one["pushed"], one["source"], one["files"][0]["path"]) for one in documents] == [
        (False, "service", "half.txt")
    ] * 2
    assert (tmp_path / "checkout" / "half.txt").read_text() == "half\n"
    assert "Not pushed: turn 1 left it as a patch." in applied.err
    assert done["run"]["status"] == "completed"
    assert sent["path"] == "/external/runs?start_from=patch"
    assert [turn["from_turn"] for turn in viewed["turns"]] == [None, 1]


def test_a_run_is_started_once_and_waited_for(real: CommandLine, service: RunningService) -> None:
    """`--wait` reports the result, the list has the observed transitions, and a second turn joins the run."""
    made = real(
        *("runs", "start", "-R", "acme/api", "--branch", "fix/login", "--metadata", "ticket=7", "--metadata", "who=me"),
        *("Review the login", "--wait", "--timeout", "5m", "--json"),
    )
    assert (made.code, made.err.splitlines()[-1].split()[-1]) == (0, "completed"), made.out + service.log
    document, run_id = made.json(), made.json()["run"]["run_id"]
    listing = real("runs", "list", "--branch", "fix/login", "--json").json()
    log = git(service.repositories["acme/api"], "log", "--format=%B", "fix/login")
    action = real("actions", "show", document["action_id"], "--json").json()["action"]

    assert (document["kind"], document["state"], action["state"]) == ("run.start", "confirmed", "confirmed")
    assert document["run"]["status"] == "completed"
    assert set(document["run"]) >= SPEC_FIELDS
    assert run_id.encode() in log
    assert action["body"] == {
        "instructions": "Review the login",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
        "branch_name": "fix/login",
        "metadata": {"ticket": 7, "who": "me"},
    }
    assert (listing["count"], listing["source"]) == (1, "live")
    [run] = listing["runs"]
    assert {name: run[name] for name in SPEC_FIELDS} == {name: document["run"][name] for name in SPEC_FIELDS}
    assert run["observed"]["state"] == "current"
    assert run["observed"]["transitions"][0]["from"] is None
    assert run["observed"]["transitions"][-1]["to"] == "completed"

    continued = real("runs", "continue", run_id, "And again", "--wait", "--timeout", "5m", "--json")
    after = real("runs", "show", run_id, "--json").json()
    assert continued.code == 0, continued.out + continued.err
    assert (continued.json()["kind"], continued.json()["run"]["run_id"]) == ("run.continue", run_id)
    assert [turn["instructions"] for turn in after["conversation"]] == ["Review the login", "And again"]


def start(real: CommandLine, agent: str, *options: str) -> str:
    made = real("agents", "start", agent, "-R", "acme/api", "--json", *options)
    assert made.code == 0, made.out + made.err
    return str(made.json()["execution"]["execution_id"])


def test_a_run_is_followed_to_its_end_and_viewed(real: CommandLine, service: RunningService, tmp_path: Path) -> None:
    """The output has no control character that a terminal obeys; both names of the command work."""
    script = r"printf 'plain\a\033[2Jline \033[31mred\033[0m \033[8mhidden\n10%%\r20%%\rdone\n'; echo made > made.txt"
    (file := tmp_path / "noisy").write_text(script)
    service.admin("agent", "add", "noisy", "--argv", f"/bin/sh {file}")
    run_id = start(real, "noisy")
    followed = real("runs", "log", run_id, "--follow")
    plain, lines = real("runs", "log", run_id), real("runs", "log", run_id, "--follow", "--json")
    viewed, document = real("runs", "view", run_id), real("runs", "view", run_id, "--turn", "1", "--json").json()
    shown = real("runs", "show", run_id)

    assert (followed.code, "turn 1: completed" in followed.err) == (0, True)
    assert "plain␇␛[2Jline red hidden" in followed.out
    assert "\ndone\n" in followed.out
    assert not any(each in followed.out for each in ("\x1b", "20%"))
    assert plain.out == followed.out
    events = [json.loads(line) for line in lines.out.splitlines()]
    assert (lines.code, [each["text"] for each in events[:-1]]) == (0, plain.out.splitlines())
    end = {"event": "end", "run_id": run_id, "turn": 1, "outcome": "completed", "reason": None}
    assert events[-1] | end == events[-1]
    assert (document["source"], document["agent"], document["turns"][0]["files"]) == ("service", "noisy", 1)
    assert document["turns"][0]["commit"]
    assert viewed.out.split("turn 1")[1] == shown.out.split("turn 1")[1]


def test_a_message_to_a_run_is_in_ledger_and_conversation(real: CommandLine, tmp_path: Path) -> None:
    """An agent that cannot take messages while it works gets it in the next turn; an ended run refuses it."""
    run_id = start(real, "scribe", "--input", f"instructions=wait {tmp_path / 'gate'}")
    said, listed = real("runs", "say", run_id, "nothing", "new"), real("actions", "list", "--kind", "run.say", "--json")
    (tmp_path / "gate").touch()
    real("runs", "wait", run_id)
    eventually(lambda: "at work on turn 2" in real("runs", "log", run_id).out, "the next turn has begun")
    real("runs", "wait", run_id)
    late = real("runs", "say", run_id, "more", "--json")

    assert (said.code, "starts the run's next turn" in said.err) == (0, True)
    assert [action["state"] for action in listed.json()["actions"]] == ["confirmed"]
    assert (late.json()["state"], late.json()["error"]["error_code"]) == ("rejected", "run_not_active")


def test_following_a_cancelled_run_fails(real: CommandLine, tmp_path: Path) -> None:
    """Cancelling twice is harmless. Documents have both the service's status and the outcome, which filters use."""
    run_id = start(real, "scribe", "--input", f"instructions=wait {tmp_path / 'never'}")
    eventually(lambda: "at work on turn 1" in real("runs", "log", run_id).out, "the agent works")
    first, second = real("runs", "cancel", run_id, "--json"), real("runs", "cancel", run_id)
    followed = real("runs", "log", run_id, "--follow")
    listed = real("actions", "list", "--kind", "run.cancel", "--json").json()["actions"]
    viewed, viewed_as_json = real("runs", "view", run_id), real("runs", "view", run_id, "--json").json()
    waited = real("runs", "wait", run_id)
    shown = real("runs", "show", run_id, "--json").json()["run"]
    found = []
    for filters in ("status:cancelled", "status:failed", "-status:failed"):
        listing = real("runs", "list", "--search", filters, "--json").json()["runs"]
        found.append(run_id in [run["run_id"] for run in listing])

    assert waited.code == 1
    assert waited.err.splitlines()[-1] == f"runwarden: Not completed: {run_id} (cancelled: cancelled by tests)."
    for run in (shown, first.json()["run"], viewed_as_json["run"]):
        assert (run["status"], run["outcome"]) == ("failed", "cancelled")
    assert shown["observed"]["transitions"][-1]["to"] == "cancelled"
    assert found == [True, False, True]
    assert (first.code, first.json()["state"], first.json()["run"]["status"]) == (0, "confirmed", "failed")
    assert second.code == 0
    assert [action["state"] for action in listed if action["result_id"] == run_id] == ["confirmed"] * 2
    assert followed.code == 1
    assert "turn 1: cancelled" in followed.err
    assert "reason: cancelled by tests" in viewed.out


def test_an_organization_is_created_listed_and_invited_again(real: CommandLine, service: RunningService) -> None:
    """The invitation mail is in the outbox and its age is shown; once accepted, it cannot be sent again."""
    created = real("orgs", "create", "again@example.com", "--offer-code", "PARTNER", "--json")
    document = created.json()
    made = document["organization"]["organization_id"]
    assert (created.code, document["state"], document["kind"]) == (0, "confirmed", "organization.create")
    assert (service.outbox / f"{made}.eml").exists()
    [waiting] = real("orgs", "list", "--json").json()["organizations"]
    assert (waiting["email"], waiting["offer_code"]) == ("again@example.com", "PARTNER")
    assert waiting["invitation_expires_at"] > waiting["created_at"]

    again = real("orgs", "resend", "again@example.com", "--json")
    (mail,) = service.outbox.glob(f"{made}.inv_*.eml")
    service.admin("org", "accept-invitation", re.findall(r"rwt_\S+", mail.read_text())[0])
    listed = real("orgs", "list", "--json").json()["organizations"][0]
    refused = real("orgs", "resend", made, "--json").json()

    assert (again.code, again.json()["kind"], again.json()["state"]) == (0, "invitation.resend", "confirmed")
    assert again.json()["invitation"]["email"] == "again@example.com"
    assert (listed["invitation"]["state"], listed["invitation"]["mail"]) == ("accepted", "outbox")
    assert (refused["state"], refused["error"]["error_code"]) == ("rejected", "invitation_closed")


def test_agents_are_listed_with_their_inputs(real: CommandLine, service: RunningService) -> None:
    """An optional input is listed in brackets with its default."""
    focus, depth = '{ choices = ["speed", "security"], required = true }', '{ type = "integer", default = 2 }'
    options = ("--inputs", f"{{ focus = {focus}, depth = {depth} }}", "--prompt", "On {inputs.focus}")
    service.admin("agent", "add", "looker", "--argv", "true", "--description", "Looks at one thing.", *options)
    listed = {one["name"]: one for one in real("agents", "list", "--json").json()["agents"]}
    (line,) = [line for line in real("agents", "list").out.splitlines() if line.startswith("looker")]

    shown = listed["looker"]["inputs"]["depth"]
    assert shown == {"type": "integer", "description": "", "required": False, "default": "2", "choices": []}
    assert line.split(None, 1)[1].split("  ")[0] == "focus=speed|security [depth=2]"
    assert line.endswith("Looks at one thing.")


def test_a_refused_or_insufficient_token_is_exit_code_4(real: CommandLine, service: RunningService) -> None:
    """Reads and writes exit with 4; a token for creating organizations can create them, but not read runs."""
    stranger = CommandLine(real.home, real.base_url, "not-a-token")
    for arguments in (["runs", "list"], ["token", "check"], ["orgs", "create", "a@example.com"]):
        result = stranger(*arguments, "--json")
        assert (result.code, result.json()["error"]["kind"]) == (4, "not_authorized")
    assert stranger("token", "check", "--json").json()["valid"] is False

    made = service.admin("token", "create", "--org", "acme", "--scope", "organizations:create")
    narrow = CommandLine(real.home, real.base_url, made["value"])
    assert narrow("runs", "list", "--json").json()["error"]["kind"] == "forbidden"
    checked = narrow("token", "check", "--json")
    assert (checked.code, checked.json()["valid"], checked.json()["runs"]) == (4, True, False)
    assert narrow("orgs", "create", "narrow@example.com", "--json").code == 0


def test_an_onboarding_refused_by_gitlab_is_confirmed_and_fails(real: CommandLine) -> None:
    """The document has the project and says that onboarding failed."""
    good = real("gitlab", "onboard", "gitlab:acme/tools", "--json")
    bad = real("gitlab", "onboard", "acme/none", "--json")

    assert (good.code, good.json()["project"]["success"]) == (0, True)
    assert (bad.code, bad.json()["state"], bad.json()["project"]["success"]) == (1, "confirmed", False)
