"""Where bubblewrap is required and does not work, no agent runs: runs wait, and everything says what to install."""

import platform
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli import main
from service.execution.sandbox import NoSandboxError, SandboxView, find
from service.execution.workspace import Workspace
from service.settings import ExecutionSettings
from tests import service_process
from tests.service.conftest import BARE, NEEDS_SANDBOX, OPERATOR, Make
from tests.service.test_page import Browser, text_of
from tests.service_process import ROOT, command

KEY = "sk-ant-a-key-that-no-agent-may-see"
PRINTER = """
import os
print("the key is", os.environ.get("ANTHROPIC_API_KEY"))
print(open(f"/proc/{os.getppid()}/environ").read())
"""
BWRAP = shutil.which("bwrap")
PROFILE = ROOT / "deploy/apparmor/runwarden-bwrap"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH: it has no bubblewrap yet."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("git", "sh", "python3"):
        (folder / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(folder))
    return folder


@NEEDS_SANDBOX
def test_runs_wait_until_bubblewrap_works(
    start: Make, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API works, no agent starts, and log, status, page and /readyz name the command; then the run is executed."""
    soon = "from service.execution import worker; worker.SANDBOX_PAUSE_S = 0.2"
    monkeypatch.setattr(service_process, "PROGRAM", f"{soon}\n{service_process.PROGRAM}")
    environment = {"ANTHROPIC_API_KEY": KEY, "RUNWARDEN_OPERATOR_TOKEN": OPERATOR}
    api = start(settings='[execution]\nsandbox = "require"\nlook_s = 0.1\n', environment=environment)
    api.add_agent(tmp_path, "printer", PRINTER)
    browser = Browser(api.service.base_url)
    browser.sign_in(OPERATOR)

    run_id = api.begin("printer")
    status = api.service.admin("status")
    table = CliRunner().invoke(main, ["status", "--data-dir", str(api.service.data_dir)]).stdout
    shown = text_of(browser.get("/operator"))
    ready = BARE.get(api.service.base_url.removesuffix("v1") + "readyz")

    sentence = status["sandbox"]
    assert sentence.startswith("missing: bubblewrap is not installed; ")
    assert "bubblewrap" in sentence.partition(";")[2]
    assert [(one["sandbox"], one["concurrency"]) for one in status["workers"]] == [(sentence, 0)]
    assert f"no turns: it needs a sandbox, sandbox: {sentence}" in table
    assert f"begins no turns, its sandbox is {sentence}" in shown
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "sandbox": sentence})
    assert api.service.log.count(f"sandbox: {sentence}") == 1
    assert api.run(run_id)["status"] == "queued"

    (programs / "bwrap").symlink_to(str(BWRAP))

    assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    assert KEY not in api.log(run_id)
    assert "the key is None" in api.log(run_id)
    assert [one["concurrency"] for one in api.service.admin("status")["workers"]] == [2]
    assert BARE.get(api.service.base_url.removesuffix("v1") + "readyz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("about", "advice"),
    [
        ({"ID": "debian"}, 'run "apt install bubblewrap"'),
        ({"ID": "fedora"}, 'run "dnf install bubblewrap"'),
        ({"ID": "arch"}, "install the package bubblewrap"),
    ],
)
def test_a_missing_bubblewrap_is_named_with_the_distributions_command(
    programs: Path, monkeypatch: pytest.MonkeyPatch, about: dict[str, str], advice: str
) -> None:
    """Where the distribution is not known, the package is named."""
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: about)

    assert str(find(ExecutionSettings())) == f"missing: bubblewrap is not installed; {advice}"


@pytest.mark.parametrize(
    ("said", "setting", "cure"),
    [
        ("setting up uid map: Permission denied", "kernel/apparmor_restrict_unprivileged_userns=1", "AppArmor forbids"),
        ("No permissions to create a namespace", "kernel/unprivileged_userns_clone=0", "unprivileged_userns_clone=1"),
        ("Creating new namespace failed", "user/max_user_namespaces=0", "max_user_namespaces=15000"),
        ("Creating new namespace failed", "user/max_user_namespaces=9", "allow user namespaces on this machine"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_named_with_its_cause(
    programs: Path, tmp_path: Path, said: str, setting: str, cure: str
) -> None:
    """In bubblewrap's own words, then what to run: Ubuntu 24.04 gets an AppArmor profile that ships in deploy/."""
    (programs / "bwrap").write_text(f"#!/bin/sh\necho 'bwrap: {said}' >&2\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    name, _, value = setting.partition("=")
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"{value}\n")

    found = find(ExecutionSettings(), tmp_path)

    assert str(found).startswith(f"missing: bubblewrap does not work here (bwrap: {said}); ")
    assert cure in found.reason
    assert "\n" not in found.reason


def test_the_apparmor_profile_allows_bubblewrap_its_user_namespaces() -> None:
    """The sentence names the file, and the file names bubblewrap's program."""
    assert "profile bwrap /usr/bin/bwrap flags=(unconfined) {" in PROFILE.read_text("utf-8")
    assert "  userns,\n" in PROFILE.read_text("utf-8")


def test_a_missing_sandbox_starts_no_command(programs: Path, tmp_path: Path) -> None:
    """Whoever asks for it: only sandbox = "none" gives agents the rights of the service."""
    view = SandboxView(tmp_path)
    required, switched_off = find(ExecutionSettings()), find(ExecutionSettings(sandbox="none"))

    with pytest.raises(NoSandboxError, match="bubblewrap is not installed"):
        required.wrap(["/bin/true"], Workspace(tmp_path), tmp_path, view)
    assert switched_off.wrap(["/bin/true"], Workspace(tmp_path), tmp_path, view) == ["/bin/true"]


def test_a_check_of_an_agent_names_the_missing_sandbox(programs: Path, tmp_path: Path) -> None:
    """Status 1, as for anything that the agent needs and this machine has not."""
    command(tmp_path, "org", "create", "Acme Inc.")
    done = CliRunner().invoke(main, ["agent", "check", "reviewer", "--data-dir", str(tmp_path)])

    assert done.exit_code == 1
    assert done.stdout.startswith("reviewer: bubblewrap is not installed; ")
