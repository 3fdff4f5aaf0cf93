"""`runwarden doctor`: what an issue needs, and nothing that should not be in one."""

from pathlib import Path
from typing import Any

from tests.cli.conftest import CommandLine


def found(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The checks by name."""
    return {check["name"]: check for check in report["checks"]}


def test_a_healthy_machine_is_reported_in_full_and_nothing_private(boarded: CommandLine) -> None:
    """Every part has its line; no token, address, home folder or name of a profile is in it."""
    report, told = boarded("doctor", "--json"), boarded("doctor")
    checks = found(report.json())

    names = ["runwarden", "python", "libraries", "programs", "terminal", "configuration", "data folder", "service"]
    assert [*checks] == [*names, "sandbox"]
    assert checks["service"]["ok"]
    assert "answered in" in checks["service"]["found"]
    assert "textual 8." in told.out
    assert report.json()["ok"] == (report.code == 0)
    for secret in (boarded.token, boarded.base_url, str(boarded.home), "environment\n"):
        assert not any(secret in said.out + said.err for said in (report, told))


def test_what_is_wrong_has_its_fix(lone: CommandLine, tmp_path: Path) -> None:
    """Exit code 1, and the other checks are still there."""
    (config := tmp_path / "config.toml").write_text("[poll]\nruns_s = 'often'\n")
    done = lone("--config", str(config), "doctor", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")
    checks = found(done.json())

    assert (done.code, checks["configuration"]["ok"], checks["python"]["ok"]) == (1, False, True)
    assert "runwarden config check" in checks["configuration"]["fix"]
